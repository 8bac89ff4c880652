// craned.log: written to by several threads, and moved away under them.
#include <spdlog/spdlog.h>
#include <stdlib.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "proxy/daemon_log.hpp"
#include "proxy/log_limit.hpp"

namespace fs = std::filesystem;

namespace {

size_t lines_in(const fs::path& folder) {
    size_t lines = 0;
    for (const auto& entry : fs::directory_iterator(folder)) {
        std::ifstream in(entry.path());
        for (std::string line; std::getline(in, line);) lines += line.ends_with("a line");
    }
    return lines;
}

/// craned's log in a folder of its own, in place of the tests' own.
struct Log {
    std::string folder;
    std::shared_ptr<spdlog::logger> before = spdlog::default_logger();

    explicit Log(const char* level) {
        char name[] = "/tmp/crane-unit-XXXXXX";
        REQUIRE(mkdtemp(name) != nullptr);
        folder = name;
        crane::proxy::Config config;
        config.state_dir = folder;
        config.log_level = level;
        crane::proxy::open_daemon_log(config);
    }
    ~Log() {
        close();
        fs::remove_all(folder);
    }
    Log(const Log&) = delete;
    Log& operator=(const Log&) = delete;
    void close() const {
        spdlog::default_logger()->flush();
        spdlog::set_default_logger(before);
    }
};

}  // namespace

TEST_CASE("daemon log: what threads say while the file is rotated away is in one of the files") {
    Log log("debug");
    std::atomic<size_t> said{0};
    std::atomic<bool> done{false};
    std::vector<std::thread> speakers;
    for (int i = 0; i < 3; ++i)
        speakers.emplace_back([&] {
            while (!done) {
                spdlog::debug("a line");
                ++said;
            }
        });
    for (int i = 0; i < 20; ++i) {
        while (said < 100U * static_cast<size_t>(i)) std::this_thread::yield();
        fs::rename(log.folder + "/craned.log", log.folder + "/craned.log." + std::to_string(i));
        crane::proxy::reopen_daemon_log();
    }
    done = true;
    for (std::thread& one : speakers) one.join();
    log.close();
    CHECK(lines_in(log.folder) == said);
}

TEST_CASE("daemon log: it fills no disk, whatever is said") {
    Log log("debug");
    const std::string line(64 * 1024, 'x');
    for (int i = 0; i < 1200; ++i) spdlog::debug("{} {} a line", i, line);
    log.close();
    const fs::path file = log.folder + "/craned.log";
    CHECK(fs::file_size(file) <= 32 << 20);
    CHECK(fs::file_size(file.string() + ".1") <= 32 << 20);
    CHECK(lines_in(log.folder) > 512);  // the newer half, at least
    CHECK((fs::status(file).permissions() & fs::perms::all) ==
          (fs::perms::owner_read | fs::perms::owner_write));
    std::ifstream newest(file);
    const std::string text((std::istreambuf_iterator<char>(newest)), {});
    CHECK(text.find(": 1199 x") != std::string::npos);
}

TEST_CASE("daemon log: what is said again and again is counted, and does not hide the rest") {
    Log log("info");
    for (int i = 0; i < 100'000; ++i) spdlog::info("the server no longer listens on port {}: a line", i);
    spdlog::critical("what matters: a line");
    log.close();
    CHECK(lines_in(log.folder) == crane::proxy::LogLimit::kMost + 1);
}
