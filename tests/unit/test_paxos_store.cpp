// The Berkeley DB store: what is on disk after closing and after a crash.
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "paxos/store/offline.hpp"
#include "test_paxos_store_files.hpp"

using namespace crane::paxos;
using namespace crane::paxos::testing;
namespace fs = std::filesystem;

TEST_CASE("paxos store: what was persisted is there again") {
    const TemporaryDirectory directory;
    const View view = make_view(4, 2);
    LogPosition end;
    {
        BdbStore store(options(directory.path + "/not/yet/there"));
        REQUIRE(store.load().end.index == 0);
        Writer writer{store, {}};
        writer.promise(view);
        writer.append(view, 10);
        writer.append(view, 3, 70'000);
        writer.append(view, 1, 0);
        end = writer.end;
        REQUIRE(store.syncs() == 5);  // the first made the state record
    }
    BdbStore store(options(directory.path + "/not/yet/there"));
    const StoredState state = store.load();
    REQUIRE(state.view == view);
    REQUIRE(state.end == end);
    REQUIRE(state.start == LogPosition{});
    std::vector<Entry> entries;
    store.read(1, 14, SIZE_MAX, entries);
    REQUIRE(entries.size() == 14);
    REQUIRE(*entries[11].value == std::string(70'000, 'a' + 12));
    REQUIRE(entries[13].chain == end.chain);
    entries.clear();
    store.read(11, 14, 100'000, entries);
    REQUIRE(entries.size() == 1);
}

TEST_CASE("paxos store: the largest value fits") {
    const TemporaryDirectory directory;
    {
        BdbStore store(options(directory.path));
        Writer writer{store, {}};
        writer.promise(make_view(1, 1));
        writer.append(make_view(1, 1), 1, kMaxValueBytes);
        writer.append(make_view(1, 1), 1);
    }
    BdbStore store(options(directory.path));
    REQUIRE(store.load().end.index == 2);
    std::vector<Entry> entries;
    store.read(1, 1, 1, entries);
    REQUIRE(entries.front().size_bytes() == kMaxValueBytes);
}

TEST_CASE("paxos store: a log starts anew behind a checkpoint that it does not reach") {
    const TemporaryDirectory directory;
    const LogPosition checkpoint{50, make_view(7, 3), 0x1234};
    {
        BdbStore store(options(directory.path));
        Writer writer{store, {}};
        writer.promise(make_view(1, 1));
        writer.append(make_view(1, 1), 5);
        const LogPosition known = writer.end;
        writer.append(make_view(1, 1), 55);
        store.restart_at(known, {}, {});  // contained: nothing changes
        REQUIRE(store.load().start == LogPosition{});
        store.restart_at(checkpoint, {}, {});  // another history
        REQUIRE(store.load().start == checkpoint);
    }
    BdbStore store(options(directory.path));
    const StoredState state = store.load();
    REQUIRE(state.start == checkpoint);
    REQUIRE(state.end == checkpoint);
    REQUIRE(state.view == checkpoint.view);
    REQUIRE(state.commit == 50);
    Writer writer{store, checkpoint};
    writer.append(make_view(7, 3), 3);
    REQUIRE(store.load().end.index == 53);
}

TEST_CASE("paxos store: a replaced database says so until told otherwise") {
    const TemporaryDirectory directory;
    StoreOptions rejoin = options(directory.path);
    rejoin.rejoin = true;
    { REQUIRE(BdbStore(rejoin).load().rejoining); }
    {
        BdbStore store(options(directory.path));
        REQUIRE(store.load().rejoining);
        PersistBatch batch;
        batch.rejoined = true;
        store.persist(batch);
    }
    REQUIRE_FALSE(BdbStore(rejoin).load().rejoining);
}

TEST_CASE("paxos store: starts are counted with their runs, also by a process that says nothing") {
    const TemporaryDirectory directory;
    uint64_t database = 0;
    for (uint64_t start = 1; start <= kMaxPreviousRuns + 3; ++start) {
        BdbStore store(options(directory.path));
        store.begin_run(100 + start);
        const StoredState state = store.load();
        if (start == 1) database = state.database;
        CHECK((state.database == database && database != 0));
        CHECK(state.starts == start);
        REQUIRE(state.previous_runs.size() == std::min<uint64_t>(start - 1, kMaxPreviousRuns));
        for (size_t i = 0; i < state.previous_runs.size(); ++i)
            CHECK(state.previous_runs[i] == 100 + start - 1 - i);
    }
}

TEST_CASE("paxos store: a database that was disowned is refused until it is all that is left") {
    const TemporaryDirectory directory;
    {
        BdbStore store(options(directory.path));
        Writer writer{store, {}};
        writer.promise(make_view(1, 1));
        writer.append(make_view(1, 1), 5);
        store.disown();
    }
    for (int attempt = 0; attempt < 2; ++attempt) {
        BdbStore store(options(directory.path));
        REQUIRE_THROWS_AS(store.begin_run(7), DisownedStore);
    }
    force_new_cluster(directory.path);
    BdbStore store(options(directory.path));
    REQUIRE_NOTHROW(store.begin_run(7));
}

TEST_CASE("paxos store: a tail of another view is replaced, in one step") {
    const TemporaryDirectory directory;
    LogPosition end;
    {
        BdbStore store(options(directory.path));
        Writer writer{store, {}};
        writer.promise(make_view(1, 1));
        writer.append(make_view(1, 1), 5);
        const LogPosition kept = writer.end;
        writer.append(make_view(1, 1), 10);
        writer.end = kept;
        PersistBatch batch;
        batch.has_view = true;
        batch.view = make_view(2, 3);
        batch.truncate_from = 6;
        for (int i = 0; i < 4; ++i) batch.append.push_back(writer.next(make_view(2, 3)));
        store.persist(batch);
        end = writer.end;
    }
    BdbStore store(options(directory.path));
    REQUIRE(store.load().end == end);
    REQUIRE(store.load().end.index == 9);
    std::vector<Entry> entries;
    REQUIRE_THROWS_AS(store.read(10, 10, 1, entries), StorageError);
}

TEST_CASE("paxos store: the front is cut in bounded portions") {
    const TemporaryDirectory directory;
    LogPosition start, end;
    {
        StoreOptions quick = options(directory.path);
        quick.durable = false;
        BdbStore store(quick);
        Writer writer{store, {}};
        writer.promise(make_view(1, 1));
        for (int i = 0; i < 2500; ++i) writer.append(make_view(1, 1), 1);
        start = writer.end;
        writer.append(make_view(1, 1), 20);
        end = writer.end;
        REQUIRE(store.truncate_front(start));
        REQUIRE(store.truncate_front(start));
        REQUIRE_FALSE(store.truncate_front(start));
    }
    BdbStore store(options(directory.path));
    REQUIRE(store.load().start == start);
    REQUIRE(store.load().end == end);
    std::vector<Entry> entries;
    store.read(2501, 2520, SIZE_MAX, entries);
    REQUIRE(entries.size() == 20);
}

TEST_CASE("paxos store: another cluster's or replica's database is refused") {
    const TemporaryDirectory directory;
    { BdbStore store(options(directory.path)); }
    StoreOptions foreign = options(directory.path);
    SECTION("cluster") {
        foreign.cluster_id = "cluster-b";
        REQUIRE_THROWS_WITH(BdbStore(foreign), Catch::Contains("belongs to cluster cluster-a"));
    }
    SECTION("replica") {
        foreign.replica = 3;
        REQUIRE_THROWS_WITH(BdbStore(foreign), Catch::Contains("belongs to replica 2"));
    }
}

TEST_CASE("paxos store: one process at a time") {
    const TemporaryDirectory directory;
    BdbStore store(options(directory.path));
    REQUIRE_THROWS_WITH(BdbStore(options(directory.path)), Catch::Contains("in use"));
}

TEST_CASE("paxos store: a killed process loses nothing it had acknowledged") {
    const TemporaryDirectory directory;
    const pid_t child = fork();
    if (child == 0) {
        BdbStore store(options(directory.path));
        Writer writer{store, {}};
        writer.promise(make_view(1, 1));
        for (int i = 0; i < 50; ++i) writer.append(make_view(1, 1), 2);
        _exit(0);  // no destructor: as if killed
    }
    int status = 1;
    REQUIRE(waitpid(child, &status, 0) == child);
    REQUIRE(status == 0);
    BdbStore store(options(directory.path));
    REQUIRE(store.load().end.index == 100);
    REQUIRE(store.load().view == make_view(1, 1));
}

TEST_CASE("paxos store: what is cut from the front is given back to the file system") {
    const TemporaryDirectory directory;
    StoreOptions small = options(directory.path);
    small.durable = false;
    small.sizes.log_buffer_bytes = 32u << 10;
    small.sizes.log_file_bytes = 256u << 10;
    const auto files = [&] {
        int count = 0;
        for (const auto& file : fs::directory_iterator(directory.path))
            count += file.path().filename().string().rfind("log.0", 0) == 0;
        return count;
    };
    LogPosition start, end;
    {
        BdbStore store(small);
        Writer writer{store, {}};
        writer.promise(make_view(1, 1));
        for (int i = 0; i < 40; ++i) {
            writer.append(make_view(1, 1), 50, 1000);
            if (i == 34) start = writer.end;
        }
        store.maintain();
        const int before = files();
        REQUIRE(before >= 8);
        while (store.truncate_front(start)) {
        }
        store.maintain();
        REQUIRE(files() <= 3);
        end = writer.end;
    }
    BdbStore store(small);
    REQUIRE(store.load().start == start);
    REQUIRE(store.load().end == end);
    std::vector<Entry> entries;
    store.read(start.index + 1, end.index, SIZE_MAX, entries);
    REQUIRE(entries.size() == end.index - start.index);
    SECTION("all of it") {
        while (store.truncate_front(end)) {
        }
        store.maintain();
        Writer writer{store, end};
        writer.append(make_view(1, 1), 500, 1000);
        while (store.truncate_front(writer.end)) {
        }
        store.maintain();
        REQUIRE(files() <= 2);
        REQUIRE(store.load().end == writer.end);
    }
}

TEST_CASE("paxos store: the log of a stopped replica can be read") {
    const TemporaryDirectory directory;
    {
        BdbStore store(options(directory.path));
        Writer writer{store, {}};
        writer.promise(make_view(1, 1));
        writer.append(make_view(1, 1), 20);
        REQUIRE_THROWS_WITH(read_offline(directory.path, 1, [](const Entry&) { return true; }),
                            Catch::Contains("in use"));
    }
    std::vector<uint64_t> seen;
    const OfflineLog log = read_offline(directory.path, 15, [&](const Entry& entry) {
        seen.push_back(entry.index);
        return entry.index < 18;
    });
    REQUIRE(seen == std::vector<uint64_t>{15, 16, 17, 18});
    REQUIRE(log.cluster_id == "cluster-a");
    REQUIRE(log.replica == 2);
    REQUIRE(log.state.end.index == 20);
    REQUIRE_THROWS_WITH(read_offline(directory.path + "/no", 1, [](const Entry&) { return true; }),
                        Catch::Contains("/no"));
}
