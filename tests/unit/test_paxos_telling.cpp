// When followers are told of a decision: at once where somebody waits for it, else with the next entry.
#include <catch2/catch.hpp>
#include <deque>
#include <memory>
#include <vector>

#include "paxos/core/core.hpp"
#include "tests/unit/test_paxos_no_log.hpp"

using namespace crane::paxos;

namespace {

constexpr uint64_t kMs = 1000;

// Three replicas whose syncs take no time. Counts what the leader says of decisions by themselves.
class Cluster {
  public:
    Cluster() {
        for (ReplicaId id = 1; id <= 3; ++id) {
            CoreConfig config;
            config.self = id;
            for (ReplicaId member = 1; member <= 3; ++member) config.members.add({member, true, ""});
            config.seed = id;
            cores_.push_back(std::make_unique<Core>(config, StoredState{}, log_));
        }
        while (leader() == nullptr) pass(kMs);
        pass(200 * kMs);  // its first entry is known everywhere
        words_ = 0;
    }
    Core* leader() {
        for (const auto& core : cores_)
            if (core->role() == Role::kLeader) return core.get();
        return nullptr;
    }
    uint64_t told() {  // to whoever knows least
        uint64_t least = UINT64_MAX;
        for (const auto& core : cores_) least = std::min(least, core->decided_index());
        return least;
    }
    void propose() {
        std::string value = "value";
        REQUIRE(leader()->propose(value));
        settle();
    }
    void pass(uint64_t us) {
        now_us_ += us;
        settle();
    }
    int words() const { return words_; }

  private:
    void settle() {
        for (bool again = true; again;) {
            again = false;
            for (const auto& core : cores_) {
                core->tick(now_us_);
                Outbox out;
                core->take_outbox(out);
                if (!out.persist.empty()) core->persisted();
                again |= !out.empty();
                for (const auto* messages : {&out.send_now, &out.send_after})
                    for (const Message& message : *messages) deliver(message);
            }
        }
    }
    void deliver(const Message& message) {
        words_ += message.type == MessageType::kCommit && !message.wants_ack;
        cores_[message.to - 1]->step(message);
    }

    testing::NoLog log_;
    std::vector<std::unique_ptr<Core>> cores_;
    uint64_t now_us_ = 1'000'000 * kMs;
    int words_ = 0;
};

}  // namespace

TEST_CASE("telling: where others wait, each decision is told at once, by a message of its own") {
    Cluster cluster;
    for (int turn = 1; turn <= 5; ++turn) {
        cluster.propose();
        CHECK(cluster.told() == cluster.leader()->decided_index());
        CHECK(cluster.words() == 2 * turn);
    }
}

TEST_CASE("telling: where nobody waits, a decision rides on the next entry, or is told a little later") {
    Cluster cluster;
    cluster.leader()->set_decisions_awaited(false);
    const uint64_t before = cluster.leader()->decided_index();
    for (uint64_t turn = 1; turn <= 5; ++turn) {
        cluster.propose();
        CHECK(cluster.leader()->decided_index() == before + turn);
        CHECK(cluster.told() == before + turn - 1);
    }
    CHECK(cluster.words() == 0);
    cluster.pass(kMs);
    CHECK(cluster.told() == before + 5);
    CHECK(cluster.words() == 2);
}

TEST_CASE("telling: whoever begins to wait is told at once") {
    Cluster cluster;
    cluster.leader()->set_decisions_awaited(false);
    cluster.propose();
    CHECK(cluster.told() < cluster.leader()->decided_index());
    cluster.leader()->set_decisions_awaited(true);
    cluster.pass(0);
    CHECK(cluster.told() == cluster.leader()->decided_index());
}
