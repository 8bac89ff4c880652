// Which starts of which databases count: the table that is decided, and what a core makes of it.
#include <catch2/catch.hpp>

#include "paxos/core/incarnation.hpp"
#include "test_paxos_simulation.hpp"

using namespace crane::paxos;
using namespace crane::paxos::simulation;

namespace {

Origin start_of(uint64_t database, uint64_t start, uint64_t run) {
    Origin origin;
    origin.database = database;
    origin.start = start;
    origin.run = run;
    return origin;
}

// Replica 1 of three, and what it says.
struct One {
    MemoryStorage disk;
    Core core;
    Outbox out;
    std::vector<Message> said;
    uint64_t chain = 0;  // of what take() gave

    static CoreConfig config() {
        CoreConfig config;
        config.self = 1;
        config.members = voters({1, 2, 3});
        config.run = 11;
        config.max_inflight_entries = 8;
        return config;
    }
    explicit One(const StoredState& stored = {}) : core(config(), stored, disk) { core.tick(1); }

    void turn() {
        do {
            core.take_outbox(out);
            for (Message& message : out.send_now) said.push_back(std::move(message));
            if (!out.persist.empty()) {
                disk.persist(out.persist);
                core.persisted();
            }
            for (Message& message : out.send_after) said.push_back(std::move(message));
        } while (!out.empty());
    }

    static Message from_peer(MessageType type, const Origin& origin, ReplicaId from, View view,
                             uint64_t index) {
        Message message;
        message.type = type;
        message.from = from;
        message.to = 1;
        message.ok = true;
        message.view = message.promised = view;
        message.index = message.hint = index;
        message.origin = origin;
        return message;
    }
    void hear(const Message& message) {
        core.step(message);
        turn();
    }
    void hear(MessageType type, const Origin& origin, ReplicaId from, View view, uint64_t index = 0) {
        hear(from_peer(type, origin, from, view, index));
    }

    // As a backup, from replica 2: the next entry says that `replica` has started so.
    void take(ReplicaId replica, const Origin& start) {
        Incarnations table;
        REQUIRE(table.record(replica, start));
        Entry entry;
        entry.index = core.last_index() + 1;
        entry.view = make_view(1, 2);
        entry.kind = EntryKind::kStart;
        std::string value;
        encode(table, value);
        entry.value = std::make_shared<const std::string>(value);
        entry.chain = chain_hash(chain, entry);
        Message prepare;
        prepare.type = MessageType::kPrepare;
        prepare.from = 2;
        prepare.to = 1;
        prepare.view = prepare.promised = prepare.index_view = entry.view;
        if (entry.index == 1) prepare.index_view = 0;
        prepare.index = entry.index - 1;
        prepare.chain = chain;
        prepare.entries = {entry};
        chain = entry.chain;
        core.step(prepare);
        turn();
    }

    // With the vote of replica 2; nothing is decided yet.
    void lead(const Origin& voter) {
        core.tick(2'000'000);
        turn();
        hear(MessageType::kPreVoteReply, voter, 2, make_view(1, 1));
        hear(MessageType::kViewChangeReply, voter, 2, core.view());
        REQUIRE(core.role() == Role::kLeader);
    }
    void ack(ReplicaId from, const Origin& origin, uint64_t index) {
        hear(MessageType::kAck, origin, from, core.view(), index);
    }
    // Not even what is before `index` is there, of which the sender has nothing.
    void reject(ReplicaId from, const Origin& origin, uint64_t index) {
        Message message = from_peer(MessageType::kAck, origin, from, core.view(), index);
        message.ok = false;
        message.hint = 0;
        hear(message);
    }
    // Decided with the acknowledgements of replica `from`.
    void decide(ReplicaId from, const Origin& origin, int values) {
        for (int i = 0; i < values; ++i) {
            std::string value = "a";
            REQUIRE(core.propose(value));
            turn();
            ack_all(from, origin);
        }
    }
    // The next start of a replica, after one in which it acknowledged all that there is.
    Origin next_start(const Origin& before) const {
        Origin next = before;
        ++next.start;
        ++next.run;
        next.previous_runs = {before.run};
        next.view = core.view();
        next.index = core.last_index();
        return next;
    }
    // Both others' starts are decided, with the acknowledgements of `second`; the third has nothing yet.
    void lead_three(const Origin& second, const Origin& third) {
        lead(second);
        ack_all(2, second);
        ack(3, third, 0);
        ack_all(2, second);
        REQUIRE(core.starts().names(3, third));
    }
    // Until `from` has acknowledged all.
    void ack_all(ReplicaId from, const Origin& origin) {
        while (core.decided_index() < core.last_index()) {
            const uint64_t before = core.decided_index();
            ack(from, origin, core.last_index());
            REQUIRE(core.decided_index() > before);
        }
        ack(from, origin, core.last_index());
    }
    bool disowned(ReplicaId peer, uint64_t run) const {
        for (const Message& message : said)
            if (message.type == MessageType::kDisown && message.to == peer && message.hint == run)
                return true;
        return false;
    }
};

StoredState knowing(ReplicaId replica, const Origin& origin) {
    StoredState stored;
    stored.known_starts.table.record(replica, origin);
    return stored;
}

}  // namespace

