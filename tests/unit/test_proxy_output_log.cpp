// The output log: what is written is read back, torn ends are seen, and two logs are told apart where they
// differ.
#include <event2/event.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>

#include "proxy/output_log.hpp"
#include "proxy/output_log_reader.hpp"
#include "proxy/tool/compare.hpp"

using namespace crane::proxy;
using crane::timebubble::OutputHeader;
using crane::timebubble::OutputKind;
using Verdict = CompareResult::Verdict;
namespace fs = std::filesystem;

namespace {

struct Dirs {
    fs::path base;
    Dirs() {
        char name[] = "/tmp/crane-unit-XXXXXX";
        REQUIRE(mkdtemp(name));
        base = name;
    }
    ~Dirs() { fs::remove_all(base); }
    std::string dir(const std::string& name) const {
        fs::create_directories(base / name);
        return base / name;
    }
};

Config config_of(uint32_t replica, LogContent content = LogContent::kFull, uint64_t max_bytes = 1 << 30) {
    Config config;
    config.cluster_id = "ab";
    config.replica_id = replica;
    config.log_content = content;
    config.log_max_bytes = max_bytes;
    return config;
}

void send(OutputLog& log, uint64_t connection, std::string_view bytes, uint64_t clock,
          uint64_t schedule = 5) {
    log.append({static_cast<uint32_t>(bytes.size()), OutputKind::kSend, 0, connection, clock, schedule},
               bytes);
}

void admitted(OutputLog& log, uint64_t index, uint64_t clock) {
    const crane::timebubble::AdmittedRecord record{index, clock};
    log.append({sizeof(record), OutputKind::kAdmitted, 0, 0, clock, 5},
               {reinterpret_cast<const char*>(&record), sizeof(record)});
}

void fill(OutputLog& log, int records, int odd = -1, uint64_t clock_shift = 0) {
    for (int i = 0; i < records; ++i) {
        admitted(log, static_cast<uint64_t>(i + 2), static_cast<uint64_t>(i) + clock_shift);
        send(log, 7, i == odd ? "answer Xtwo" : "answer number two", static_cast<uint64_t>(i) + clock_shift);
    }
}

/// Two replicas' logs, written and closed, then compared.
CompareResult compare_two(const Dirs& dirs, int first, int second, int odd = -1, uint64_t clock_shift = 0,
                          LogContent content = LogContent::kFull) {
    {
        OutputLog a(dirs.dir("r1"), config_of(1));
        OutputLog b(dirs.dir("r2"), config_of(2, content));
        fill(a, first);
        fill(b, second, odd, clock_shift);
    }
    return compare_logs({dirs.dir("r1"), dirs.dir("r2")});
}

}  // namespace

TEST_CASE("output log: records are read back with their chain", "[proxy]") {
    Dirs dirs;
    Hash128 chain;
    {
        OutputLog log(dirs.dir("r1"), config_of(1));
        admitted(log, 2, 10);
        CHECK(log.chain() == Hash128{});  // a mark, nothing that clients see
        send(log, 3, "hello", 11);
        log.append({8, OutputKind::kConsumed, 0, 3, 11, 0}, "12345678");
        chain = log.chain();
        CHECK(log.records() == 2);
        CHECK(log.bytes() == 5);
    }
    OutputLogReader reader(dirs.dir("r1"));
    REQUIRE(reader.next() == OutputLogReader::Next::kRecord);
    CHECK(reader.admitted_index() == 2);
    REQUIRE(reader.next() == OutputLogReader::Next::kRecord);
    CHECK(reader.payload() == "hello");
    CHECK(reader.record().chain == chain);
    CHECK(reader.number() == 1);
    CHECK(reader.next() == OutputLogReader::Next::kEnd);
}

