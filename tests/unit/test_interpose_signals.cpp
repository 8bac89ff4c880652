// Signals in the schedule: whose they are, in which order they are taken, and what handlers see.
#include <catch2/catch.hpp>
#include <deque>

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

/// What is pending, as POSIX has it: the values of each signal that come with it, oldest first.
struct PendingModel {
    std::deque<uint64_t> values[kSignals];

    uint64_t set() const {
        uint64_t found = 0;
        for (int signal = 1; signal < kSignals; ++signal)
            if (!values[signal].empty()) found |= signal_bit(signal);
        return found;
    }
    void add(int signal, uint64_t value) {
        if (signal >= kFirstRealtime || values[signal].empty()) values[signal].push_back(value);
    }
    uint64_t take(int signal) {
        const uint64_t value = values[signal].front();
        values[signal].pop_front();
        return value;
    }
    void undo_opposites(int signal) {
        if (signal == SIGTSTP || signal == SIGTTIN || signal == SIGTTOU) values[SIGCONT].clear();
        if (signal != SIGCONT) return;
        for (const int stop : {SIGTSTP, SIGTTIN, SIGTTOU}) values[stop].clear();
    }
};

/// The signal that is taken; 0: none.
int taken(uint64_t set) {
    SignalInfo info;
    return take_pending(set, info) ? info.signal : 0;
}

}  // namespace

TEST_CASE("signals: random ones are taken a thread's own before the process's, and of these the lowest first",
          "[interpose]") {
    const uint64_t seed = GENERATE(1, 2);
    PlainDomain domain;
    Dice dice{seed};
    for (int signal = 1; signal < kSignals; ++signal) handle(signal);
    own_mask() = kAll;
    PendingModel own, shared;
    const uint64_t steps = crane::test::rounds(5000, 50'000);
    for (uint64_t step = 0; step < steps; ++step) {
        const int signal = 1 + static_cast<int>(dice.below(64));
        if (signal == SIGKILL || signal == SIGSTOP) continue;
        if (dice.below(2)) {
            const bool directed = dice.below(2);
            const uint64_t posted = runtime.process->signals_posted;
            const SignalInfo info = signal_from_self(signal, SI_QUEUE, step);
            REQUIRE(post_signal(0, info, directed ? self.slot : kNoSlot) == 0);
            REQUIRE(runtime.process->signals_posted == posted + 1);
            for (PendingModel* model : {&own, &shared}) model->undo_opposites(signal);
            (directed ? own : shared).add(signal, step);
        } else {
            const uint64_t set = dice.roll() | dice.roll() << 32;
            PendingModel& from = own.set() & set ? own : shared;
            SignalInfo info{};
            REQUIRE(take_pending(set, info) == ((from.set() & set) != 0));
            if ((from.set() & set) != 0) {
                const int expected = 1 + __builtin_ctzll(from.set() & set);
                REQUIRE(info.signal == expected);
                REQUIRE(info.value == from.take(expected));
            }
        }
        REQUIRE(domain.state().threads[self.slot].pending.set == own.set());
        REQUIRE(runtime.process->pending.set == shared.set());
        REQUIRE_FALSE(handler_due());
    }
}

TEST_CASE("signals: one without room for what is known of it is refused if it is queued, and else not lost",
          "[interpose]") {
    PlainDomain domain;
    handle(SIGRTMIN);
    handle(SIGUSR1);
    own_mask() = kAll;
    const SignalInfo queued = signal_from_self(SIGRTMIN, SI_QUEUE, 1);
    for (uint32_t i = 0; i < kMaxQueuedSignals; ++i) REQUIRE(post_signal(0, queued, kNoSlot) == 0);
    CHECK(post_signal(0, queued, kNoSlot) == EAGAIN);
    CHECK(post_signal(0, SIGUSR1, kNoSlot) == 0);
    CHECK(taken(signal_bit(SIGUSR1)) == SIGUSR1);
    CHECK(taken(signal_bit(SIGUSR1)) == 0);
    for (uint32_t i = 0; i < kMaxQueuedSignals; ++i) REQUIRE(taken(kAll) == SIGRTMIN);
    CHECK(taken(kAll) == 0);
    CHECK(post_signal(0, queued, kNoSlot) == 0);
}

TEST_CASE("signals: one that is ignored from now on is pending no more", "[interpose]") {
    PlainDomain domain;
    handle(SIGUSR1);
    own_mask() = kAll;
    post_signal(0, SIGUSR1, kNoSlot);
    post_signal(0, SIGUSR1, self.slot);
    drop_pending(SIGUSR1);
    CHECK(taken(kAll) == 0);
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
        CHECK(runtime.process->pending.set == signal_bit(SIGUSR1));
    }
    SECTION("one thread by name") {
        post_signal(0, SIGUSR1, first);
        domain.settle();
        CHECK(ends[0] == WaitResult::kInterrupted);
        CHECK(domain.waits(second));
        CHECK_FALSE(handler_due());
    }
}

