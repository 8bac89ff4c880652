// The watchdog: when a stall is told, and that it names the thread and the function.
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <fstream>
#include <optional>

#include "proxy/backtrace.hpp"
#include "proxy/frozen_detector.hpp"
#include "proxy/stall_detector.hpp"

using namespace crane::proxy;

namespace {

constexpr uint64_t kSecond = 1'000'000'000;
constexpr uintptr_t kPage = 4096;

}  // namespace

extern "C" {
// A page of code that nothing runs in.
__attribute__((noinline, aligned(4096))) void crane_test_is_patched() {
    asm volatile(".fill 4096, 1, 0x90");
}
__attribute__((noinline)) void crane_test_spins_here() {
    for (;;) asm volatile("");
}
__attribute__((noinline)) void crane_test_calls_it() {
    crane_test_spins_here();
    asm volatile("");  // no tail call
}
}

namespace {

/// A mapping of code, as /proc/PID/maps has it.
struct CodeLine {
    uintptr_t low, high;
    std::string file;
};

/// The line that holds the address.
std::optional<CodeLine> line_of(pid_t pid, uintptr_t address) {
    std::ifstream maps("/proc/" + std::to_string(pid) + "/maps");
    for (std::string line; std::getline(maps, line);) {
        CodeLine one{};
        if (sscanf(line.c_str(), "%lx-%lx", &one.low, &one.high) != 2) continue;
        if (address < one.low || address >= one.high) continue;
        const size_t name = line.find('/');
        one.file = name == std::string::npos ? "" : line.substr(name);
        return one;
    }
    return std::nullopt;
}

/// As the shim does where it finds a system call in the code: the byte stays as it was.
bool patch(uintptr_t address) {
    auto* page = reinterpret_cast<void*>(address & ~(kPage - 1));
    if (mprotect(page, kPage, PROT_READ | PROT_WRITE | PROT_EXEC) != 0) return false;
    auto* byte = reinterpret_cast<volatile unsigned char*>(address);
    *byte = *byte;
    return mprotect(page, kPage, PROT_READ | PROT_EXEC) == 0;
}

}  // namespace

TEST_CASE("watchdog: a stall is told at the limit and each time it has doubled") {
    StallDetector detector(10 * kSecond);
    CHECK(detector.observe(1 * kSecond, 5, false) == 0);
    CHECK(detector.observe(10 * kSecond, 5, false) == 0);
    CHECK_FALSE(detector.told());
    CHECK(detector.observe(11 * kSecond, 5, false) == 10 * kSecond);
    CHECK(detector.told());
    CHECK(detector.observe(12 * kSecond, 5, false) == 0);
    CHECK(detector.observe(20 * kSecond, 5, false) == 0);
    CHECK(detector.observe(21 * kSecond, 5, false) == 20 * kSecond);
    CHECK(detector.observe(22 * kSecond, 6, false) == 0);
    CHECK_FALSE(detector.told());
}

TEST_CASE("watchdog: a domain that waits, or goes on, does not stall") {
    StallDetector detector(2 * kSecond);
    for (uint64_t s = 1; s < 20; ++s) CHECK(detector.observe(s * kSecond, 7, true) == 0);
    for (uint64_t s = 20; s < 40; ++s) CHECK(detector.observe(s * kSecond, s, false) == 0);
    StallDetector off(0);
    for (uint64_t s = 1; s < 200; ++s) CHECK(off.observe(s * kSecond, 7, false) == 0);
}

TEST_CASE("watchdog: names the spinning function of another process") {
    // The spinner is below the process that is looked into, as a server is below the container's init.
    int ready[2];
    REQUIRE(pipe(ready) == 0);
    const pid_t root = fork();
    if (root == 0) {
        const pid_t spinner = fork();
        if (spinner == 0) {
            // A thread that gets little of a processor is not looked into: here other tests have a share.
            setpriority(PRIO_PROCESS, 0, -20);
            crane_test_calls_it();
        }
        if (write(ready[1], &spinner, sizeof(spinner)) != sizeof(spinner)) _exit(1);
        pause();
        _exit(0);
    }
    pid_t spinner = 0;
    REQUIRE(read(ready[0], &spinner, sizeof(spinner)) == sizeof(spinner));
    StallReport report;
    // It is seen as running once it is past its fork.
    for (int i = 0; i < 1000 && report.details.find("crane_test_calls_it") == std::string::npos; ++i) {
        report = describe_stall(root, 12);
        usleep(1000);
    }
    INFO(report.summary << "\n" << report.details);
    CHECK(report.summary.find("stands still for 12 s") != std::string::npos);
    CHECK(report.summary.find("pid " + std::to_string(spinner)) != std::string::npos);
    CHECK(report.details.find("crane_test_spins_here") != std::string::npos);
    CHECK(report.details.find("crane_test_calls_it") != std::string::npos);
    const auto busy = busy_threads(root);
    const auto same = [&](const BusyThread& one) { return one.thread == spinner && one.system_call == -1; };
    CHECK(std::any_of(busy.begin(), busy.end(), same));
    kill(spinner, SIGKILL);
    kill(root, SIGKILL);
    waitpid(root, nullptr, 0);
    close(ready[0]);
    close(ready[1]);
}