TEST_CASE("output log: a new start keeps the old log as previous", "[proxy]") {
    Dirs dirs;
    {
        OutputLog log(dirs.dir("r1"), config_of(1));
        send(log, 1, "old", 1);
    }
    { OutputLog log(dirs.dir("r1"), config_of(1)); }
    CHECK(fs::file_size(dirs.dir("r1") + "/output.log") == sizeof(OutputLogHeader));
    OutputLogReader previous(dirs.dir("r1") + "/output.log.previous");
    REQUIRE(previous.next() == OutputLogReader::Next::kRecord);
    CHECK(previous.payload() == "old");
}

TEST_CASE("output log: bounded by rotation, and the rest is still comparable", "[proxy]") {
    Dirs dirs;
    const std::string big(100'000, 'x');
    for (uint32_t replica : {1u, 2u}) {
        OutputLog log(dirs.dir("r" + std::to_string(replica)),
                      config_of(replica, LogContent::kFull, 1 << 20));
        for (uint64_t i = 0; i < 30; ++i) send(log, 1, big, i);
    }
    uint64_t total = 0;
    for (const auto& file : fs::directory_iterator(dirs.dir("r1"))) total += file.file_size();
    CHECK(total <= (1 << 20) + 4 * 110'000);
    const CompareResult result = compare_logs({dirs.dir("r1"), dirs.dir("r2")});
    CHECK(result.verdict == Verdict::kIdentical);
    CHECK(result.first_record > 0);
    CHECK(result.first_record + result.records == 30);
}

TEST_CASE("compare: identical, behind, different", "[proxy]") {
    Dirs dirs;
    SECTION("identical") {
        const CompareResult result = compare_two(dirs, 20, 20);
        CHECK(result.verdict == Verdict::kIdentical);
        CHECK(result.records == 40);
        CHECK(result.bytes == 20 * 17);
        CHECK(result.first_index == 2);
        CHECK(result.last_index == 21);
        CHECK(result.schedule_difference.empty());
    }
    SECTION("one is behind") {
        const CompareResult result = compare_two(dirs, 20, 15);
        CHECK(result.verdict == Verdict::kPrefix);
        CHECK(result.records == 30);
        CHECK(result.logs[0].records - result.logs[1].records == 10);
    }
    SECTION("nothing is no pass") {
        CHECK(compare_two(dirs, 0, 0).verdict == Verdict::kNothing);
    }
    SECTION("a differing answer is found, with its context") {
        const CompareResult result = compare_two(dirs, 20, 20, 12);
        CHECK(result.verdict == Verdict::kDifferent);
        CHECK(result.records == 25);
        CHECK(result.before.size() == 4);
        REQUIRE(result.at.size() == 2);
        CHECK(result.at[1].find("Xtwo") != std::string::npos);
    }
    SECTION("a differing answer is found by hash too") {
        const CompareResult result = compare_two(dirs, 20, 20, 12, 0, LogContent::kHash);
        CHECK(result.verdict == Verdict::kDifferent);
        CHECK(result.by_hash);
        CHECK(result.records == 25);
    }
    SECTION("hash against full, equal") {
        CHECK(compare_two(dirs, 20, 20, -1, 0, LogContent::kHash).verdict == Verdict::kIdentical);
    }
    SECTION("a schedule that differs alone is told apart") {
        const CompareResult result = compare_two(dirs, 20, 20, -1, 1);
        CHECK(result.verdict == Verdict::kIdentical);
        CHECK_FALSE(result.schedule_difference.empty());
    }
}

namespace {

/// No file of this process may grow beyond so many bytes, as on a full disk.
class FullDisk {
  public:
    explicit FullDisk(rlim_t bytes) {
        signal(SIGXFSZ, SIG_IGN);
        getrlimit(RLIMIT_FSIZE, &before_);
        const rlimit now{bytes, before_.rlim_max};
        setrlimit(RLIMIT_FSIZE, &now);
    }
    ~FullDisk() { setrlimit(RLIMIT_FSIZE, &before_); }

  private:
    rlimit before_{};
};

}  // namespace

TEST_CASE("output log: goes on without a hole when a full disk has room again", "[proxy]") {
    const Dirs dirs;
    {
        OutputLog whole(dirs.dir("r1"), config_of(1));
        OutputLog starved(dirs.dir("r2"), config_of(2));
        fill(whole, 500);
        {
            const FullDisk full(1000);  // in the middle of a record
            fill(starved, 300);
            starved.flush();
            CHECK(starved.error().find("cannot write") != std::string::npos);
            CHECK(starved.buffered());
        }
        fill(starved, 0);
        starved.flush();
        CHECK(starved.error().empty());
        CHECK_FALSE(starved.buffered());
        for (int i = 300; i < 500; ++i) {
            admitted(starved, static_cast<uint64_t>(i + 2), static_cast<uint64_t>(i));
            send(starved, 7, "answer number two", static_cast<uint64_t>(i));
        }
    }
    const CompareResult result = compare_logs({dirs.dir("r1"), dirs.dir("r2")});
    CHECK(result.verdict == Verdict::kIdentical);
    CHECK(result.records == 1000);
}

TEST_CASE("output log: what a full disk cost is a gap that no comparison passes over", "[proxy]") {
    const Dirs dirs;
    const std::string block(1 << 16, 'x');
    const auto write = [&block](OutputLog& log, int from, int to) {
        for (int i = from; i < to; ++i) send(log, 7, block, static_cast<uint64_t>(i));
    };
    {
        OutputLog whole(dirs.dir("r1"), config_of(1));
        OutputLog starved(dirs.dir("r2"), config_of(2));
        write(whole, 0, 400);
        {
            const FullDisk full(100'000);
            write(starved, 0, 300);  // more than is kept in memory
            starved.flush();
            CHECK_FALSE(starved.error().empty());
        }
        starved.flush();
        CHECK(starved.error().empty());
        write(starved, 300, 400);
        CHECK(starved.chain() == whole.chain());
    }
    CHECK_THROWS_WITH(compare_logs({dirs.dir("r1"), dirs.dir("r2")}), Catch::Contains("lacks records"));
}

TEST_CASE("output log: goes on in a new file when the old one was moved away", "[proxy]") {
    const Dirs dirs;
    const std::string dir = dirs.dir("r1");
    {
        OutputLog log(dir, config_of(1));
        fill(log, 3);
        log.reopen();  // nothing was moved: nothing changes
        fill(log, 3);
        log.flush();
        fs::rename(dir + "/output.log", dir + "/output.log.1");
        log.reopen();
        fill(log, 3);
    }
    OutputLogReader reader(dir);
    uint64_t records = 0;
    while (reader.next() == OutputLogReader::Next::kRecord) ++records;
    CHECK(records == 18);
}

TEST_CASE("output log: one that was removed goes on in a new file, and says from where", "[proxy]") {
    const Dirs dirs;
    const std::string dir = dirs.dir("r1");
    {
        OutputLog log(dir, config_of(1));
        fill(log, 3);
        log.flush();
        fs::remove(dir + "/output.log");
        fill(log, 3);
    }
    OutputLogReader reader(dir);
    CHECK(reader.header().first_record == 6);
    uint64_t records = 0;
    while (reader.next() == OutputLogReader::Next::kRecord) ++records;
    CHECK(records == 6);
}

TEST_CASE("output log: one record that is lost is a gap, too", "[proxy]") {
    const Dirs dirs;
    constexpr uint64_t kBlocks = 256;
    const std::string block(OutputLog::kMaxBytes / kBlocks, 'x');  // with their heads they are just too many
    {
        OutputLog starved(dirs.dir("r1"), config_of(1));
        OutputLog whole(dirs.dir("r2"), config_of(2));
        for (uint64_t i = 0; i < kBlocks; ++i) send(whole, 7, block, i);
        {
            const FullDisk full(1000);
            for (uint64_t i = 0; i < kBlocks; ++i) send(starved, 7, block, i);
            send(starved, 7, "lost", kBlocks);
        }
        send(whole, 7, "lost", kBlocks);
        starved.flush();
        send(starved, 7, "behind it", kBlocks + 1);
    }
    CHECK_THROWS_WITH(compare_logs({dirs.dir("r1"), dirs.dir("r2")}), Catch::Contains("lacks records"));
}

TEST_CASE("output log: moved away from a full disk it goes on at once, and whole", "[proxy]") {
    const Dirs dirs;
    {
        OutputLog whole(dirs.dir("r1"), config_of(1));
        OutputLog starved(dirs.dir("r2"), config_of(2));
        fill(whole, 400);
        {
            const FullDisk full(1000);
            fill(starved, 300);
            starved.flush();
            CHECK_FALSE(starved.error().empty());
            fs::rename(dirs.dir("r2") + "/output.log", dirs.dir("r2") + "/moved");
            starved.reopen();
            CHECK(fs::exists(dirs.dir("r2") + "/output.log"));
        }
        starved.flush();
        CHECK(starved.error().empty());
        for (int i = 300; i < 400; ++i) {
            admitted(starved, static_cast<uint64_t>(i + 2), static_cast<uint64_t>(i));
            send(starved, 7, "answer number two", static_cast<uint64_t>(i));
        }
    }
    const CompareResult result = compare_logs({dirs.dir("r1"), dirs.dir("r2")});
    CHECK(result.verdict == Verdict::kIdentical);
    CHECK(result.first_record + result.records == 800);
}

TEST_CASE("output log: whoever reads finds one, however often it begins anew or rotates", "[proxy]") {
    const Dirs dirs;
    const std::string dir = dirs.dir("r1");
    { const OutputLog first(dir, config_of(1)); }
    std::atomic<bool> ended{false};
    std::string missed;
    std::thread reader([&] {
        while (!ended && missed.empty()) {
            try {
                const OutputLogReader found(dir);
            } catch (const std::runtime_error& error) {
                missed = error.what();
            }
        }
    });
    const std::string big(100'000, 'x');
    for (int i = 0; i < 300; ++i) {
        OutputLog log(dir, config_of(1, LogContent::kFull, 1 << 20));
        for (uint64_t n = 0; n < 8; ++n) send(log, 1, big, n);
    }
    ended = true;
    reader.join();
    CHECK(missed.empty());
    CHECK_FALSE(fs::exists(dir + "/output.log.new"));
}

namespace {

/// In the place of the next output.log: who opens it waits, as for a disk that stands still, until it goes
/// on.
class StandingDisk {
  public:
    explicit StandingDisk(const std::string& dir) : path_(dir + "/output.log.new") {
        signal(SIGPIPE, SIG_IGN);  // as craned does: what is left to itself may write when this is gone
        fs::rename(dir + "/output.log", dir + "/output.log.1");
        REQUIRE(mkfifo(path_.c_str(), 0600) == 0);
        place_ = open(path_.c_str(), O_PATH | O_CLOEXEC);
        REQUIRE(place_ >= 0);
    }
    ~StandingDisk() {
        go_on();
        ended_ = true;
        reader_.join();
        close(place_);
    }
    void go_on() {
        if (reader_.joinable()) return;
        // Another file may have its name by now.
        const std::string it = "/proc/self/fd/" + std::to_string(place_);
        reader_ = std::thread([this, fd = open(it.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)] {
            std::string bytes(1 << 16, '\0');
            while (!ended_) {
                const ssize_t got = read(fd, bytes.data(), bytes.size());
                if (got > 0) taken_ += static_cast<size_t>(got);
                if (got <= 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
            }
            close(fd);
        });
    }
    size_t taken() const { return taken_; }
    /// False: not within a minute.
    bool takes(size_t bytes) const {
        for (int i = 0; i < 60'000 && taken_ < bytes; ++i)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        return taken_ >= bytes;
    }

  private:
    std::string path_;
    int place_ = -1;
    std::thread reader_;
    std::atomic<bool> ended_{false};
    std::atomic<size_t> taken_{0};
};

struct Base {
    event_base* base = event_base_new();
    ~Base() { event_base_free(base); }
};

}  // namespace

TEST_CASE("output log: the loop does not wait for a disk that stands still", "[proxy]") {
    const Dirs dirs;
    const Base base;
    const std::string dir = dirs.dir("r1");
    const std::string block(1 << 20, 'x');
    auto log = std::make_unique<OutputLog>(dir, config_of(1), OutputPosition{}, base.base);
    send(*log, 7, "first", 0);
    log->flush();
    log->settle(10'000);
    CHECK_FALSE(log->buffered());
    StandingDisk disk(dir);
    log->reopen();
    uint64_t now_ns = 1;
    CHECK_FALSE(log->must_wait(now_ns));
    for (uint64_t i = 0; i < 8; ++i) send(*log, 7, block, i);
    CHECK(log->must_wait(now_ns));  // it may just be slow
    log->settle(1);
    now_ns += OutputLog::kStandsStillNs;
    CHECK_FALSE(log->must_wait(now_ns));  // service goes on

    SECTION("what fits into memory is there when it goes on") {
        disk.go_on();
        log->flush();
        CHECK(disk.takes(8 * block.size()));
        log->settle(60'000);
        CHECK_FALSE(log->buffered());
        CHECK(log->error().empty());
    }
    SECTION("what does not is a gap, and the chain goes on") {
        OutputLog whole(dirs.dir("r2"), config_of(2));
        send(whole, 7, "first", 0);
        for (uint64_t i = 0; i < 8; ++i) send(whole, 7, block, i);
        for (uint64_t i = 8; i < 30; ++i) {
            send(*log, 7, block, i);
            send(whole, 7, block, i);
        }
        CHECK(log->chain() == whole.chain());
        CHECK(log->buffered());
        disk.go_on();
        CHECK(disk.takes(OutputLog::kMaxBytes - block.size()));
        log->settle(60'000);
        CHECK(disk.taken() <= OutputLog::kMaxBytes + block.size());
        log->flush();  // begins a file behind the gap
        log->settle(60'000);
        CHECK_FALSE(log->buffered());
        fs::rename(dir + "/output.log.2", dir + "/output.log.1");  // in the place of what stood for the disk
        CHECK_THROWS_WITH(compare_logs({dir, dirs.dir("r2")}), Catch::Contains("lacks records"));
    }
    SECTION("nor does who makes it anew wait at all") {
        log->abandon();
        log.reset();
        OutputLog anew(dir, config_of(1));
        send(anew, 7, "anew", 1);
        anew.flush();
        CHECK(fs::is_regular_file(dir + "/output.log"));
        CHECK(fs::file_size(dir + "/output.log") > sizeof(OutputLogHeader));
    }
    SECTION("nor does the end wait for long") {
        const auto before = std::chrono::steady_clock::now();
        log.reset();
        CHECK(std::chrono::steady_clock::now() - before < std::chrono::seconds(30));
    }
}

TEST_CASE("compare: the torn end of a killed replica is tolerated and said", "[proxy]") {
    Dirs dirs;
    compare_two(dirs, 20, 20);
    const std::string file = dirs.dir("r2") + "/output.log";
    fs::resize_file(file, fs::file_size(file) - 5);
    CompareResult result = compare_logs({dirs.dir("r1"), dirs.dir("r2")});
    CHECK(result.verdict == Verdict::kPrefix);
    CHECK(result.records == 39);
    CHECK(result.logs[1].torn);
    // A flipped byte in the middle ends the log there as well: the chain does not hold.
    std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
    bytes.seekp(500);
    bytes.put('!');
    bytes.close();
    result = compare_logs({dirs.dir("r1"), dirs.dir("r2")});
    CHECK(result.logs[1].torn);
    CHECK(result.records < 10);
}

TEST_CASE("compare: a log that is not there, or is none, is an error", "[proxy]") {
    Dirs dirs;
    compare_two(dirs, 3, 3);
    CHECK_THROWS(compare_logs({dirs.dir("r1"), dirs.dir("r9")}));
    std::ofstream(dirs.dir("r9") + "/output.log") << std::string(200, 'z');
    CHECK_THROWS(compare_logs({dirs.dir("r1"), dirs.dir("r9")}));
}
