// The cluster that a text script acts on: real cores, disks in memory, a network and a clock that move only
// when told to. Everything that happens is written to a transcript, in the order in which it happens.
//
// Each delivery is compared with what was delivered before, as the simulator does: a script cannot record a
// broken promise as expected.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "paxos/core/core.hpp"
#include "test_paxos_simulation.hpp"

namespace crane::paxos::script {

constexpr uint64_t kScriptStartUs = 1'000'000;  ///< what the clock shows at "0.0 ms"

/// Picks messages: each field that is set must fit.
struct Selector {
    ReplicaId from = kNoReplica, to = kNoReplica;
    bool both_ways = false;
    std::string type;
    bool first = false, last = false;

    bool fits(const Message& message) const;
};

class World {
  public:
    World(unsigned replicas, const CoreConfig& settings);

    /// Messages on their way.
    void deliver(const Selector& selector, bool together);
    void drop(const Selector& selector);
    void duplicate(const Selector& selector);
    void hold(const Selector& selector);
    void release();
    void settle();  ///< delivers until nothing is left that may be
    void cut(const Selector& selector);
    void heal() { cut_.clear(); }
    void show_network();

    /// Time.
    void wait(uint64_t us, bool delivering);
    void timeout(ReplicaId id);  ///< moves on to what the replica waits for; nobody else looks at the clock

    /// Replicas.
    void start(ReplicaId id, uint64_t checkpoint);
    void crash(ReplicaId id, const std::string& write);
    void lose_disk(ReplicaId id, bool marked);
    void slow_disk(ReplicaId id, bool slow) { replica(id).slow = slow; }
    void finish_write(ReplicaId id);
    void propose(ReplicaId id, std::vector<std::string> values);
    void transfer(ReplicaId id, ReplicaId to);
    void step_down(ReplicaId id);
    void bar(ReplicaId id, bool barred);
    void fill_disk(ReplicaId id, bool full);
    void shut_down(ReplicaId id);
    void change(ReplicaId id, const MembershipChange& change);
    void hold_checkpoint(ReplicaId id, uint64_t index);
    void link_restored(ReplicaId id, ReplicaId peer);
    void peer_gone(ReplicaId id, ReplicaId peer);
    void pause(ReplicaId id, bool paused);
    void show(ReplicaId id);
    void describe_core(ReplicaId id);
    void show_disk(ReplicaId id);

    std::vector<ReplicaId> ids() const;
    void be_brief(bool brief) { brief_ = brief; }
    std::string take_transcript() { return std::exchange(transcript_, {}); }
    const std::string& violation() const { return violation_; }

  private:
    struct Replica {
        simulation::MemoryStorage disk;
        std::unique_ptr<Core> core;
        Outbox out;
        std::string role;      // as last reported
        bool waiting = false;  // for its disk
        bool slow = false;
        bool closing = false;
        uint64_t delivered = 0;
        unsigned starts = 0;
        bool joins = false;
    };
    struct Packet {
        Message message;
        bool held = false;
    };

    Replica& replica(ReplicaId id);
    Replica& running(ReplicaId id);  ///< up, and not in the middle of a write
    std::vector<size_t> chosen(const Selector& selector) const;
    std::vector<Packet> take(const Selector& selector);
    void send(const std::vector<Message>& messages);
    void arrive(const Message& message);
    void turn(ReplicaId id);
    void finish_turn(ReplicaId id);
    void report_role(ReplicaId id);
    void cut_log(ReplicaId id);
    void hand_out(ReplicaId id);
    void check(ReplicaId id, const Entry& entry);
    bool durable(const Entry& entry);
    MembershipAt membership_at(uint64_t index) const;
    void stop_if_handed_over(ReplicaId id);
    void say(const std::string& line, bool important = false);

    const CoreConfig settings_;
    const Membership first_members_;
    std::map<ReplicaId, Replica> replicas_;
    std::vector<Packet> network_;
    std::vector<Selector> holds_;
    std::set<std::pair<ReplicaId, ReplicaId>> cut_;
    std::map<uint64_t, Entry> decided_;
    uint64_t now_us_;
    bool disk_lost_ = false;
    bool brief_ = false;
    std::string transcript_;
    std::string violation_;
};

}  // namespace crane::paxos::script
