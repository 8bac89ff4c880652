// One life of a cluster: the real core, shell and store on simulated machines, one event per step.
//
// The clock jumps from event to event: a message arrives, a replica wakes (its disk has answered, a deadline
// is due, a pause is over), somebody proposes, something goes wrong (faults.cpp), the operator acts
// (operator.cpp). The first part of a life has faults; then they stop for a majority, which must go on
// deciding; then for all, and all must arrive at the same log (settle.cpp). Everything follows from the seed.
//
// Files: world.cpp (steps), process.cpp (a replica's process: start, turns, end), ground.cpp (what its shell
// stands on), faults.cpp, rot.cpp (what a disk does while its replica is down), copies.cpp (disks that are
// put back from a copy), inspect.cpp (looking at copies of a disk), operator.cpp, settle.cpp.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "canary.hpp"
#include "checks.hpp"
#include "network.hpp"
#include "profile.hpp"

namespace crane::sim {

struct LifeSettings {
    uint64_t seed = 1;
    uint64_t steps = 10'000;
    bool verbose = false;  ///< prints what happens
    Canary* canary = nullptr;
};

class World {
  public:
    explicit World(const LifeSettings& settings);
    ~World();

    void run();
    const std::string& violation() const { return checks_.violation(); }
    Counts& counts() { return counts_; }
    uint64_t trace_hash() const { return trace_; }
    std::string profile() const { return profile_.text(); }

  private:
    using Id = paxos::ReplicaId;
    class Ground;

    // world.cpp
    bool step();
    void run_steps(uint64_t until_step);
    void run_until(uint64_t end_us, const std::function<bool()>& done);
    void arrive(Packet packet);
    void propose();
    void note(const char* what, Id id, uint64_t detail = 0);
    void say(const std::string& line) const;
    Replica& add_replica(Id id, bool founder);
    Replica* leader();
    Replica* pick(bool up);  ///< any that is up, or any that is down and may come back
    uint64_t decided_of(const Replica& replica) const {
        return replica.up() ? replica.core->decided_index() : 0;
    }

    // process.cpp
    void start(Replica& replica);
    void open(Replica& replica);
    void restore(Replica& replica);
    void destroy(Replica& replica);
    void end(Replica& replica, bool power);  ///< the machine, or the process, dies
    void finish_cut(Replica& replica);       ///< its disk was cut in the middle of something
    void stop_by_disk(Replica& replica, const std::string& why);
    void shut_down(Replica& replica);
    void guarded(Replica& replica, const std::function<void()>& act);
    void wake(Replica& replica);
    void turn(Replica& replica);
    void set_wake(Replica& replica);
    uint64_t sync_us(Replica& replica);

    // faults.cpp
    void fault();
    void machine_fault(FaultKind kind);
    void disk_fault(FaultKind kind);
    void network_fault(FaultKind kind);
    void core_fault(FaultKind kind);
    void partition();
    void lose_disk(Replica& replica);
    bool may_lose_disk(const Replica& replica) const;
    bool anyone_lost() const;
    void replace_disk(Replica& replica);
    void added_fault();
    void restrain(Replica& replica);
    uint64_t down_for_us() { return random_.skewed(400'000); }

    // rot.cpp
    void before_start(Replica& replica);
    void rot(Replica& replica);
    std::string damage(Replica& replica);  ///< in words; empty: there was nothing to damage
    void judge_rot(Replica& replica, const std::string& damage);
    void find_rot(Replica& replica);

    // copies.cpp
    void copy_disk(Replica& replica);
    bool is_known_for_old(const Replica& replica) const;
    void put_back(Replica& replica);

    // inspect.cpp
    struct Inspection {
        std::string refused;  // why the store does not open, or does not read; empty: it does
        std::string differs;  // how what it found is not what was acknowledged; empty: it is
    };
    Inspection inspect(const Replica& replica, Disk& copy) const;
    std::string problems_of(Disk& copy);  ///< as the offline check tells them; empty: none
    void look_at_platter(Replica& replica);

    // operator.cpp
    void operate();
    void change_membership();
    void propose_change(Replica& leader, const paxos::MembershipChange& change);
    void make_checkpoint(Replica& replica);
    void restore_who_needs_it();
    void start_newcomers();
    void retire_removed();

    // settle.cpp
    void settle();
    std::vector<paxos::Membership> present_memberships() const;
    std::vector<Id> pick_core();
    void calm(Replica& replica);
    bool decides_again(const std::vector<Id>& core, uint64_t before) const;
    bool converged() const;
    std::string state() const;

    const LifeSettings settings_;
    Random random_;
    Random added_random_;
    const Profile profile_;
    const AddedFaults added_;
    Counts counts_;
    Network network_;
    Replicas replicas_;
    paxos::Membership founders_;
    Checks checks_;
    uint64_t now_us_ = 1'000;
    uint64_t steps_ = 0;
    uint64_t next_proposal_us_ = 0;
    uint64_t next_fault_us_ = 0;
    uint64_t next_operation_us_ = 0;
    uint64_t next_added_us_ = kNever;
    bool faults_on_ = true;
    bool proposals_on_ = true;
    uint64_t trace_ = 0;
    std::map<paxos::View, uint64_t> proposed_;
};

}  // namespace crane::sim
