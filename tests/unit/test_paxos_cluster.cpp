// The protocol under faults: many short simulated lives, and the named situations.
#include <catch2/catch.hpp>

#include "test_amount.hpp"
#include "test_paxos_simulation.hpp"

using namespace crane::paxos;
using namespace crane::paxos::simulation;

namespace {

constexpr uint64_t kSecondUs = 1'000'000;

Faults harsh(uint64_t seed) {
    Faults faults;
    faults.loss = static_cast<double>(seed % 4) * 0.1;
    faults.duplication = static_cast<double>(seed % 3) * 0.15;
    faults.max_delay_us = 1'000 + seed % 5 * 4'000;
    faults.crash_per_s = static_cast<double>(seed % 3) * 3;
    faults.partition_per_s = static_cast<double>(seed % 5);
    faults.upheaval_per_s = 5;
    faults.crash_in_turn = seed % 2 == 0 ? 0.01 : 0;
    return faults;
}

// A fresh cluster that has a leader and has decided something.
void settle(Cluster& cluster) {
    cluster.run(kSecondUs, Faults{});
    REQUIRE(cluster.violation() == "");
    REQUIRE(cluster.leader() != kNoReplica);
    REQUIRE(cluster.decided() > 10);
}

// One life of a cluster: faults, then none, then silence. Returns the crashes.
unsigned live_and_recover(unsigned replicas, uint64_t seed, double lost_disk = 0) {
    INFO("replicas " << replicas << " seed " << seed);
    Cluster cluster(replicas, seed * 1000 + replicas);
    Faults faults = harsh(seed);
    faults.lost_disk = lost_disk;
    cluster.run(2 * kSecondUs, faults);
    REQUIRE(cluster.violation() == "");
    const uint64_t before = cluster.decided();
    cluster.heal();
    cluster.run(2 * kSecondUs, Faults{});
    REQUIRE(cluster.violation() == "");
    REQUIRE(cluster.decided() > before + 100);
    cluster.proposal_interval_us = kSecondUs * 100;
    cluster.run(kSecondUs, Faults{});
    REQUIRE(cluster.violation() == "");
    for (ReplicaId id = 1; id <= replicas; ++id) UNSCOPED_INFO(cluster.core(id).describe());
    REQUIRE(cluster.settled());
    return cluster.crashes();
}

}  // namespace

TEST_CASE("paxos: a healthy cluster decides, on one to seven replicas") {
    for (unsigned replicas : {1u, 3u, 5u, 7u}) {
        Cluster cluster(replicas, replicas);
        settle(cluster);
        const View view = cluster.core(cluster.leader()).view();
        cluster.run(2 * kSecondUs, Faults{});
        REQUIRE(cluster.violation() == "");
        REQUIRE(cluster.core(cluster.leader()).view() == view);
        REQUIRE(cluster.decided() > 2000);
    }
}

TEST_CASE("paxos: safe under faults, live once they stop") {
    const uint64_t seeds = crane::test::rounds(12, 80);
    unsigned crashes = 0;
    for (uint64_t seed = 1; seed <= seeds; ++seed) {
        crashes += live_and_recover(1, seed);
        crashes += live_and_recover(3, seed);
        if (seed % 2 == 0) crashes += live_and_recover(5, seed);
    }
    REQUIRE(crashes > 3 * seeds);
}

TEST_CASE("paxos: safe and live when replicas lose their disks one at a time") {
    for (uint64_t seed = 1; seed <= crane::test::rounds(8, 40); ++seed)
        live_and_recover(seed % 4 == 0 ? 5 : 3, seed, 0.3);
}

TEST_CASE("paxos: a lost disk that nobody was told of is noticed") {
    const uint64_t seeds = crane::test::rounds(16, 60);
    unsigned noticed = 0;
    for (uint64_t seed = 1; seed <= seeds; ++seed) {
        Cluster cluster(3, seed);
        Faults faults;
        faults.crash_per_s = 20;
        faults.partition_per_s = 5;
        faults.lost_disk = 0.5;
        faults.rejoin_unmarked = true;
        cluster.run(3 * kSecondUs, faults);
        if (!cluster.violation().empty()) ++noticed;
    }
    REQUIRE(noticed > seeds / 12);
}

