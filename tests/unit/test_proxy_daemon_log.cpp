// craned.log: written to by several threads, and moved away under them.
#include <spdlog/spdlog.h>
#include <stdlib.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
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

}  // namespace

TEST_CASE("daemon log: what threads say while the file is rotated away is in one of the files") {
    char name[] = "/tmp/crane-unit-XXXXXX";
    REQUIRE(mkdtemp(name) != nullptr);
    const auto before = spdlog::default_logger();
    crane::proxy::Config config;
    config.state_dir = name;
    config.log_level = "debug";
    crane::proxy::open_daemon_log(config);
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
        fs::rename(config.state_dir + "/craned.log", config.state_dir + "/craned.log." + std::to_string(i));
        crane::proxy::reopen_daemon_log();
    }
    done = true;
    for (std::thread& one : speakers) one.join();
    spdlog::default_logger()->flush();
    spdlog::set_default_logger(before);
    CHECK(lines_in(name) == said);
    fs::remove_all(name);
}

TEST_CASE("daemon log: it fills no disk, whatever is said") {
    char name[] = "/tmp/crane-unit-XXXXXX";
    REQUIRE(mkdtemp(name) != nullptr);
    const auto before = spdlog::default_logger();
    crane::proxy::Config config;
    config.state_dir = name;
    config.log_level = "debug";
    crane::proxy::open_daemon_log(config);
    const std::string line(64 * 1024, 'x');
    for (int i = 0; i < 1200; ++i) spdlog::debug("{} {} a line", i, line);
    spdlog::default_logger()->flush();
    spdlog::set_default_logger(before);
    const fs::path log = config.state_dir + "/craned.log";
    CHECK(fs::file_size(log) <= 32 << 20);
    CHECK(fs::file_size(log.string() + ".1") <= 32 << 20);
    CHECK(lines_in(name) > 512);  // the newer half, at least
    CHECK((fs::status(log).permissions() & fs::perms::all) ==
          (fs::perms::owner_read | fs::perms::owner_write));
    std::ifstream newest(log);
    const std::string text((std::istreambuf_iterator<char>(newest)), {});
    CHECK(text.find(": 1199 x") != std::string::npos);
    fs::remove_all(name);
}

TEST_CASE("daemon log: what is said again and again is counted, and does not hide the rest") {
    char name[] = "/tmp/crane-unit-XXXXXX";
    REQUIRE(mkdtemp(name) != nullptr);
    const auto before = spdlog::default_logger();
    crane::proxy::Config config;
    config.state_dir = name;
    config.log_level = "info";
    crane::proxy::open_daemon_log(config);
    for (int i = 0; i < 100'000; ++i) spdlog::info("the server no longer listens on port {}: a line", i);
    spdlog::critical("what matters: a line");
    spdlog::default_logger()->flush();
    spdlog::set_default_logger(before);
    CHECK(lines_in(name) == crane::proxy::LogLimit::kMost + 1);
    fs::remove_all(name);
}
