// A cluster in one thread: the real core and shell over a simulated network, clock and disks, driven by one
// seed.
//
// Faults: delay, loss, duplication, reordering, one-way and two-way partitions, crashes at every point of a
// turn, with what was not persisted lost. Checked after every turn; the first violation is kept and ends the
// run.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "paxos/core/core.hpp"
#include "paxos/shell.hpp"

namespace crane::paxos::simulation {

/// What a disk holds. `lying`: a crash also takes back the newest batches (must be noticed: the canary).
class MemoryStorage : public Storage {
  public:
    StoredState load() override { return state(); }
    StoredState state() const;
    void persist(const PersistBatch& batch) override;
    bool truncate_front(const LogPosition& start) override;
    void restart_at(const LogPosition& start, const MembershipAt& membership,
                    const Incarnations& starts) override;
    void read(uint64_t first, uint64_t last, size_t max_bytes, std::vector<Entry>& out) const override;
    uint64_t syncs() const override { return syncs_; }

    bool holds(const Entry& entry) const;
    uint64_t last_index() const { return start_.index + entries_.size(); }
    void remember() { earlier_ = std::make_unique<MemoryStorage>(view_, start_, entries_, memberships_); }
    void lose_everything(bool marked);  ///< and be replaced by an empty one that knows it, or not
    bool rejoining() const { return rejoining_; }
    const LogPosition& start() const { return start_; }
    void go_back();  ///< to what was remembered

    MemoryStorage() = default;
    MemoryStorage(View view, const LogPosition& start, const std::vector<Entry>& entries,
                  const std::vector<MembershipAt>& memberships)
        : view_(view), start_(start), entries_(entries), memberships_(memberships) {}

  private:
    View view_ = 0;
    uint64_t commit_ = 0;
    bool rejoining_ = false;
    LogPosition start_;
    std::vector<Entry> entries_;
    std::vector<MembershipAt> memberships_;
    uint64_t syncs_ = 0;
    std::unique_ptr<MemoryStorage> earlier_;
};

/// The membership of replicas that all vote.
Membership voters(const std::vector<ReplicaId>& ids);
/// Whether the entry is on the disks of a majority of those who vote.
bool on_majority(const Entry& entry, const Membership& membership,
                 const std::function<const MemoryStorage*(ReplicaId)>& disk);

struct Faults {
    double loss = 0, duplication = 0;
    uint64_t min_delay_us = 200, max_delay_us = 3'000;
    double crash_per_s = 0;  ///< of the whole cluster
    double partition_per_s = 0;
    double upheaval_per_s = 0;  ///< leadership transfer, step-down, log truncation
    double crash_in_turn = 0;   ///< probability that a turn with something to persist dies in the middle
    bool lying_disks = false;
    double lost_disk = 0;  ///< probability that a crash takes the disk with it (one at a time)
    bool rejoin_unmarked =
        false;  // the new disk does not know that it replaces another (must be noticed: a canary)
};

class Cluster {
  public:
    Cluster(unsigned replicas, uint64_t seed);
    ~Cluster();

    void run(uint64_t duration_us, const Faults& faults);
    void heal();  ///< all links, all replicas up
    void crash(ReplicaId id);
    void restart(ReplicaId id);
    void shut_down(ReplicaId id);  ///< in order
    void cut(ReplicaId from, ReplicaId to) { cut_.insert({from, to}); }
    void isolate(ReplicaId id);
    void reconnect() { cut_.clear(); }

    /// The replica that leads the highest view, or 0.
    ReplicaId leader() const;
    bool propose(ReplicaId at);
    bool settled() const;  ///< all up, and all have delivered everything proposed by the present leader
    Core& core(ReplicaId id) { return *replicas_.at(id).core; }
    bool up(ReplicaId id) const { return replicas_.at(id).core != nullptr; }
    void act(ReplicaId id);  ///< turns, after the core was touched from outside
    MemoryStorage& disk(ReplicaId id) { return replicas_.at(id).disk; }

    const std::string& violation() const { return violation_; }
    uint64_t decided() const { return decided_.empty() ? 0 : decided_.rbegin()->first; }
    uint64_t messages() const { return sequence_; }
    unsigned crashes() const { return crashes_; }
    unsigned lost_disks() const { return lost_disks_; }
    uint64_t proposal_interval_us = 2'000;

  private:
    class Ground;  ///< what a shell stands on
    struct Replica {
        Replica();
        ~Replica();
        MemoryStorage disk;
        std::unique_ptr<Core> core;
        std::unique_ptr<Ground> ground;
        std::unique_ptr<Shell> shell;
        bool dying = false;  // in the middle of a turn
        uint64_t delivered = 0;
        View highest_view = 0;
        View promised = 0;  // on its disk
        View led = 0;
    };
    struct Packet {
        uint64_t at_us;
        uint64_t sequence;
        ReplicaId to;
        std::string bytes;
        bool operator>(const Packet& other) const {
            return std::tie(at_us, sequence) > std::tie(other.at_us, other.sequence);
        }
    };

    double chance() { return std::uniform_real_distribution<double>(0, 1)(random_); }
    uint64_t between(uint64_t low, uint64_t high) {
        return std::uniform_int_distribution<uint64_t>(low, high)(random_);
    }
    ReplicaId anyone() { return static_cast<ReplicaId>(between(1, replicas_.size())); }
    void send(const Message& message);
    bool persist(Replica& replica, const PersistBatch& batch);  ///< false: the process died of it
    void deliver_packets();
    void turn(ReplicaId id, Replica& replica);
    void deliver(ReplicaId id, Replica& replica, const Entry& entry);
    void check_state(ReplicaId id, Replica& replica);
    void inject(const Faults& faults, uint64_t elapsed_us);
    void upheaval();
    void lose_disk(ReplicaId id);
    void restore_who_needs_it();
    void partition();
    uint64_t next_event_us() const;
    void violate(const std::string& what);

    std::mt19937_64 random_;
    std::map<ReplicaId, Replica> replicas_;
    std::priority_queue<Packet, std::vector<Packet>, std::greater<>> network_;
    std::set<std::pair<ReplicaId, ReplicaId>> cut_;
    std::map<uint64_t, Entry> decided_;
    std::set<std::string> decided_values_;
    Faults faults_;
    uint64_t now_us_ = 1'000;
    uint64_t next_proposal_us_ = 0;
    uint64_t sequence_ = 0, proposed_ = 0, restarts_ = 0;
    unsigned crashes_ = 0, lost_disks_ = 0;
    std::string violation_;
};

}  // namespace crane::paxos::simulation