TEST_CASE("paxos: the same, for a long time", "[.long]") {
    for (uint64_t seed = 1'000; seed < 4'000; ++seed)
        live_and_recover(seed % 4 == 0 ? 5 : 3, seed, seed % 2 == 0 ? 0.2 : 0);
}

TEST_CASE("paxos: a disk that forgets what it had acknowledged is noticed") {
    // The canary: if the simulator could not see this, it could not see anything.
    unsigned noticed = 0;
    for (uint64_t seed = 1; seed <= 30; ++seed) {
        Cluster cluster(3, seed);
        Faults faults;
        faults.crash_per_s = 20;
        faults.partition_per_s = 3;
        faults.lying_disks = true;
        cluster.run(3 * kSecondUs, faults);
        if (!cluster.violation().empty()) ++noticed;
    }
    REQUIRE(noticed > 5);
}

TEST_CASE("paxos: the others go on when the leader dies, and it catches up from their log") {
    Cluster cluster(3, 7);
    settle(cluster);
    const ReplicaId old = cluster.leader();
    const uint64_t before = cluster.decided();
    cluster.crash(old);
    cluster.run(kSecondUs, Faults{});
    REQUIRE(cluster.leader() != kNoReplica);
    REQUIRE(cluster.leader() != old);
    REQUIRE(cluster.decided() > before + 100);
    cluster.restart(old);
    cluster.run(kSecondUs, Faults{});
    cluster.proposal_interval_us = 100 * kSecondUs;
    cluster.run(kSecondUs, Faults{});
    REQUIRE(cluster.violation() == "");
    REQUIRE(cluster.settled());
}

TEST_CASE("paxos: without a majority nothing is decided, and the leader steps down") {
    Cluster cluster(5, 3);
    settle(cluster);
    const ReplicaId leader = cluster.leader();
    for (ReplicaId id = 1, crashed = 0; crashed < 3; ++id)
        if (id != leader) {
            cluster.crash(id);
            ++crashed;
        }
    cluster.run(kSecondUs / 10, Faults{});
    const uint64_t stuck = cluster.decided();
    cluster.run(kSecondUs, Faults{});
    REQUIRE(cluster.decided() == stuck);
    REQUIRE(cluster.leader() == kNoReplica);
    cluster.heal();
    cluster.run(kSecondUs, Faults{});
    REQUIRE(cluster.violation() == "");
    REQUIRE(cluster.decided() > stuck);
}

TEST_CASE("paxos: a replica cut off from the leader alone does not disturb the view") {
    Cluster cluster(3, 11);
    settle(cluster);
    const ReplicaId leader = cluster.leader();
    const View view = cluster.core(leader).view();
    const ReplicaId lonely = leader % 3 + 1;
    SECTION("both ways") {
        cluster.cut(leader, lonely);
        cluster.cut(lonely, leader);
    }
    SECTION("it hears nothing, but is heard") {
        cluster.cut(leader, lonely);
    }
    SECTION("isolated and back") {
        cluster.isolate(lonely);
    }
    cluster.run(3 * kSecondUs, Faults{});
    cluster.reconnect();
    cluster.run(kSecondUs, Faults{});
    REQUIRE(cluster.violation() == "");
    REQUIRE(cluster.leader() == leader);
    REQUIRE(cluster.core(leader).view() == view);
}

TEST_CASE("paxos: a view that cannot be, told by one member, stops no later election") {
    Cluster cluster(3, 11);
    settle(cluster);
    for (ReplicaId id = 1; id <= 3; ++id) {
        for (const MessageType type :
             {MessageType::kPreVoteReply, MessageType::kViewChangeReply, MessageType::kAck,
              MessageType::kPreVote, MessageType::kViewChange, MessageType::kCommit}) {
            Message absurd;
            absurd.type = type;
            absurd.from = id % 3 + 1;
            absurd.to = id;
            absurd.view = type == MessageType::kAck || type == MessageType::kPreVoteReply
                              ? cluster.core(id).view()
                              : make_view(kMaxViewCounter, absurd.from);
            absurd.promised = make_view(kMaxViewCounter, absurd.from);
            cluster.core(id).step(absurd);
            cluster.act(id);
        }
        REQUIRE(cluster.core(id).stats().absurd_views == 6);
    }
    const ReplicaId first = cluster.leader();
    const uint64_t before = cluster.decided();
    cluster.crash(first);
    cluster.run(2 * kSecondUs, Faults{});
    REQUIRE(cluster.violation() == "");
    REQUIRE(cluster.leader() != first);
    REQUIRE(cluster.decided() > before + 10);
    REQUIRE(view_counter(cluster.core(cluster.leader()).view()) < 100);
}

