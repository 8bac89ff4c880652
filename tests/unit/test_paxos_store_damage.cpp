// The Berkeley DB store: what a disk has lost or changed is found, and never taken for a write cut short.
#include <db.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>

#include "paxos/store/bdb.hpp"
#include "test_paxos_store_files.hpp"

using namespace crane::paxos;
using namespace crane::paxos::testing;
namespace fs = std::filesystem;

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
    std::string named = "log.db";
    SECTION("log.db missing") {
        fs::remove(tree);
    }
    SECTION("log.db empty") {
        fs::resize_file(tree, 0);
    }
    SECTION("log.db cut short") {
        fs::resize_file(tree, 100);
    }
    SECTION("log.db of zeros") {
        const auto bytes = fs::file_size(tree);
        fs::resize_file(tree, 0);
        fs::resize_file(tree, bytes);
    }
    SECTION("log.db cut in half") {
        fs::resize_file(tree, fs::file_size(tree) / 2);
    }
    SECTION("log.db is a text") {
        std::ofstream(tree, std::ios::trunc) << std::string(20'000, 'x');
    }
    SECTION("log.db is a short text") {
        std::ofstream(tree, std::ios::trunc) << "gone\n";
    }
    SECTION("log.db is another kind of database") {
        fs::remove(tree);
        DB* other = nullptr;
        REQUIRE(db_create(&other, nullptr, 0) == 0);
        REQUIRE(other->open(other, nullptr, tree.c_str(), nullptr, DB_HASH, DB_CREATE, 0600) == 0);
        other->close(other, 0);
    }
    SECTION("log files missing") {
        named = "log files";
        fs::remove(log);
    }
    SECTION("log files empty") {
        named = "";
        fs::resize_file(log, 0);
    }
    for (int attempt = 0; attempt < 2; ++attempt) {
        INFO("killed " << killed << " attempt " << attempt);
        REQUIRE_THROWS_AS(BdbStore(options(copy)).load(), DamagedStore);
        REQUIRE_THROWS_WITH(BdbStore(options(copy)).load(),
                            Catch::Contains(named) && Catch::Contains("rejoin = true"));
        REQUIRE_THROWS_AS(read_offline(copy, 1, [](const Entry&) { return true; }), DamagedStore);
    }
}

TEST_CASE("paxos store: a place at which no record begins is damage, and no disk that cannot be read") {
    const TemporaryDirectory directory;
    StoreOptions small = options(directory.path);
    small.sizes.log_buffer_bytes = 32u << 10;
    std::optional<BdbEnvironment> database;
    database.emplace(small, true);
    database->set_complete();
    std::vector<LogPlace> places;
    for (int i = 0; i < 200; ++i) {
        BdbEnvironment::Transaction transaction(*database);
        places.push_back(transaction.log(std::string(300, "a\0\x7f"[i % 3])));
        transaction.commit(true);
    }
    const auto among_those = [&](size_t first) {
        for (uint32_t offset = places[first].offset + 1; offset < places[first + 3].offset; ++offset) {
            if (std::ranges::find(places, LogPlace{1, offset}) != places.end()) continue;
            INFO("byte " << offset);
            try {
                BdbEnvironment::LogCursor(*database).read({1, offset});  // a commit's, by chance
            } catch (const DamagedStore& error) {
                if (std::strstr(error.what(), "PANIC") == nullptr) continue;
                database.reset();  // it does nothing any more
                database.emplace(small, false);
            }
        }
    };
    SECTION("on disk") {
        among_those(10);
    }
    SECTION("in memory") {  // the last ones, at first
        among_those(196);
    }
    REQUIRE(BdbEnvironment::LogCursor(*database).read(places[1]) == std::string(300, '\0'));
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
