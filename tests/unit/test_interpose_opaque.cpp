// Children that cannot be scheduled: when one counts as waiting for the domain, and what becomes of its
// entry.
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <catch2/catch.hpp>

#include <csignal>
#include <functional>

#include "interpose/core/opaque.hpp"
#include "interpose/core/processes.hpp"
#include "interpose/core/signals.hpp"
#include "test_interpose_domain.hpp"

using namespace crane::interpose;
using namespace crane::interpose::testing;

namespace {

/// A real child, ended and reaped with the test.
class RealChild {
  public:
    explicit RealChild(const std::function<void()>& body) : pid_(fork()) {
        if (pid_ != 0) return;
        body();
        _exit(0);
    }
    ~RealChild() {
        kill(pid_, SIGKILL);
        waitpid(pid_, nullptr, 0);
    }
    RealChild(const RealChild&) = delete;
    RealChild& operator=(const RealChild&) = delete;
    int pid() const { return pid_; }

    bool comes_to_wait() const {
        for (int i = 0; i < 2000; ++i) {
            if (waits_for_streams(pid_)) return true;
            usleep(1000);
        }
        return false;
    }

  private:
    int pid_;
};

struct Pipe {
    Pipe() { REQUIRE(pipe(ends) == 0); }
    ~Pipe() {
        close(ends[0]);
        close(ends[1]);
    }
    int ends[2];
};

void take_byte(int fd) {
    char byte;
    while (read(fd, &byte, 1) == 1) {
    }
}

uint32_t opaque_process(PlainDomain& domain, int pid) {
    const uint32_t index = domain.process(pid);
    domain.state().processes[index].state = ProcessState::kOpaque;
    domain.state().processes[index].opaque_phase = OpaquePhase::kRuns;
    ++domain.state().opaque_processes;
    return index;
}

/// The signal that is taken; 0: none.
int taken(uint64_t set) {
    SignalInfo info;
    return take_pending(set, info) ? info.signal : 0;
}

}  // namespace

TEST_CASE("opaque: one that reads or fills a pipe waits for the domain, one that rests or computes does not",
          "[interpose]") {
    Pipe pipe;
    const RealChild reader([&] { take_byte(pipe.ends[0]); });
    CHECK(reader.comes_to_wait());
    Pipe full;
    const RealChild writer([&] {
        while (write(full.ends[1], "x", 1) == 1) {
        }
    });
    CHECK(writer.comes_to_wait());
    const RealChild resting([] { sleep(1000); });
    const RealChild computing([] {
        for (;;) asm volatile("");
    });
    for (int i = 0; i < 50; ++i) {
        CHECK_FALSE(waits_for_streams(resting.pid()));
        CHECK_FALSE(waits_for_streams(computing.pid()));
        usleep(1000);
    }
}

TEST_CASE("opaque: one that waits for a child of its own waits if that one does", "[interpose]") {
    Pipe pipe;
    const RealChild parent([&] {
        const int child = fork();
        if (child == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            take_byte(pipe.ends[0]);
        }
        waitpid(child, nullptr, 0);
    });
    CHECK(parent.comes_to_wait());
    const RealChild other([] {
        const int child = fork();
        if (child == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            for (;;) sleep(1000);
        }
        waitpid(child, nullptr, 0);
    });
    for (int i = 0; i < 50; ++i) {
        CHECK_FALSE(waits_for_streams(other.pid()));
        usleep(1000);
    }
}

