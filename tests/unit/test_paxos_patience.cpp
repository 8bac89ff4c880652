// Which silence means something: not one in which the listener did not run, and not one that is usual here.
#include <catch2/catch.hpp>
#include <memory>
#include <vector>

#include "paxos/core/core.hpp"
#include "paxos/core/patience.hpp"
#include "tests/unit/test_paxos_no_log.hpp"

using namespace crane::paxos;

namespace {

constexpr uint64_t kMs = 1000;

// Three replicas whose messages and syncs take no time.
class Cluster {
  public:
    explicit Cluster(ReplicaId barred = kNoReplica) {
        for (ReplicaId id = 1; id <= 3; ++id) {
            CoreConfig config;
            config.self = id;
            for (ReplicaId member = 1; member <= 3; ++member) config.members.add({member, true, ""});
            config.seed = id;
            cores_.push_back(std::make_unique<Core>(config, StoredState{}, log_));
            if (id == barred) core(id).set_eligible(false);
        }
        run(1000 * kMs);
    }
    Core& core(ReplicaId id) { return *cores_[id - 1]; }
    uint64_t now_us() const { return now_us_; }
    ReplicaId leader() {
        for (const auto& core : cores_)
            if (core->role() == Role::kLeader) return core->leader();
        return kNoReplica;
    }
    // All but `stopped` run for so long.
    void run(uint64_t us, ReplicaId stopped = kNoReplica) {
        for (const uint64_t end_us = now_us_ + us; now_us_ < end_us; now_us_ += kMs)
            for (ReplicaId id = 1; id <= 3; ++id)
                if (id != stopped) turn(id, stopped);
    }
    // Nobody runs.
    void pass(uint64_t us) { now_us_ += us; }
    void turn(ReplicaId id, ReplicaId stopped = kNoReplica) {
        core(id).tick(now_us_);
        Outbox out;
        do {
            core(id).take_outbox(out);
            if (!out.persist.empty()) core(id).persisted();
            for (const auto* messages : {&out.send_now, &out.send_after})
                for (const Message& message : *messages) {
                    if (message.to == stopped) continue;
                    core(message.to).advance_clock(now_us_);
                    core(message.to).step(message);
                }
        } while (!out.empty());
    }

  private:
    testing::NoLog log_;
    std::vector<std::unique_ptr<Core>> cores_;
    uint64_t now_us_ = 1'000'000 * kMs;  // hosts have been up for a while
};

}  // namespace

TEST_CASE("patience: follows what is late at once, and forgets it slowly") {
    Patience patience(500, 2000);
    CHECK(patience.timeout_us() == 500);
    patience.saw_delay(1, 100);
    CHECK(patience.timeout_us() == 700);
    patience.saw_delay(2, 10);
    CHECK(patience.timeout_us() == 700);
    patience.saw_delay(10'000'001, 0);
    CHECK(patience.timeout_us() == 600);
    patience.saw_delay(10'000'002, 1'000'000);
    CHECK(patience.timeout_us() == 2000);
}

TEST_CASE("patience: a stall of all replicas is no reason to elect") {
    for (const uint64_t stall : {300 * kMs, 600 * kMs, 1200 * kMs, 30'000 * kMs})
        for (ReplicaId first = 1; first <= 3; ++first) {
            Cluster cluster;
            const View view = cluster.core(1).view();
            REQUIRE(cluster.leader() != kNoReplica);
            cluster.pass(stall);
            for (ReplicaId offset = 0; offset < 3; ++offset) {  // whoever wakes first has heard nobody yet
                const ReplicaId id = (first - 1 + offset) % 3 + 1;
                cluster.core(id).advance_clock(cluster.now_us());
                cluster.core(id).held_up(stall - 100 * kMs);
                cluster.turn(id);
            }
            cluster.run(3000 * kMs);
            CHECK(cluster.core(1).view() == view);
        }
}

TEST_CASE("patience: a silent leader is replaced in time on a quiet machine") {
    Cluster cluster;
    const ReplicaId old = cluster.leader();
    const View view = cluster.core(old).view();
    cluster.run(710 * kMs, old);  // a heartbeat's worth of it was over before
    bool replaced = false;
    for (ReplicaId id = 1; id <= 3; ++id)
        replaced |= id != old && cluster.core(id).role() == Role::kLeader && cluster.core(id).view() > view;
    CHECK(replaced);
}

TEST_CASE("patience: heartbeats that come late lengthen the timeout, up to its bound") {
    Cluster cluster;
    const ReplicaId leader = cluster.leader();
    const ReplicaId follower = leader % 3 + 1;
    const View view = cluster.core(leader).view();
    CHECK(cluster.core(follower).election_timeout_us() == 500 * kMs);
    cluster.run(300 * kMs, leader);
    cluster.run(100 * kMs);
    CHECK(cluster.core(follower).election_timeout_us() > 900 * kMs);
    cluster.run(800 * kMs, leader);
    CHECK(cluster.core(follower).view() == view);
    cluster.run(200 * kMs);
    CHECK(cluster.core(follower).election_timeout_us() <= 2000 * kMs);
}

TEST_CASE("patience: while a sync is under way a replica says no more than it has said") {
    Cluster cluster;
    const ReplicaId leader = cluster.leader();
    const ReplicaId follower = leader % 3 + 1;
    std::string value = "x";
    REQUIRE(cluster.core(leader).propose(value));
    Outbox out;
    cluster.core(leader).take_outbox(out);
    REQUIRE_FALSE(out.persist.empty());
    const uint64_t before = cluster.core(leader).decided_index();
    std::vector<Message> said;
    cluster.core(leader).still_here(said);
    REQUIRE(said.size() == 2);
    CHECK(said[0].type == MessageType::kCommit);
    CHECK(said[0].commit == before);
    for (const Message& message : out.send_now)
        if (message.to == follower) cluster.core(follower).step(message);
    Outbox follows;
    cluster.core(follower).take_outbox(follows);
    REQUIRE_FALSE(follows.persist.empty());
    said.clear();
    cluster.core(follower).still_here(said);
    REQUIRE(said.size() == 1);
    CHECK(said[0].type == MessageType::kAck);
    CHECK(said[0].index == cluster.core(follower).durable_index());
    CHECK(said[0].index == before);
}

TEST_CASE("patience: one that is barred from its start leaves leading to others, as if barred just then") {
    for (ReplicaId barred = 1; barred <= 3; ++barred) {
        Cluster cluster(barred);
        REQUIRE(cluster.leader() != kNoReplica);
        CHECK(cluster.leader() != barred);
        cluster.run(5000 * kMs);
        CHECK(cluster.leader() != barred);
        CHECK(view_counter(cluster.core(1).view()) == 1);  // nor has it led for a moment
    }
}