TEST_CASE("paxos: leadership moves on request, without an election timeout") {
    Cluster cluster(3, 5);
    settle(cluster);
    const ReplicaId old = cluster.leader();
    const ReplicaId next = old % 3 + 1;
    cluster.core(old).transfer_leadership(next);
    REQUIRE_FALSE(cluster.core(old).can_propose());
    cluster.act(old);
    cluster.run(40'000, Faults{});  // less than the timeout of 60 ms
    REQUIRE(cluster.violation() == "");
    REQUIRE(cluster.leader() == next);
}

TEST_CASE("paxos: a transfer to a dead replica is given up") {
    Cluster cluster(3, 6);
    settle(cluster);
    const ReplicaId leader = cluster.leader();
    const ReplicaId dead = leader % 3 + 1;
    cluster.crash(dead);
    cluster.core(leader).transfer_leadership(dead);
    cluster.act(leader);
    REQUIRE_FALSE(cluster.core(leader).can_propose());
    cluster.run(kSecondUs / 2, Faults{});
    REQUIRE(cluster.leader() == leader);
    REQUIRE(cluster.core(leader).can_propose());
}

TEST_CASE("paxos: a leader that ends in order hands over to the one that may lead, without a timeout") {
    for (const ReplicaId offset : {1, 2}) {
        Cluster cluster(3, 8);
        settle(cluster);
        const ReplicaId old = cluster.leader();
        const ReplicaId barred = (old + offset - 1) % 3 + 1;
        cluster.core(barred).set_eligible(false);
        cluster.shut_down(old);
        cluster.run(30'000, Faults{});  // the timeout is 60 ms
        INFO(cluster.core(barred).describe());
        REQUIRE(cluster.violation() == "");
        REQUIRE_FALSE(cluster.up(old));
        REQUIRE(cluster.leader() == 6 - old - barred);
    }
}

TEST_CASE("paxos: backups learn a decision at once when nothing follows it") {
    Cluster cluster(3, 9);
    cluster.proposal_interval_us = 100 * kSecondUs;
    cluster.run(kSecondUs, Faults{});
    const ReplicaId leader = cluster.leader();
    REQUIRE(leader != kNoReplica);
    const uint64_t before = cluster.decided();
    Faults prompt;
    prompt.min_delay_us = prompt.max_delay_us = 100;
    REQUIRE(cluster.propose(leader));
    cluster.run(301, prompt);  // there (sent before with up to 3 ms), back, and the news
    cluster.run(6'000, prompt);
    REQUIRE(cluster.decided() == before + 1);
    REQUIRE(cluster.settled());
}

TEST_CASE("paxos: the log is cut behind a checkpoint, and a peer that needs more is named") {
    Cluster cluster(3, 13);
    settle(cluster);
    const ReplicaId leader = cluster.leader();
    const ReplicaId behind = leader % 3 + 1;
    cluster.crash(behind);
    cluster.run(kSecondUs, Faults{});
    const uint64_t upto = cluster.decided() - 5;
    cluster.core(leader).hold_checkpoint(upto);
    cluster.run(kSecondUs / 2, Faults{});
    REQUIRE(cluster.core(leader).log_start().index == 0);
    cluster.core(6 - leader - behind).hold_checkpoint(upto);
    cluster.run(kSecondUs / 2, Faults{});
    REQUIRE(cluster.core(leader).log_start().index == upto);
    REQUIRE(upto > cluster.disk(behind).last_index());
    cluster.restart(behind);
    cluster.run(kSecondUs / 2, Faults{});
    REQUIRE(cluster.violation() == "");
    REQUIRE(cluster.leader() == leader);
    REQUIRE(cluster.core(leader).describe().find("NEEDS A CHECKPOINT") != std::string::npos);
}