TEST_CASE("paxos starts: a table tells older, second and unannounced databases") {
    Incarnations table;
    CHECK(table.judge(2, start_of(7, 3, 30)) == Copy::kCurrent);
    REQUIRE(table.record(2, start_of(7, 3, 30)));
    CHECK_FALSE(table.record(2, start_of(7, 3, 30)));
    CHECK(table.judge(2, start_of(7, 2, 20)) == Copy::kOlder);
    CHECK(table.judge(2, start_of(7, 3, 31)) == Copy::kSecond);
    CHECK(table.judge(2, start_of(8, 1, 40)) == Copy::kUnannounced);
    CHECK(table.judge(3, start_of(8, 1, 40)) == Copy::kCurrent);
    Origin rebuilt = start_of(8, 1, 40);
    rebuilt.replaces = true;
    REQUIRE(table.record(2, rebuilt));
    CHECK(table.judge(2, start_of(7, 9, 50)) == Copy::kOlder);
}

TEST_CASE("paxos starts: a copy that was started often enough does not follow the one that is known") {
    Incarnations table;
    REQUIRE(table.record(2, start_of(7, 3, 30)));
    Origin copy = start_of(7, 5, 51);
    copy.previous_runs = {41, 31, 20};  // start 3 was run 31 there
    CHECK(table.judge(2, copy) == Copy::kOlder);
    Origin next = start_of(7, 5, 50);
    next.previous_runs = {40, 30, 20};
    CHECK(table.judge(2, next) == Copy::kCurrent);
}

TEST_CASE("paxos starts: what was known is not forgotten for an entry that knows less") {
    Incarnations table, less;
    REQUIRE(table.record(2, start_of(7, 3, 30)));
    REQUIRE(less.record(2, start_of(7, 2, 20)));
    REQUIRE(less.record(3, start_of(9, 1, 10)));
    CHECK_FALSE(table.learn(less));
    CHECK(table.judge(2, start_of(7, 2, 20)) == Copy::kOlder);
    CHECK(table.names(3, start_of(9, 1, 10)));
    REQUIRE(less.record(2, start_of(7, 4, 40)));
    CHECK(table.learn(less));
    std::string bytes;
    encode(table, bytes);
    Incarnations read;
    REQUIRE(decode(bytes, read));
    CHECK(read == table);
    CHECK_FALSE(decode(bytes + "x", read));
    CHECK_FALSE(decode(std::string_view(bytes).substr(0, bytes.size() - 1), read));
}

TEST_CASE("paxos starts: a replica that was itself started since neither helps nor believes an older copy") {
    One one(knowing(2, start_of(7, 3, 30)));
    one.core.tick(1'000'000);
    one.turn();
    one.said.clear();
    one.hear(MessageType::kViewChange, start_of(7, 3, 31), 2, make_view(5, 2), 100);
    CHECK(one.core.view() < make_view(5, 2));
    CHECK(one.disowned(2, 31));
    one.hear(MessageType::kPrepare, start_of(7, 2, 20), 2, make_view(5, 2));
    CHECK(one.core.leader() != 2);
    CHECK(one.disowned(2, 20));
    CHECK(one.core.describe().find("rejoin = true") != std::string::npos);
}

TEST_CASE("paxos starts: every start becomes an entry, and the second process of one does not count") {
    One one;
    one.lead(start_of(7, 1, 20));
    one.ack_all(2, start_of(7, 1, 20));
    CHECK(one.core.decided_index() == 2);  // NewView, Start
    REQUIRE(one.disk.last_index() == 2);
    std::vector<Entry> entries;
    one.disk.read(2, 2, 1, entries);
    CHECK(entries.front().kind == EntryKind::kStart);
    std::string value = "a";
    REQUIRE(one.core.propose(value));
    one.turn();
    one.ack(2, start_of(7, 1, 21), 3);
    CHECK(one.core.decided_index() == 2);
    CHECK(one.disowned(2, 21));
    one.ack(2, start_of(7, 1, 20), 3);
    CHECK(one.core.decided_index() == 3);
}

TEST_CASE("paxos starts: a new start counts at once where it is needed, and else when it is decided") {
    One one;
    one.lead(start_of(7, 1, 20));
    one.ack_all(2, start_of(7, 1, 20));
    const uint64_t before = one.core.decided_index();
    one.ack(3, start_of(9, 4, 30), before);  // becomes an entry
    REQUIRE(one.core.last_index() == before + 1);
    one.ack(3, start_of(9, 4, 30), before + 1);
    CHECK(one.core.decided_index() == before);  // replica 2 is there to decide it
    one.ack(2, start_of(7, 1, 20), before + 1);
    CHECK(one.core.decided_index() == before + 1);
    std::string value = "a";
    REQUIRE(one.core.propose(value));
    one.turn();
    one.ack(3, start_of(9, 4, 30), before + 2);
    CHECK(one.core.decided_index() == before + 2);

    one.core.advance_clock(2'400'000);  // replica 2 is silent
    REQUIRE(one.core.propose(value = "b"));
    one.turn();
    Origin next = start_of(9, 5, 31);
    next.view = one.core.view();
    next.index = before + 2;
    one.ack(3, next, before + 3);
    CHECK(one.core.decided_index() == before + 3);
}