TEST_CASE("opaque: the end is seen where it was waited for, and the parent is told", "[interpose]") {
    PlainDomain domain;
    domain.state().threads[self.slot].mask = signal_bit(SIGCHLD);
    const RealChild child([] { usleep(20'000); });
    const uint32_t index = opaque_process(domain, child.pid());
    const uint32_t entries = domain.state().opaque_processes;
    settle_opaque();
    CHECK(domain.state().processes[index].state == ProcessState::kExited);
    CHECK(domain.state().processes[index].status_unknown == 1);
    CHECK(domain.state().opaque_processes == entries - 1);
    CHECK(taken(~uint64_t{0}) == SIGCHLD);
}

TEST_CASE("opaque: one that nobody can wait for gives its entry back", "[interpose]") {
    PlainDomain domain;
    Process* processes = domain.state().processes;
    domain.state().threads[self.slot].mask = ~uint64_t{0};
    const bool left = GENERATE(false, true);
    const RealChild child([&] {
        if (left) sleep(1000);
    });
    const uint32_t parent = domain.process(100'001);
    domain.act_as(parent);
    const uint32_t index = opaque_process(domain, child.pid());
    domain.act_as(0);
    if (left) processes[index].opaque_phase = OpaquePhase::kLeft;
    bury_process(parent, 0);
    processes[parent].state = ProcessState::kFree;
    settle_opaque();
    CHECK(processes[index].state == ProcessState::kFree);
    CHECK(domain.state().opaque_processes == 0);
}

TEST_CASE("opaque: one that was left to itself is stood for again when a signal must end it", "[interpose]") {
    const RealChild plain([] {
        signal(SIGTERM, SIG_DFL);  // this program catches it
        pause();
    });
    const RealChild deaf([] {
        signal(SIGTERM, SIG_IGN);
        pause();
    });
    for (int i = 0; i < 2000 && (dies_of(deaf.pid(), SIGTERM) || !dies_of(plain.pid(), SIGTERM)); ++i)
        usleep(1000);
    CHECK(dies_of(plain.pid(), SIGTERM));
    CHECK(dies_of(plain.pid(), SIGKILL));
    CHECK_FALSE(dies_of(deaf.pid(), SIGTERM));
    CHECK(dies_of(deaf.pid(), SIGKILL));
    for (const int harmless : {0, SIGCHLD, SIGCONT, SIGWINCH, SIGSTOP})
        CHECK_FALSE(dies_of(plain.pid(), harmless));
    PlainDomain domain;
    Process p{};
    p.state = ProcessState::kOpaque;
    p.opaque_phase = OpaquePhase::kLeft;
    p.pid = deaf.pid();
    CHECK(signal_opaque(p, SIGTERM) == 0);
    CHECK(p.opaque_phase == OpaquePhase::kLeft);
    CHECK(signal_opaque(p, SIGKILL) == 0);
    CHECK(p.opaque_phase == OpaquePhase::kRuns);
}

TEST_CASE("opaque: what a busy machine or a disk keeps a process from is not its own time", "[interpose]") {
    constexpr uint64_t kMs = 1'000'000;
    const OpaqueEffort before{100 * kMs, 10 * kMs, 1, 0};
    const auto own_ms = [&](OpaqueEffort now) { return own_time_ns(before, now, 100 * kMs) / kMs; };
    CHECK(own_ms({100 * kMs, 10 * kMs, 1, 0}) == 100);   // it sleeps by its own will
    CHECK(own_ms({200 * kMs, 10 * kMs, 1, 0}) == 100);   // it computes
    CHECK(own_ms({105 * kMs, 105 * kMs, 1, 0}) == 5);    // others have the processor
    CHECK(own_ms({102 * kMs, 10 * kMs, 1, 1}) == 2);     // it waits for its disk
    CHECK(own_ms({900 * kMs, 900 * kMs, 8, 0}) == 100);  // more threads than processors
    CHECK(own_ms({102 * kMs, 210 * kMs, 4, 0}) == 50);   // half of them are kept from going on
    CHECK(own_ms({0, 0, 0, 0}) == 100);                  // nothing can be seen of it
    CHECK(own_ms({50 * kMs, 5 * kMs, 1, 0}) == 100);     // a thread has ended
}

TEST_CASE("opaque: the effort of a process is that of all its threads and of all below it", "[interpose]") {
    const auto compute = [] {
        for (;;) asm volatile("");
    };
    const RealChild computing(compute);
    const RealChild parent([&] {
        const int child = fork();
        if (child == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            compute();
        }
        waitpid(child, nullptr, 0);
    });
    const auto come_to_run = [](int pid, uint32_t threads) {
        for (int i = 0; i < 20'000; ++i) {
            const OpaqueEffort effort = effort_of(pid);
            if (effort.threads == threads && effort.run_ns > 20'000'000) return true;
            usleep(1000);
        }
        return false;
    };
    CHECK(come_to_run(computing.pid(), 1));
    CHECK(come_to_run(parent.pid(), 2));
    CHECK(effort_of(0x7fff'fff0).threads == 0);
}
