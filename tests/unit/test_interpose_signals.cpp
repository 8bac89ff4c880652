// Signals in the schedule: whose they are, in which order they are taken, and what handlers see.
#include <catch2/catch.hpp>

#include "interpose/core/signal_fds.hpp"
#include "interpose/core/signal_masks.hpp"
#include "interpose/core/signals.hpp"
#include "test_amount.hpp"
#include "test_interpose_domain.hpp"

using namespace crane::interpose;
using namespace crane::interpose::testing;
using crane::dmt::kNoSlot;
using crane::dmt::SlotId;
using crane::dmt::WaitResult;

namespace {

constexpr uint64_t kAll = ~uint64_t{0};

struct Handled {
    std::vector<int> signals;
    std::vector<uint64_t> masks;
} handled;

void note(int signal) {
    handled.signals.push_back(signal);
    handled.masks.push_back(domain().threads[self.slot].mask);
}

void handle(int signal, uint64_t flags = 0, uint64_t mask = 0) {
    runtime.process->actions[signal] = {reinterpret_cast<uint64_t>(&note), flags, mask};
}

uint64_t& own_mask() {
    return domain().threads[self.slot].mask;
}

/// A thread that waits, interruptibly, and says how that ended.
SlotId waiter(PlainDomain& domain, WaitResult& result) {
    return domain.thread([&result] {
        Operation turn(Op::kSleep, own_key());
        result = turn.wait(own_key(), crane::dmt::kNoDeadline, true);
    });
}

}  // namespace