TEST_CASE("watchdog: names a thread that was stopped from outside, where nobody computes") {
    int ready[2];
    REQUIRE(pipe(ready) == 0);
    const pid_t root = fork();
    if (root == 0) {
        const pid_t stopped = fork();
        if (stopped == 0) raise(SIGSTOP);
        int status = 0;
        const bool seen = waitpid(stopped, &status, WUNTRACED) == stopped && WIFSTOPPED(status);
        if (write(ready[1], seen ? &stopped : &root, sizeof(root)) != sizeof(root)) _exit(1);
        pause();
        _exit(0);
    }
    pid_t stopped = 0;
    REQUIRE(read(ready[0], &stopped, sizeof(stopped)) == sizeof(stopped));
    REQUIRE(stopped != 0);
    const StallReport report = describe_stall(root, 12);
    INFO(report.summary << report.details);
    CHECK(report.summary.find("pid " + std::to_string(stopped) + " is stopped by a signal from outside") !=
          std::string::npos);
    kill(stopped, SIGKILL);
    kill(root, SIGKILL);
    waitpid(root, nullptr, 0);
    close(ready[0]);
    close(ready[1]);
}

TEST_CASE("watchdog: names the functions of a program whose code is patched in place") {
    // The patched page is a mapping of its own from then on, and so is what is behind it.
    const auto patched = reinterpret_cast<uintptr_t>(&crane_test_is_patched) + kPage / 2;
    const auto spins = reinterpret_cast<uintptr_t>(&crane_test_spins_here);
    int ready[2];
    REQUIRE(pipe(ready) == 0);
    const pid_t spinner = fork();
    if (spinner == 0) {
        const bool done = patch(patched);
        if (write(ready[1], &done, sizeof(done)) != sizeof(done) || !done) _exit(1);
        setpriority(PRIO_PROCESS, 0, -20);
        crane_test_calls_it();
    }
    bool done = false;
    CHECK(read(ready[0], &done, sizeof(done)) == sizeof(done));
    std::vector<std::string> frames;
    // Words instead of frames: it is not seen to compute yet.
    for (int i = 0; i < 1000 && done && (frames.empty() || frames[0].rfind("it ", 0) == 0); ++i)
        frames = backtrace_of(spinner, 8);
    const auto part = line_of(spinner, patched), other = line_of(spinner, spins);
    kill(spinner, SIGKILL);
    waitpid(spinner, nullptr, 0);
    close(ready[0]);
    close(ready[1]);
    REQUIRE((done && part && other));
    CHECK(part->high - part->low == kPage);
    CHECK(part->file == other->file);
    CHECK(other->low >= part->high);
    REQUIRE(frames.size() >= 2);
    CAPTURE(frames);
    CHECK(frames[0].rfind("crane_test_spins_here+0x", 0) == 0);
    CHECK(frames[1].rfind("crane_test_calls_it+0x", 0) == 0);
}

TEST_CASE("watchdog: where no name is known, it tells the file and the place in it") {
    const pid_t sleeper = fork();  // Debian's has no symbols of its own
    if (sleeper == 0) {
        execl("/bin/sleep", "sleep", "600", nullptr);
        _exit(1);
    }
    const std::string task = "/proc/" + std::to_string(sleeper) + "/task/" + std::to_string(sleeper);
    while (read_thread_state(task).system_call != SYS_clock_nanosleep) usleep(1000);
    const std::vector<std::string> frames = backtrace_of(sleeper, 8);
    kill(sleeper, SIGKILL);
    waitpid(sleeper, nullptr, 0);
    CAPTURE(frames);
    const auto in_its_file = [](const std::string& frame) { return frame.rfind("sleep(+0x", 0) == 0; };
    CHECK(frames[0].find("nanosleep+0x") != std::string::npos);
    CHECK(std::any_of(frames.begin(), frames.end(), in_its_file));
}

TEST_CASE("watchdog: a domain is frozen when it neither goes on nor computes while another one goes on") {
    double cpu = 1;
    const auto used = [&] { return cpu; };
    FrozenDetector detector(2 * kSecond);
    for (uint64_t s = 1; s < 5; ++s) detector.observe(s * kSecond, 7, 7, used);
    CHECK_FALSE(detector.frozen());  // no other is ahead
    for (uint64_t s = 5; s < 10; ++s, cpu += 1) detector.observe(s * kSecond, 7, 9, used);
    CHECK_FALSE(detector.frozen());  // it computes
    detector.observe(10 * kSecond, 7, 9, used);
    detector.observe(11 * kSecond, 7, 9, used);
    CHECK_FALSE(detector.frozen());
    detector.observe(13 * kSecond, 7, 9, used);
    CHECK(detector.frozen());
    detector.observe(14 * kSecond, 8, 9, used);
    CHECK_FALSE(detector.frozen());  // it goes on
    for (uint64_t s = 15; s < 30; ++s) detector.observe(s * kSecond, s, 40, used);
    CHECK_FALSE(detector.frozen());  // behind, but on its way
}

TEST_CASE("watchdog: a look at a thread in a long call names it, and does not cut the call short") {
    constexpr size_t kBytes = 1 << 20;
    int ready[2];
    REQUIRE(pipe(ready) == 0);
    const pid_t writer = fork();
    if (writer == 0) {
        static char bytes[kBytes];
        _exit(write(ready[1], bytes, kBytes) == static_cast<ssize_t>(kBytes) ? 0 : 1);
    }
    close(ready[1]);
    const std::string task = "/proc/" + std::to_string(writer) + "/task/" + std::to_string(writer);
    while (read_thread_state(task).system_call != SYS_write) usleep(1000);
    const std::vector<std::string> frames = backtrace_of(writer, 8);
    CHECK(frames[0].find("write") != std::string::npos);
    static char bytes[64 * 1024];
    size_t read_back = 0;
    for (ssize_t got = 0; (got = read(ready[0], bytes, sizeof(bytes))) > 0;)
        read_back += static_cast<size_t>(got);
    int status = 0;
    CHECK(waitpid(writer, &status, 0) == writer);
    CHECK(status == 0);
    CHECK(read_back == kBytes);
    close(ready[0]);
}