// Whoever ended an operation first took it, and who had been woken for it slept on.
TEST_CASE("signals: one that a thread is chosen for is left to it, unless it is asked for", "[interpose]") {
    PlainDomain domain;
    handle(SIGUSR1);
    WaitResult end = WaitResult::kTimedOut;
    waiter(domain, end);
    own_mask() = signal_bit(SIGUSR1);
    domain.settle();
    post_signal(0, SIGUSR1, kNoSlot);
    own_mask() = 0;
    REQUIRE_FALSE(handler_due());
    SECTION("it takes it") {
        domain.settle();
        CHECK(end == WaitResult::kInterrupted);
        CHECK(runtime.process->pending.set == 0);
    }
    SECTION("sigwait, signalfd: then nothing has cut the other one short") {
        CHECK(taken(signal_bit(SIGUSR1)) == SIGUSR1);
        domain.settle();
        CHECK(end == WaitResult::kSignaled);
    }
    SECTION("one more of it is for this thread") {
        post_signal(0, SIGUSR1, kNoSlot);
        CHECK(handler_due());
    }
    SECTION("the next one of it is for whoever is chosen then") {
        CHECK(taken(signal_bit(SIGUSR1)) == SIGUSR1);
        post_signal(0, SIGUSR1, kNoSlot);
        CHECK(handler_due());
    }
}

TEST_CASE("signals: what a thread is chosen for and blocks then wakes another one", "[interpose]") {
    PlainDomain domain;
    handle(SIGUSR1);
    WaitResult end = WaitResult::kTimedOut;
    const SlotId other = waiter(domain, end);
    domain.settle();
    post_signal(0, SIGUSR1, kNoSlot);
    REQUIRE(handler_due());
    REQUIRE(domain.waits(other));
    own_mask() = signal_bit(SIGUSR1);
    mask_has_changed();
    domain.settle();
    CHECK(end == WaitResult::kInterrupted);
    CHECK(runtime.process->pending.set == 0);
}

TEST_CASE("signals: several that wait for one kind are each given one", "[interpose]") {
    PlainDomain domain;
    own_mask() = kAll;
    WaitResult ends[2];
    const SlotId slots[2] = {waiter(domain, ends[0]), waiter(domain, ends[1])};
    for (const SlotId slot : slots) {
        domain.state().threads[slot].mask = kAll;
        domain.state().threads[slot].waiting_signals = signal_bit(SIGRTMIN);
    }
    domain.settle();
    for (uint64_t i = 0; i < 2; ++i) post_signal(0, signal_from_self(SIGRTMIN, SI_QUEUE, i), kNoSlot);
    for (const SlotId slot : slots) CHECK_FALSE(domain.waits(slot));
}

// sigsuspend and ppoll ended with EINTR.
TEST_CASE("signals: what is ignored cuts nothing short and is gone once it is let through", "[interpose]") {
    const int signal = GENERATE(SIGUSR1, SIGCHLD);
    PlainDomain domain;
    runtime.process->actions[SIGUSR1].handler = reinterpret_cast<uint64_t>(SIG_IGN);
    own_mask() = kAll;
    post_signal(0, signal, kNoSlot);
    REQUIRE(runtime.process->pending.set == signal_bit(signal));
    sigset_t none;
    sigemptyset(&none);
    TemporaryMask mask(&none);
    CHECK_FALSE(handler_due());
    CHECK(mask.error() == 0);
    CHECK(runtime.process->pending.set == 0);
}

TEST_CASE("signals: what is ignored leaves nothing behind, but where it is blocked", "[interpose]") {
    PlainDomain domain;
    runtime.process->actions[SIGUSR1].handler = reinterpret_cast<uint64_t>(SIG_IGN);
    for (const int signal : {SIGUSR1, SIGCHLD, SIGWINCH, SIGURG, SIGCONT, 0}) {
        CHECK(post_signal(0, signal, kNoSlot) == 0);
    }
    CHECK(runtime.process->pending.set == 0);
    CHECK(runtime.process->attention == 0);
    own_mask() = signal_bit(SIGUSR1);
    post_signal(0, SIGUSR1, kNoSlot);
    CHECK(taken(kAll) == SIGUSR1);
}

TEST_CASE("signals: to a process that is gone they are lost, to one outside refused", "[interpose]") {
    PlainDomain domain;
    const uint32_t other = domain.process(4711);
    domain.state().processes[other].state = ProcessState::kExited;
    CHECK(post_signal(other, SIGTERM, kNoSlot) == 0);
    domain.state().processes[other].state = ProcessState::kOpaque;
    CHECK(post_signal(other, SIGTERM, kNoSlot) == EPERM);
    CHECK(domain.state().processes[other].pending.set == 0);
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
        CHECK(mask.error() == -EINTR);
        CHECK(handled.signals == std::vector<int>{SIGUSR1});
        CHECK(mask.error() == 0);
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
    CHECK_FALSE((runtime.process->pending.set & domain.state().signal_fds[fd].mask) != 0);
    domain.act_as(0);
    REQUIRE(read_signals(fd, got, sizeof(got)) == 2 * sizeof(got[0]));
    CHECK(got[0].ssi_signo == SIGHUP);
    CHECK(got[1].ssi_signo == SIGTERM);
    CHECK_FALSE(signal_fd_ready(fd));
    CHECK(runtime.process->pending.set == signal_bit(SIGUSR1));
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
