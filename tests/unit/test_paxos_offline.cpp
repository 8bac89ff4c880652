// What an operator does to the log of a replica that is not running.
#include <catch2/catch.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "paxos/store/offline.hpp"
#include "test_paxos_directory.hpp"

using namespace crane::paxos;
using namespace crane::paxos::testing;

namespace {

Membership three() {
    Membership members;
    for (ReplicaId id : {1, 2, 3}) members.add({id, true, ""});
    return members;
}

// Writes a log of one view: its NewView entry, then values. `chain` may spoil one entry's chain.
void write_log(BdbStore& store, uint64_t values, uint64_t spoilt = 0) {
    PersistBatch batch;
    batch.has_view = true;
    batch.view = make_view(1, 1);
    batch.memberships = {{0, three()}};
    uint64_t chain = 0;
    for (uint64_t index = 1; index <= values + 1; ++index) {
        Entry entry;
        entry.index = index;
        entry.view = batch.view;
        entry.kind = index == 1 ? EntryKind::kNewView : EntryKind::kValue;
        entry.value = std::make_shared<const std::string>(
            index == 1 ? "" : std::string(50, static_cast<char>('a' + index % 26)));
        entry.chain = chain_hash(chain, entry) ^ (index == spoilt ? 1 : 0);
        chain = entry.chain;
        batch.append.push_back(entry);
    }
    store.persist(batch);
}

void overwrite(const std::string& path, const std::string& what) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    const size_t place = bytes.find(what);
    REQUIRE(place != std::string::npos);
    file.clear();
    file.seekp(static_cast<std::streamoff>(place));
    file.put('!');
}

}  // namespace

TEST_CASE("paxos offline: a sound log is found sound") {
    const TemporaryDirectory directory;
    {
        BdbStore store(options(directory.path));
        write_log(store, 600);
        REQUIRE_THROWS_WITH(verify_store(directory.path), Catch::Contains("in use"));
    }
    const StoreReport report = verify_store(directory.path);
    REQUIRE(report.problems == std::vector<std::string>{});
    REQUIRE(report.entries == 601);
    REQUIRE(report.bytes == 600 * 50);
    REQUIRE(report.views == 1);
    REQUIRE(report.replica == 2);
    REQUIRE(report.state.end.index == 601);
    REQUIRE_THROWS_WITH(verify_store(directory.path + "/no"), Catch::Contains("/no"));
}

TEST_CASE("paxos offline: a sound log that was cut behind a checkpoint is found sound") {
    const TemporaryDirectory directory;
    {
        BdbStore store(options(directory.path));
        write_log(store, 5);
        PersistBatch batch;
        const LogPosition end = store.load().end;
        Entry entry;
        entry.index = end.index + 1;
        entry.view = batch.view = make_view(2, 1);
        entry.kind = EntryKind::kNewView;
        entry.value = std::make_shared<const std::string>();
        entry.chain = chain_hash(end.chain, entry);
        batch.has_view = true;
        batch.append = {entry};
        store.persist(batch);
        store.truncate_front(end);  // so that the first entry kept begins a view
    }
    const StoreReport report = verify_store(directory.path);
    REQUIRE(report.problems == std::vector<std::string>{});
    REQUIRE(report.entries == 1);
    REQUIRE(report.views == 1);
}

TEST_CASE("paxos offline: damage is found and named, also far from the log's end") {
    const TemporaryDirectory directory;
    SECTION("in a record") {
        {
            BdbStore store(options(directory.path));
            write_log(store, 600);
        }
        overwrite(directory.path + "/log.0000000001", std::string(50, 'c'));  // of an early entry
        const StoreReport report = verify_store(directory.path);
        REQUIRE_FALSE(report.problems.empty());
        REQUIRE_THAT(report.problems.front(), Catch::Contains("damaged"));
    }
    SECTION("in the hash chain") {
        {
            BdbStore store(options(directory.path));
            write_log(store, 600, 30);
        }
        const StoreReport report = verify_store(directory.path);
        REQUIRE(report.problems.size() == 1);
        REQUIRE_THAT(report.problems.front(), Catch::Contains("entry 30@1.1 does not continue 29@1.1"));
    }
}

TEST_CASE("paxos offline: one replica goes on as the only member, and never again with those it left") {
    const TemporaryDirectory directory;
    {
        BdbStore store(options(directory.path));
        write_log(store, 5);
    }
    const ForcedCluster forced = force_new_cluster(directory.path);
    REQUIRE(forced.before.end.index == 6);
    REQUIRE(forced.entry.position().index == 7);
    REQUIRE(forced.entry.view == make_view(2, 2));
    BdbStore store(options(directory.path));
    const StoredState state = store.load();
    REQUIRE(state.view == make_view(2, 2));
    REQUIRE(state.commit == 7);
    REQUIRE(state.end == forced.entry.position());
    REQUIRE(state.memberships.size() == 1);
    const Membership& members = state.memberships.back().membership;
    REQUIRE(members.members.size() == 1);
    REQUIRE(members.voter(2));
    REQUIRE(members.removed(3));
    REQUIRE_FALSE(members.removed(4));
}

TEST_CASE("paxos offline: the only member is found where the others found it") {
    const TemporaryDirectory directory;
    {
        BdbStore store(options(directory.path));
        write_log(store, 5);
        Membership members;
        for (const ReplicaId id : {1u, 2u, 3u})
            members.add({id, true, "10.0.0." + std::to_string(id) + ":7400"});
        PersistBatch batch;
        batch.memberships = {{3, members}};
        store.persist(batch);
    }
    force_new_cluster(directory.path);
    BdbStore store(options(directory.path));
    REQUIRE(store.load().memberships.back().membership.find(2)->address == "10.0.0.2:7400");
}

TEST_CASE("paxos offline: a log that was still catching up is not taken for a cluster's") {
    const TemporaryDirectory directory;
    {
        StoreOptions replaced = options(directory.path);
        replaced.rejoin = true;
        BdbStore store(replaced);
        write_log(store, 5);
    }
    REQUIRE_THROWS_WITH(force_new_cluster(directory.path), Catch::Contains("not caught up"));
    const StoreReport report = verify_store(directory.path);
    REQUIRE(report.problems.empty());
    REQUIRE(report.state.rejoining);
}

TEST_CASE(
    "paxos offline: no cluster is made of a replica that did not vote, unless its removal may be undecided") {
    const auto members = [](std::initializer_list<ReplicaId> voters, ReplicaId learner) {
        Membership out;
        for (const ReplicaId id : voters) out.add({id, true, ""});
        if (learner != kNoReplica) out.add({learner, false, ""});
        return out;
    };
    StoredState state;
    REQUIRE(why_not_forced(3, state).empty());  // as it was founded
    state.memberships = {{0, members({1, 2}, 3)}};
    REQUIRE_THAT(why_not_forced(3, state), Catch::Contains("does not vote"));
    REQUIRE(why_not_forced(2, state).empty());
    state.memberships = {{0, members({1, 2, 3}, kNoReplica)}, {9, members({1, 2}, kNoReplica)}};
    state.commit = 8;
    REQUIRE(why_not_forced(3, state).empty());
    state.commit = 9;
    REQUIRE_THAT(why_not_forced(3, state), Catch::Contains("does not vote"));
    state.rejoining = true;
    REQUIRE_THAT(why_not_forced(1, state), Catch::Contains("not caught up"));
}