TEST_CASE(
    "paxos starts: with one replica that needs a checkpoint, a new start of another one counts at once") {
    One one;
    const Origin second = start_of(7, 1, 20), third = start_of(9, 1, 30);
    one.lead_three(second, third);
    one.decide(2, second, 1);
    const uint64_t cut = one.core.decided_index();
    one.core.hold_checkpoint(cut);
    Message holds = One::from_peer(MessageType::kAck, second, 2, one.core.view(), cut);
    holds.checkpoint = cut;
    one.hear(holds);
    REQUIRE(one.core.log_start().index == cut);
    one.reject(3, third, cut);
    REQUIRE(one.core.needs_checkpoint(3));
    const Origin next = one.next_start(second);
    one.ack(2, next, cut);
    REQUIRE(one.core.last_index() == cut + 1);
    one.ack(2, next, cut + 1);
    CHECK(one.core.decided_index() == cut + 1);
    CHECK(one.core.starts().names(2, next));
}

TEST_CASE("paxos starts: with one replica far behind, a new start of another one counts at once") {
    One one;
    const Origin second = start_of(7, 1, 20), third = start_of(9, 1, 30);
    one.lead_three(second, third);
    one.decide(2, second, 12);  // more than the pipeline holds
    one.ack(3, third, 1);
    const uint64_t before = one.core.decided_index();
    const Origin next = one.next_start(second);
    one.ack(2, next, before);
    one.ack(2, next, before + 1);
    CHECK(one.core.decided_index() == before + 1);
}

TEST_CASE("paxos starts: a new start does not count while another replica is a little behind, or not known") {
    One one;
    const Origin second = start_of(7, 1, 20), third = start_of(9, 1, 30);
    one.lead_three(second, third);
    one.decide(2, second, 12);
    SECTION("a little behind") {
        one.ack(3, third, one.core.decided_index() - 4);
    }
    SECTION("not known, in a new view") {
        one.core.step_down();
        one.core.tick(6'000'000);
        one.turn();
        one.hear(MessageType::kPreVoteReply, second, 2, make_view(view_counter(one.core.view()) + 1, 1));
        one.hear(MessageType::kViewChangeReply, second, 2, one.core.view());
        REQUIRE(one.core.role() == Role::kLeader);
        one.ack_all(2, second);
        one.reject(3, third, one.core.last_index() - 1);
    }
    const uint64_t before = one.core.decided_index();
    const Origin next = one.next_start(second);
    one.ack(2, next, before);
    REQUIRE(one.core.last_index() == before + 1);
    one.ack(2, next, before + 1);
    CHECK(one.core.decided_index() == before);
    one.ack(3, third, before + 1);
    CHECK(one.core.decided_index() == before + 1);
}

TEST_CASE(
    "paxos starts: another database is believed when its process has taken what is new, not when it is "
    "late") {
    One one;
    const Origin first = start_of(7, 1, 20);
    one.lead(first);
    one.ack_all(2, first);
    const uint64_t before = one.core.last_index();
    Origin rebuilt = start_of(8, 1, 21), between = start_of(6, 1, 19);
    rebuilt.replaces = between.replaces = true;
    one.ack(2, rebuilt, before);
    CHECK(one.core.last_index() == before + 1);  // something to take
    CHECK(one.core.starts().names(2, first));
    one.ack(2, rebuilt, before + 1);
    one.ack(2, rebuilt, before + 1);
    CHECK(one.core.starts().names(2, rebuilt));
    one.ack(2, between, before);  // of a process that is gone
    one.ack(2, between, before + 1);
    CHECK(one.core.starts().names(2, rebuilt));
    one.ack(2, rebuilt, one.core.last_index());
    CHECK_FALSE(one.disowned(2, 21));
    one.ack(2, first, before);
    CHECK(one.disowned(2, 20));
}

TEST_CASE("paxos starts: a replica that finds a later start of its own in the log knows that it is a copy") {
    StoredState stored;
    stored.database = 7;
    stored.starts = 3;
    One one(stored);
    one.take(1, start_of(7, 3, 99));
    CHECK(one.core.disowned() == Copy::kSecond);
}

TEST_CASE("paxos starts: a backup drops its accusation when the accused begins anew, and not before") {
    StoredState stored = knowing(3, start_of(7, 3, 30));
    One one(stored);
    one.hear(MessageType::kAck, start_of(7, 2, 20), 3, make_view(1, 2));
    REQUIRE(one.core.stats().disowned_from == 3);
    one.take(1, start_of(9, 1, 99));
    CHECK(one.core.stats().disowned_from == 3);
    Origin rebuilt = start_of(8, 1, 40);
    rebuilt.replaces = true;
    one.take(3, rebuilt);
    CHECK(one.core.stats().disowned_from == kNoReplica);
    CHECK(one.core.describe().find("REFUSED") == std::string::npos);
}
