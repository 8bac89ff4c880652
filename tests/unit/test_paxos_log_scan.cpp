// What a disk has lost of the write-ahead log's files, and what only looks so.
#include "paxos/store/log_scan.hpp"

#include <array>
#include <catch2/catch.hpp>
#include <cerrno>
#include <cstring>

#include "paxos/store/segment.hpp"
#include "paxos/store/store.hpp"
#include "test_paxos_directory.hpp"

using namespace crane::paxos;
using namespace crane::paxos::testing;

namespace {

constexpr size_t kHeaderBytes = 12;

// As Berkeley DB writes it: the place of the record before, its size, a checksum, what it holds.
std::string record(uint32_t previous, const std::string& content) {
    const std::array<uint32_t, 2> head{previous, static_cast<uint32_t>(kHeaderBytes + content.size())};
    uint32_t sum = 0;
    for (const char byte : content) sum = sum * 33 + static_cast<uint8_t>(byte);
    sum ^= head[0] ^ head[1];
    std::string bytes(reinterpret_cast<const char*>(head.data()), sizeof head);
    bytes.append(reinterpret_cast<const char*>(&sum), sizeof sum);
    return bytes + content;
}

std::string segment(const LogPlace& synced) {
    SegmentWriter writer;
    writer.set_synced(synced);
    return writer.record();
}

struct File {
    std::string bytes;
    uint32_t last = 0;
    void add(const std::string& content) {
        const auto place = static_cast<uint32_t>(bytes.size());
        bytes += record(last, content);
        last = place;
    }
    uint32_t end() const { return static_cast<uint32_t>(bytes.size()); }
};

}  // namespace

TEST_CASE("paxos log scan: a record that was on disk before a later one is missed") {
    File file;
    file.add(std::string(100, 'a'));
    const uint32_t broken = file.end();
    file.add(std::string(300, 'b'));
    file.add(segment({1, file.end()}));
    SECTION("its content") {
        file.bytes[broken + 50] ^= 1;
    }
    SECTION("its header") {
        file.bytes[broken + 4] ^= 1;
    }
    SECTION("a part of it is zeros") {
        std::memset(file.bytes.data() + broken, 0, 200);
    }
    const LogScan scan = scan_log(1, file.bytes);
    REQUIRE(scan.end == broken);
    REQUIRE(scan.damaged());
}

TEST_CASE("paxos log scan: a client's bytes in a write that was cut short are no record") {
    File file;
    file.add(std::string(100, 'a'));
    const uint32_t torn = file.end();
    std::string forged = std::string(40, 'x');
    SECTION("that says more was on disk than lies before it") {
        forged += record(torn, segment({1, torn + 4000}));
    }
    SECTION("that says so of a later file") {
        forged += record(torn, segment({2, 0}));
    }
    SECTION("that says the record before it is none that could be") {
        forged += record(28, segment({1, torn + 20}));
    }
    SECTION("of which there are more than anybody wants to look at") {
        std::string many;
        for (int i = 0; i < 200'000; ++i)
            many.append(reinterpret_cast<const char*>(&kSegmentRecordType), sizeof kSegmentRecordType);
        forged += many;
    }
    file.add(forged);
    file.bytes.resize(file.bytes.size() - 10);
    const LogScan scan = scan_log(1, file.bytes);
    REQUIRE(scan.end == torn);
    REQUIRE_FALSE(scan.damaged());
}

namespace {

// The host's files, of which some may not be read.
class Forbidden : public FileSystem {
  public:
    explicit Forbidden(std::string name) : name_(std::move(name)) {}
    int make_directory(const std::string& path) override { return host_files().make_directory(path); }
    bool exists(const std::string& path) override { return host_files().exists(path); }
    int remove(const std::string& path) override { return host_files().remove(path); }
    int make(const std::string& path) override { return host_files().make(path); }
    int sync(const std::string& path) override { return host_files().sync(path); }
    int lock(const std::string& path) override { return host_files().lock(path); }
    void unlock(int lock) override { host_files().unlock(lock); }
    uint64_t free_bytes(const std::string& path) override { return host_files().free_bytes(path); }
    int reread(const std::string&) override { return 0; }
    int list(const std::string& directory, std::vector<std::string>& names) override {
        return name_.empty() ? EACCES : host_files().list(directory, names);
    }
    int read(const std::string& path, std::string& bytes) override {
        return path.ends_with(name_) ? EACCES : host_files().read(path, bytes);
    }

  private:
    const std::string name_;  // of a file; empty: the directory
};

}  // namespace

TEST_CASE("paxos log scan: what may not be read is not called damaged, and nobody is told to rebuild it") {
    const TemporaryDirectory directory;
    StoreOptions own = options(directory.path);
    BdbStore{own}.close(0);
    Forbidden files(GENERATE("log.0000000001", ""));
    own.files = &files;
    std::string said;
    try {
        const BdbStore store(own);
    } catch (const DamagedStore& error) {
        said = "damaged";
    } catch (const StorageError& error) {
        said = error.what();
    }
    REQUIRE_THAT(said, Catch::Contains("cannot read") && Catch::Contains("Permission denied"));
    own.files = nullptr;
    REQUIRE(BdbStore(own).load().end.index == 0);
}