TEST_CASE("signals: random ones are taken lowest first, a thread's own before the process's", "[interpose]") {
    const uint64_t seed = GENERATE(1, 2);
    PlainDomain domain;
    Dice dice{seed};
    for (int signal = 1; signal < kSignals; ++signal) handle(signal);
    own_mask() = kAll;
    uint64_t own = 0, shared = 0;  // the model
    const uint64_t steps = crane::test::rounds(5000, 50'000);
    for (uint64_t step = 0; step < steps; ++step) {
        const int signal = 1 + static_cast<int>(dice.below(64));
        if (signal == SIGKILL || signal == SIGSTOP) continue;
        if (dice.below(3)) {
            const bool directed = dice.below(2);
            const uint64_t posted = runtime.process->signals_posted;
            REQUIRE(post_signal(0, signal, directed ? self.slot : kNoSlot) == 0);
            REQUIRE(runtime.process->signals_posted == posted + 1);
            (directed ? own : shared) |= signal_bit(signal);
        } else {
            const uint64_t set = dice.roll() | dice.roll() << 32;
            const uint64_t both = (own | shared) & set;
            const int expected = both == 0 ? 0 : 1 + __builtin_ctzll(both);
            REQUIRE(take_pending(set) == expected);
            if (expected != 0) {
                uint64_t& from = own & signal_bit(expected) ? own : shared;
                from &= ~signal_bit(expected);
            }
        }
        REQUIRE(domain.state().threads[self.slot].pending == own);
        REQUIRE(runtime.process->pending == shared);
        REQUIRE_FALSE(handler_due());
    }
}

TEST_CASE("signals: a process's goes to who waits for it, else to its main thread, else the lowest",
          "[interpose]") {
    PlainDomain domain;
    handle(SIGUSR1);
    WaitResult ends[2] = {WaitResult::kSignaled, WaitResult::kSignaled};
    const SlotId first = waiter(domain, ends[0]), second = waiter(domain, ends[1]);
    domain.settle();
    SECTION("sigwait") {
        domain.state().threads[second].waiting_signals = signal_bit(SIGUSR1);
        post_signal(0, SIGUSR1, kNoSlot);
        domain.settle();
        CHECK(domain.waits(first));
        CHECK(ends[1] == WaitResult::kInterrupted);
    }
    SECTION("main thread: this one, which does not sleep") {
        post_signal(0, SIGUSR1, kNoSlot);
        CHECK(domain.waits(first));
        CHECK(domain.waits(second));
        CHECK(handler_due());
    }
    SECTION("the lowest that does not block it") {
        own_mask() = domain.state().threads[first].mask = signal_bit(SIGUSR1);
        post_signal(0, SIGUSR1, kNoSlot);
        domain.settle();
        CHECK(domain.waits(first));
        CHECK(ends[1] == WaitResult::kInterrupted);
        CHECK_FALSE(handler_due());
    }
    SECTION("nobody, as long as all block it") {
        for (const SlotId slot : {self.slot, first, second}) {
            domain.state().threads[slot].mask = signal_bit(SIGUSR1);
        }
        post_signal(0, SIGUSR1, kNoSlot);
        CHECK(domain.waits(first));
        CHECK(domain.waits(second));
        CHECK(runtime.process->pending == signal_bit(SIGUSR1));
    }
    SECTION("one thread by name") {
        post_signal(0, SIGUSR1, first);
        domain.settle();
        CHECK(ends[0] == WaitResult::kInterrupted);
        CHECK(domain.waits(second));
        CHECK_FALSE(handler_due());
    }
}

TEST_CASE("signals: what is ignored leaves nothing behind, but where it is blocked", "[interpose]") {
    PlainDomain domain;
    runtime.process->actions[SIGUSR1].handler = reinterpret_cast<uint64_t>(SIG_IGN);
    for (const int signal : {SIGUSR1, SIGCHLD, SIGWINCH, SIGURG, SIGCONT, 0}) {
        CHECK(post_signal(0, signal, kNoSlot) == 0);
    }
    CHECK(runtime.process->pending == 0);
    CHECK(runtime.process->attention == 0);
    own_mask() = signal_bit(SIGUSR1);
    post_signal(0, SIGUSR1, kNoSlot);
    CHECK(take_pending(kAll) == SIGUSR1);
}

TEST_CASE("signals: to a process that is gone they are lost, to one outside refused", "[interpose]") {
    PlainDomain domain;
    const uint32_t other = domain.process(4711);
    domain.state().processes[other].state = ProcessState::kExited;
    CHECK(post_signal(other, SIGTERM, kNoSlot) == 0);
    domain.state().processes[other].state = ProcessState::kOpaque;
    CHECK(post_signal(other, SIGTERM, kNoSlot) == EPERM);
    CHECK(domain.state().processes[other].pending == 0);
}

TEST_CASE("signals: handlers run at the operation's end with the mask that was asked for", "[interpose]") {
    PlainDomain domain;
    handled = {};
    handle(SIGUSR1, 0, signal_bit(SIGUSR2));
    handle(SIGUSR2, SA_NODEFER);
    handle(SIGTERM, SA_RESETHAND | SA_NODEFER);
    own_mask() = signal_bit(SIGTERM);
    {
        Operation turn(Op::kOther, own_key());
        for (const int signal : {SIGTERM, SIGUSR2, SIGUSR1}) post_signal(0, signal, kNoSlot);
        CHECK(handled.signals.empty());
    }
    CHECK(handled.signals == std::vector<int>{SIGUSR1, SIGUSR2});
    CHECK(handled.masks[0] == (signal_bit(SIGTERM) | signal_bit(SIGUSR1) | signal_bit(SIGUSR2)));
    CHECK(handled.masks[1] == signal_bit(SIGTERM));
    CHECK(own_mask() == signal_bit(SIGTERM));
    CHECK(runtime.process->attention == 1);  // one is blocked still
    own_mask() = 0;
    { Operation turn(Op::kOther, own_key()); }
    CHECK(handled.signals.back() == SIGTERM);
    CHECK(runtime.process->actions[SIGTERM].handler == reinterpret_cast<uint64_t>(SIG_DFL));
    CHECK(runtime.process->attention == 0);
}

TEST_CASE("signals: a program fresh from exec keeps what it ignored and nothing else", "[interpose]") {
    PlainDomain domain;
    handle(SIGUSR1, SA_RESTART, 5);
    runtime.process->actions[SIGPIPE].handler = reinterpret_cast<uint64_t>(SIG_IGN);
    reset_handlers_after_exec();
    CHECK(runtime.process->actions[SIGUSR1].handler == 0);
    CHECK(runtime.process->actions[SIGUSR1].flags == 0);
    CHECK(runtime.process->actions[SIGPIPE].handler == reinterpret_cast<uint64_t>(SIG_IGN));
}

TEST_CASE("signals: a mask for the length of a call is put back", "[interpose]") {
    PlainDomain domain;
    handled = {};
    handle(SIGUSR1);
    own_mask() = signal_bit(SIGUSR1);
    post_signal(0, SIGUSR1, kNoSlot);
    sigset_t none;
    sigemptyset(&none);
    {
        TemporaryMask mask(&none);
        CHECK(mask.interrupted());
        CHECK(handled.signals == std::vector<int>{SIGUSR1});
        CHECK_FALSE(mask.interrupted());
    }
    CHECK(own_mask() == signal_bit(SIGUSR1));
}

TEST_CASE("signalfd: ready for the process that looks, and read lowest first", "[interpose]") {
    PlainDomain domain;
    own_mask() = kAll;
    const uint32_t fd = new_signal_fd(signal_bit(SIGTERM) | signal_bit(SIGHUP), true);
    signalfd_siginfo got[4];
    CHECK(read_signals(fd, got, sizeof(got)) == -EAGAIN);
    CHECK(read_signals(fd, got, sizeof(got[0]) - 1) == -EINVAL);
    for (const int signal : {SIGTERM, SIGUSR1, SIGHUP}) post_signal(0, signal, kNoSlot);
    CHECK(signal_fd_ready(fd));
    const uint32_t other = domain.process(4711);
    domain.act_as(other);
    CHECK_FALSE((runtime.process->pending & domain.state().signal_fds[fd].mask) != 0);
    domain.act_as(0);
    REQUIRE(read_signals(fd, got, sizeof(got)) == 2 * sizeof(got[0]));
    CHECK(got[0].ssi_signo == SIGHUP);
    CHECK(got[1].ssi_signo == SIGTERM);
    CHECK_FALSE(signal_fd_ready(fd));
    CHECK(runtime.process->pending == signal_bit(SIGUSR1));
}

TEST_CASE("signalfd: a reader sleeps until one of its signals is sent", "[interpose]") {
    PlainDomain domain;
    const uint32_t fd = new_signal_fd(signal_bit(SIGTERM), false);
    long got = 0;
    signalfd_siginfo info{};
    const SlotId reader = domain.thread([&] {
        own_mask() = kAll;
        got = read_signals(fd, &info, sizeof(info));
    });
    own_mask() = kAll;
    domain.settle();
    post_signal(0, SIGUSR1, kNoSlot);
    domain.settle();
    CHECK(domain.waits(reader));
    post_signal(0, SIGTERM, kNoSlot);
    domain.settle();
    CHECK(got == sizeof(info));
    CHECK(info.ssi_signo == SIGTERM);
}

TEST_CASE("signalfd: the lowest free place is taken, and a full table says so", "[interpose]") {
    PlainDomain domain;
    for (uint32_t i = 0; i < kMaxSignalFds; ++i) REQUIRE(new_signal_fd(i, false) == i);
    CHECK(new_signal_fd(1, false) == kNone);
    CHECK(domain.state().signal_fds_open == kMaxSignalFds);
    release_signal_fd(1000);
    release_signal_fd(3);
    CHECK(new_signal_fd(1, false) == 3);
    CHECK(domain.state().signal_fds_open == kMaxSignalFds - 1);
}
