// The Berkeley DB store: what is on disk after closing, crashing, tearing.
#include <db.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <filesystem>
#include <fstream>

#include "paxos/store/offline.hpp"
#include "test_paxos_directory.hpp"

using namespace crane::paxos;
using namespace crane::paxos::testing;
namespace fs = std::filesystem;

namespace {

// Builds a well-chained log.
struct Writer {
    Storage& store;
    LogPosition end;

    Entry next(View view, size_t size = 100) {
        Entry entry;
        entry.index = end.index + 1;
        entry.view = view;
        entry.value = std::make_shared<const std::string>(size, static_cast<char>('a' + entry.index % 26));
        entry.chain = chain_hash(end.chain, entry);
        end = {entry.index, entry.view, entry.chain};
        return entry;
    }
    void append(View view, unsigned count, size_t size = 100) {
        PersistBatch batch;
        for (; count > 0; --count) batch.append.push_back(next(view, size));
        store.persist(batch);
    }
    void promise(View view) {
        PersistBatch batch;
        batch.has_view = true;
        batch.view = view;
        store.persist(batch);
    }
};

std::string newest_log_file(const std::string& directory) {
    std::string newest;
    for (const auto& file : fs::directory_iterator(directory))
        if (file.path().filename().string().rfind("log.0", 0) == 0)
            newest = std::max(newest, file.path().string());
    return newest;
}

// Log files are allocated ahead: their records end where the zeros begin.
uint64_t written_bytes(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    return bytes.find_last_not_of('\0') + 1;
}

}  // namespace

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
        writer.append(make_view(1, 1), 1, max_value_bytes);
        writer.append(make_view(1, 1), 1);
    }
    BdbStore store(options(directory.path));
    REQUIRE(store.load().end.index == 2);
    std::vector<Entry> entries;
    store.read(1, 1, 1, entries);
    REQUIRE(entries.front().size_bytes() == max_value_bytes);
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
    for (uint64_t start = 1; start <= max_previous_runs + 3; ++start) {
        BdbStore store(options(directory.path));
        store.begin_run(100 + start);
        const StoredState state = store.load();
        if (start == 1) database = state.database;
        CHECK((state.database == database && database != 0));
        CHECK(state.starts == start);
        REQUIRE(state.previous_runs.size() == std::min<uint64_t>(start - 1, max_previous_runs));
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

TEST_CASE("paxos store: a torn tail is cut off, never served") {
    const TemporaryDirectory directory;
    const std::string original = directory.path + "/original", copy = directory.path + "/copy";
    BdbStore store(options(original));
    Writer writer{store, {}};
    writer.promise(make_view(1, 1));
    writer.append(make_view(1, 1), 10);
    std::vector<uint64_t> chains(1);
    for (int i = 0; i < 20; ++i) {
        writer.append(make_view(1, 1), 1, 500);
        chains.push_back(writer.end.chain);
    }
    for (uint64_t torn : {1u, 7u, 600u, 3000u, 9000u}) {
        for (bool garbage : {false, true}) {
            INFO("torn bytes " << torn << " garbage " << garbage);
            fs::remove_all(copy);
            fs::copy(original, copy, fs::copy_options::recursive);  // what a crash would leave
            const std::string log = newest_log_file(copy);
            const uint64_t size = written_bytes(log);
            if (garbage) {
                std::fstream file(log, std::ios::in | std::ios::out | std::ios::binary);
                file.seekp(static_cast<std::streamoff>(size - torn));
                for (uint64_t i = 0; i < torn; ++i) file.put(static_cast<char>(i * 37 + 11));
            } else {
                fs::resize_file(log, size - torn);
            }
            BdbStore recovered(options(copy));
            if (garbage) REQUIRE_THAT(recovered.recovery(), Catch::Contains("dropped the last"));
            const uint64_t last = recovered.load().end.index;
            REQUIRE(last >= 10);
            REQUIRE(last < 30);
            REQUIRE((last == 10 || recovered.load().end.chain == chains.at(last - 10)));
            std::vector<Entry> entries;
            recovered.read(1, last, SIZE_MAX, entries);
            REQUIRE(entries.size() == last);
        }
    }
}

TEST_CASE("paxos store: nothing is said to be dropped from a log that was closed or killed between writes") {
    const TemporaryDirectory directory;
    const std::string copy = directory.path + "/copy";
    for (int round = 0; round < 3; ++round) {
        BdbStore store(options(directory.path + "/original"));
        REQUIRE(store.recovery().empty());
        Writer writer{store, store.load().end};
        if (round == 0) writer.promise(make_view(1, 1));
        writer.append(make_view(1, 1), 10, 500);
        fs::remove_all(copy);
        fs::copy(directory.path + "/original", copy, fs::copy_options::recursive);
        BdbStore killed(options(copy));
        REQUIRE(killed.recovery() == "");
        REQUIRE(killed.load().end.index == 10u * static_cast<unsigned>(round + 1));
    }
}

TEST_CASE("paxos store: a cut within what was written together keeps what comes before it") {
    const TemporaryDirectory directory;
    const View first = make_view(1, 1), second = make_view(2, 3);
    LogPosition end;
    {
        BdbStore store(options(directory.path));
        Writer writer{store, {}};
        writer.promise(first);
        writer.append(first, 4);
        const LogPosition kept = writer.end;
        writer.append(first, 6);
        writer.append(first, 3);
        PersistBatch batch;
        batch.has_view = true;
        batch.view = second;
        SECTION("inside of a batch, replaced") {
            writer.end = kept;
            const Entry fifth = writer.next(first), sixth = writer.next(first);
            batch.truncate_from = 7;
            batch.append.push_back(writer.next(second));
        }
        SECTION("inside of the first batch, nothing appended") {
            writer.end = {};
            for (int i = 0; i < 2; ++i) writer.next(first);
            batch.truncate_from = 3;
        }
        SECTION("between two batches") {
            writer.end = kept;
            batch.truncate_from = 5;
            for (int i = 0; i < 12; ++i) batch.append.push_back(writer.next(second));
        }
        store.persist(batch);
        end = writer.end;
        std::vector<Entry> entries;
        REQUIRE_THROWS_AS(store.read(end.index + 1, end.index + 1, 1, entries), DamagedStore);
    }
    BdbStore store(options(directory.path));
    REQUIRE(store.load().end == end);
    std::vector<Entry> entries;
    store.read(1, end.index, SIZE_MAX, entries);
    REQUIRE(entries.size() == end.index);
    uint64_t chain = 0;
    for (const Entry& entry : entries) {
        REQUIRE(entry.chain == chain_hash(chain, entry));
        chain = entry.chain;
    }
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

namespace {

// Changes one byte of `what` where the write-ahead log has it.
void damage(const std::string& directory, const std::string& what) {
    for (const auto& entry : fs::directory_iterator(directory)) {
        std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
        const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
        const size_t place = bytes.find(what);
        if (place == std::string::npos) continue;
        file.clear();
        file.seekp(static_cast<std::streamoff>(place));
        file.put('X');
        return;
    }
    FAIL("nowhere in " << directory);
}

}  // namespace

TEST_CASE("paxos store: a damaged record is refused, with advice") {
    const TemporaryDirectory directory;
    StoreOptions small = options(directory.path);
    small.sizes.log_buffer_bytes = 32u << 10;
    small.sizes.log_file_bytes = 256u << 10;
    {
        BdbStore store(small);
        Writer writer{store, {}};
        writer.promise(make_view(1, 1));
        writer.append(make_view(1, 1), 3);
        SECTION("in the newest file") {}
        SECTION("in an older file") {
            writer.append(make_view(1, 1), 300, 2000);
        }
    }
    damage(directory.path, std::string(50, 'c'));  // inside entry 2
    const auto read_all = [&] {
        BdbStore store(small);
        std::vector<Entry> entries;
        store.read(1, store.load().end.index, SIZE_MAX, entries);
    };
    for (int attempt = 0; attempt < 2; ++attempt)
        REQUIRE_THROWS_WITH(read_all(), Catch::Contains("damaged") && Catch::Contains("rejoin = true"));
}

TEST_CASE("paxos store: a database of which a part is gone is not made anew") {
    const TemporaryDirectory directory;
    const std::string copy = directory.path + "/copy";
    {
        BdbStore store(options(directory.path + "/original"));
        Writer writer{store, {}};
        writer.promise(make_view(1, 1));
        for (int i = 0; i < 10; ++i) writer.append(make_view(1, 1), 1, 500);
        fs::copy(directory.path + "/original", copy, fs::copy_options::recursive);
    }
    const bool killed = GENERATE(true, false);
    if (!killed) {
        fs::remove_all(copy);
        fs::rename(directory.path + "/original", copy);
    }
    const std::string log = copy + "/log.0000000001", tree = copy + "/log.db";
    REQUIRE_FALSE(fs::exists(copy + "/unfinished"));
    SECTION("log.db missing") {
        fs::remove(tree);
    }
    SECTION("log.db empty") {
        fs::resize_file(tree, 0);
    }
    SECTION("log.db cut short") {
        fs::resize_file(tree, 100);
    }
    SECTION("log files missing") {
        fs::remove(log);
    }
    SECTION("log files empty") {
        fs::resize_file(log, 0);
    }
    for (int attempt = 0; attempt < 2; ++attempt) {
        INFO("killed " << killed << " attempt " << attempt);
        REQUIRE_THROWS_AS(BdbStore(options(copy)).load(), DamagedStore);
        REQUIRE_THROWS_AS(read_offline(copy, 1, [](const Entry&) { return true; }), DamagedStore);
    }
}

TEST_CASE("paxos store: a database whose making was interrupted is made again") {
    const TemporaryDirectory directory;
    std::ofstream(directory.path + "/unfinished").close();
    std::ofstream(directory.path + "/log.0000000001").close();
    BdbStore store(options(directory.path));
    REQUIRE(store.load().end.index == 0);
    REQUIRE_FALSE(fs::exists(directory.path + "/unfinished"));
}

TEST_CASE("paxos store: a log that ends before what was decided is refused") {
    const TemporaryDirectory directory;
    {
        BdbStore store(options(directory.path));
        Writer writer{store, {}};
        writer.promise(make_view(1, 1));
        writer.append(make_view(1, 1), 10);
        store.close(20);
    }
    REQUIRE_THROWS_WITH(BdbStore(options(directory.path)).load(), Catch::Contains("was known to be decided"));
}

TEST_CASE("paxos store: what a disk has lost is not taken for a write cut short") {
    const TemporaryDirectory directory;
    const std::string original = directory.path + "/original", copy = directory.path + "/copy";
    BdbStore store(options(original));
    Writer writer{store, {}};
    writer.promise(make_view(1, 1));
    for (int i = 0; i < 10; ++i) writer.append(make_view(1, 1), 1, 500);
    fs::copy(original, copy, fs::copy_options::recursive);  // as if killed: no page was written back
    const auto letter = [](char c) { return std::string(400, c); };
    const std::string file = newest_log_file(copy);
    const auto bytes = [&] {
        std::ifstream in(file, std::ios::binary);
        return std::string((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    };
    SECTION("an entry") {
        damage(copy, letter('c'));
        const std::string before = bytes();
        for (int attempt = 0; attempt < 2; ++attempt)
            REQUIRE_THROWS_WITH(BdbStore(options(copy)),
                                Catch::Contains("damaged") &&
                                    Catch::Contains("was on disk before more was written") &&
                                    Catch::Contains("rejoin = true"));
        REQUIRE(bytes() == before);  // nothing was cut
    }
    SECTION("the last entry but one, and what made it count") {
        damage(copy, letter('j'));
        REQUIRE_THROWS_AS(BdbStore(options(copy)), DamagedStore);
        fs::remove_all(copy);
        fs::copy(original, copy, fs::copy_options::recursive);
        std::fstream out(file, std::ios::in | std::ios::out | std::ios::binary);
        out.seekp(static_cast<std::streamoff>(bytes().find(letter('k')) - 100));
        out.write("XXXX", 4);
        out.close();
        REQUIRE_THROWS_AS(BdbStore(options(copy)), DamagedStore);
    }
    SECTION("a sector, with where its records begin and end") {
        const uint64_t place = bytes().find(letter('f')) / 512 * 512;
        std::fstream out(file, std::ios::in | std::ios::out | std::ios::binary);
        out.seekp(static_cast<std::streamoff>(place));
        out << std::string(512, '\0');
        out.close();
        const std::string before = bytes();
        REQUIRE_THROWS_AS(BdbStore(options(copy)), DamagedStore);
        REQUIRE(bytes() == before);
    }
    SECTION("the beginning of the file") {
        std::fstream out(file, std::ios::in | std::ios::out | std::ios::binary);
        out << std::string(16, '\0');
        out.close();
        REQUIRE_THROWS_AS(BdbStore(options(copy)), DamagedStore);
    }
    SECTION("the last one: nothing tells that it was whole") {
        damage(copy, letter('k'));
        REQUIRE(BdbStore(options(copy)).load().end.index == 9);
    }
}

TEST_CASE("paxos store: a page of zeros is refused, not searched for ever") {
    const TemporaryDirectory directory;
    {
        BdbStore store(options(directory.path));
        Writer writer{store, {}};
        writer.promise(make_view(1, 1));
        for (int i = 0; i < 10; ++i) writer.append(make_view(1, 1), 1, 500);
    }
    const std::string tree = directory.path + "/log.db";
    const uint64_t page_bytes = options(directory.path).sizes.page_bytes;
    REQUIRE(fs::file_size(tree) > page_bytes);
    std::fstream out(tree, std::ios::in | std::ios::out | std::ios::binary);
    out.seekp(static_cast<std::streamoff>(page_bytes));  // the root: behind the description of the file
    out << std::string(page_bytes, '\0');
    out.close();
    for (int attempt = 0; attempt < 2; ++attempt)
        REQUIRE_THROWS_WITH(BdbStore(options(directory.path)),
                            Catch::Contains("page 1 of log.db") && Catch::Contains("rejoin = true"));
}

namespace {

void unreadable(const std::string& directory) {
    db_env_set_func_read([](int, void*, size_t) -> ssize_t {
        errno = EIO;
        return -1;
    });
    std::string said;
    try {
        BdbStore store(options(directory));
        store.load();
    } catch (const DamagedStore&) {
        said = "damaged";
    } catch (const StorageError& error) {
        said = error.what();
    }
    db_env_set_func_read(nullptr);
    REQUIRE_THAT(said, Catch::Contains("could not be read") && Catch::Contains("mend it"));
}

}  // namespace

namespace {

// The host's, but for what its memory does not let go.
class StubbornFiles : public FileSystem {
  public:
    bool keeps = false;
    std::vector<std::string> asked;  // in order: what was reread, what was read

    int make_directory(const std::string& path) override { return host_files().make_directory(path); }
    bool exists(const std::string& path) override { return host_files().exists(path); }
    int remove(const std::string& path) override { return host_files().remove(path); }
    int make(const std::string& path) override { return host_files().make(path); }
    int sync(const std::string& path) override { return host_files().sync(path); }
    int lock(const std::string& path) override { return host_files().lock(path); }
    void unlock(int lock) override { host_files().unlock(lock); }
    uint64_t free_bytes(const std::string& path) override { return host_files().free_bytes(path); }
    int list(const std::string& directory, std::vector<std::string>& names) override {
        return host_files().list(directory, names);
    }
    int read(const std::string& path, std::string& bytes) override {
        asked.push_back("read " + fs::path(path).filename().string());
        return host_files().read(path, bytes);
    }
    int reread(const std::string& path) override {
        asked.push_back("reread " + fs::path(path).filename().string());
        const int error = host_files().reread(path);
        return error == 0 && keeps ? EBUSY : error;
    }
};

}  // namespace

TEST_CASE("paxos store: what a failed write may have left in memory alone is read from the disk again") {
    TemporaryDirectory directory;
    StubbornFiles files;
    StoreOptions opening = options(directory.path);
    opening.files = &files;
    {
        BdbStore store(opening);
        Writer writer{store, {}};
        writer.promise(make_view(1, 1));
        writer.append(make_view(1, 1), 10);
    }
    files.asked.clear();
    {
        BdbStore store(opening);
        REQUIRE(store.load().end.index == 10);
    }
    REQUIRE(files.asked.size() > 2);
    CHECK(files.asked[0] == "reread log.0000000001");
    CHECK(files.asked[1] == "reread log.db");

    // Memory keeps some of it: that matters only once a write has failed.
    files.keeps = true;
    REQUIRE(BdbStore(opening).load().end.index == 10);
    REQUIRE(files.make(directory.path + "/unwritten") == 0);
    REQUIRE_THROWS_WITH(BdbStore(opening), Catch::Contains("a write has failed before") &&
                                               Catch::Contains("Restart the machine") &&
                                               Catch::Contains("rejoin = true"));
    files.keeps = false;
    REQUIRE(BdbStore(opening).load().end.index == 10);
    REQUIRE_FALSE(files.exists(directory.path + "/unwritten"));
}

TEST_CASE("paxos store: a disk that cannot be read is not called a damaged database") {
    const TemporaryDirectory directory;
    {
        BdbStore store(options(directory.path));
        Writer writer{store, {}};
        writer.promise(make_view(1, 1));
        writer.append(make_view(1, 1), 3);
    }
    unreadable(directory.path);
    REQUIRE(BdbStore(options(directory.path)).load().end.index == 3);
}

TEST_CASE("paxos store: recovery does not pass over what an older file of the log has lost") {
    const TemporaryDirectory directory;
    const std::string original = directory.path + "/original", copy = directory.path + "/copy";
    StoreOptions small = options(original);
    small.sizes.log_buffer_bytes = 32u << 10;
    small.sizes.log_file_bytes = 128u << 10;
    BdbStore store(small);
    Writer writer{store, {}};
    writer.promise(make_view(1, 1));
    for (int i = 0; i < 200; ++i) writer.append(make_view(1, 1), 1, 2000);
    fs::copy(original, copy, fs::copy_options::recursive);  // as if killed: no page was written back
    small.directory = copy;
    REQUIRE(fs::exists(copy + "/log.0000000003"));
    uint64_t place = 0;
    SECTION("the beginning of the oldest") {}
    SECTION("the middle of one") {
        place = 60'000;
    }
    SECTION("the end of one") {
        place = written_bytes(copy + "/log.0000000001") - 10;
    }
    std::fstream out(copy + "/log.0000000001", std::ios::in | std::ios::out | std::ios::binary);
    out.seekp(static_cast<std::streamoff>(place));
    out << std::string(512, '\0');
    out.close();
    for (int attempt = 0; attempt < 2; ++attempt) REQUIRE_THROWS_AS(BdbStore(small), DamagedStore);
}

TEST_CASE("paxos store: a missing file of the log is refused, with advice") {
    const TemporaryDirectory directory;
    StoreOptions small = options(directory.path);
    small.sizes.log_buffer_bytes = 32u << 10;
    small.sizes.log_file_bytes = 256u << 10;
    {
        BdbStore store(small);
        Writer writer{store, {}};
        writer.promise(make_view(1, 1));
        writer.append(make_view(1, 1), 500, 2000);
    }
    fs::remove(directory.path + "/log.0000000001");
    BdbStore store(small);
    std::vector<Entry> entries;
    REQUIRE_THROWS_WITH(store.read(1, 10, SIZE_MAX, entries),
                        Catch::Contains("damaged") && Catch::Contains("rejoin = true"));
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
