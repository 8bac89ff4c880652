// What a simulated replica's shell stands on: the store over the simulated disk, with the checks before and
// after, the simulated network, the clock of the life.
#pragma once

#include "world.hpp"

namespace crane::sim {

class World::Ground : public ReplicaGround,
                      public paxos::Storage,
                      public paxos::Links,
                      public paxos::Clock,
                      public paxos::ShellProbe {
  public:
    Ground(World& world, Replica& replica);
    const paxos::NodeCallbacks& callbacks() const { return callbacks_; }

    /// Storage. A persist takes its time: the shell is told when the disk has answered.
    paxos::StoredState load() override { return replica_.store->load(); }
    void persist(const paxos::PersistBatch& batch) override;
    bool start_persist(const paxos::PersistBatch& batch) override;
    bool truncate_front(const paxos::LogPosition& start) override;
    void restart_at(const paxos::LogPosition& start, const paxos::MembershipAt& membership,
                    const paxos::Incarnations& starts) override;
    void disown() override { replica_.store->disown(); }
    uint64_t syncs() const override { return replica_.store->syncs(); }
    void close(uint64_t commit) override { replica_.store->close(commit); }
    void read(uint64_t first, uint64_t last, size_t max_bytes,
              std::vector<paxos::Entry>& out) const override {
        replica_.store->read(first, last, max_bytes, out);
    }

    bool up(Id) const override { return true; }
    void send(const paxos::Message& message) override;
    void flush() override {}
    void follow(const paxos::Core&) override {}

    uint64_t now_us() const override { return world_.now_us_; }

    void before_turn() override;
    void changed() override { world_.checks_.observe(replica_); }
    void taken(paxos::Outbox& out) override;

  private:
    void check_machine() const;  ///< throws when it has died

    World& world_;
    Replica& replica_;
    paxos::NodeCallbacks callbacks_;
};

}  // namespace crane::sim
