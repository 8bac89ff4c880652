// Timers that end in a signal or a call: alarm, ualarm, setitimer(ITIMER_REAL), timer_create.
//
// A thread of the shim's own, made at the first use in a process, sleeps in the schedule until the earliest
// of them is due and then sends the signal: so it arrives at a logical point. Like the kernel's, the timers
// are not inherited by fork, and the interval timer is by the program of an exec.
//
// Timers of CPU time are refused: how much a process computes is not the same on two machines.
#include "interpose/alarms.hpp"

#include <linux/capability.h>

#include <cstring>

#include "interpose/core/runtime.hpp"
#include "interpose/core/shared_operation.hpp"
#include "interpose/core/signals.hpp"
#include "interpose/core/threads.hpp"
#include "interpose/core/user_memory.hpp"
#include "interpose/notice_threads.hpp"

using namespace crane::interpose;

namespace {

constexpr uint32_t kTimers = 512;
constexpr uint32_t kIntervalTimer = 0;  ///< alarm and ITIMER_REAL are one timer, as in the kernel

struct SignalTimer {
    bool used;
    bool realtime;
    uint64_t next_ns;  ///< 0: disarmed
    uint64_t interval_ns;
    bool by_wall;      ///< armed for a time of the wall clock
    int64_t shift_ns;  ///< of the wall clock, when next_ns was reckoned
    int notify;
    int signal;
    int tid;
    uint64_t overruns;
    void (*function)(sigval);
    sigval value;
    size_t stack_bytes, guard_bytes;  ///< of the threads that call it
};

/// This process's timers; the schedule's order guards them.
struct Timers {
    uint64_t owner;  ///< Process::ordinal + 1: a forked child starts afresh
    bool thread_made;
    bool making_thread;
    bool refusal_said;
    long follows;  ///< number of a system call that the thread is to make, too; 0: none
    long arguments[5];
    SignalTimer timers[kTimers];
};
Timers own_timers;

int fail(int error) {
    errno = error;
    return -1;
}

uint64_t owner() {
    return runtime.process->ordinal + 1;
}

Timers& timers() {
    if (own_timers.owner != owner()) {
        std::memset(static_cast<void*>(&own_timers), 0, sizeof(own_timers));
        own_timers.owner = owner();
        SignalTimer& interval = own_timers.timers[kIntervalTimer];
        interval.used = interval.realtime = true;
        interval.notify = SIGEV_SIGNAL;
        interval.signal = SIGALRM;
    }
    return own_timers;
}

uint64_t wake_key() {
    return address_key(&own_timers);
}

uint64_t followed_key() {
    return address_key(&own_timers.follows);
}

/// Turn in hand. The arguments are those of a caller that waits.
void follow_identity() {
    const long number = own_timers.follows;
    if (number == 0) return;
    long(&a)[5] = own_timers.arguments;
    __user_cap_header_struct header{};
    if (number == SYS_capset && fetch(header, reinterpret_cast<const void*>(a[0]))) {
        header.pid = 0;  // itself
        a[0] = reinterpret_cast<long>(&header);
    }
    raw(number, a[0], a[1], a[2], a[3], a[4]);
    own_timers.follows = 0;
    scheduler().signal(followed_key(), UINT32_MAX);
}

/// The program has set its clock: what waits for a time of it comes sooner or later.
void follow_wall_clock() {
    const int64_t shift = domain().wall_shift_ns;
    for (SignalTimer& timer : own_timers.timers) {
        if (!timer.used || !timer.by_wall || timer.next_ns == 0 || timer.shift_ns == shift) continue;
        const int64_t next = static_cast<int64_t>(timer.next_ns) + timer.shift_ns - shift;
        timer.next_ns = next > 0 ? static_cast<uint64_t>(next) : 1;
        timer.shift_ns = shift;
    }
}

uint64_t earliest_ns() {
    uint64_t earliest = crane::dmt::kNoDeadline;
    for (const SignalTimer& timer : own_timers.timers) {
        if (!timer.used || timer.next_ns == 0) continue;
        if (earliest == crane::dmt::kNoDeadline || timer.next_ns < earliest) earliest = timer.next_ns;
    }
    return earliest;
}

/// A thread of this process.
crane::dmt::SlotId own_slot_of_tid(int tid) {
    const crane::dmt::SlotId slot = slot_of_tid(tid);
    const bool own =
        slot != crane::dmt::kNoSlot && domain().scheduler.slots[slot].process == runtime.process_index;
    return own ? slot : crane::dmt::kNoSlot;
}

struct Call {
    void (*function)(sigval);
    sigval value;
    size_t stack_bytes, guard_bytes;
};

/// One that cannot be made, for want of a thread, is lost, as with libc.
void make(const Call& call) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, call.stack_bytes);
    pthread_attr_setguardsize(&attributes, call.guard_bytes);
    call_in_own_thread(call.function, call.value, &attributes, NoticeMask::kInherited);
    pthread_attr_destroy(&attributes);
}

/// Those that the program asks for; the kind of scheduling has no effect.
void take_attributes(SignalTimer& timer, const sigevent& event) {
    pthread_attr_t defaults;
    pthread_attr_init(&defaults);
    const auto* given = static_cast<const pthread_attr_t*>(event.sigev_notify_attributes);
    pthread_attr_getstacksize(given ? given : &defaults, &timer.stack_bytes);
    pthread_attr_getguardsize(given ? given : &defaults, &timer.guard_bytes);
    pthread_attr_destroy(&defaults);
}

/// Fires what is due. Turn in hand. Calls of SIGEV_THREAD are put into `calls`, to be made after the turn.
uint32_t fire_due(Call* calls) {
    uint32_t count = 0;
    const uint64_t now = domain().scheduler.now_ns;
    for (SignalTimer& timer : own_timers.timers) {
        if (!timer.used || timer.next_ns == 0 || timer.next_ns > now) continue;
        uint64_t times = 1;
        if (timer.interval_ns) times += (now - timer.next_ns) / timer.interval_ns;
        timer.next_ns = timer.interval_ns ? timer.next_ns + times * timer.interval_ns : 0;
        timer.overruns = times - 1;
        if (timer.notify == SIGEV_THREAD) {
            calls[count++] = {timer.function, timer.value, timer.stack_bytes, timer.guard_bytes};
        } else if (timer.notify != SIGEV_NONE) {
            const bool thread = timer.notify == SIGEV_THREAD_ID;
            const crane::dmt::SlotId slot = thread ? own_slot_of_tid(timer.tid) : crane::dmt::kNoSlot;
            // The thread it was meant for is gone: so is the signal.
            if (thread && slot == crane::dmt::kNoSlot) continue;
            const auto number = static_cast<int>(&timer - own_timers.timers);
            const auto value = reinterpret_cast<uint64_t>(timer.value.sival_ptr);
            post_signal(runtime.process_index,
                        number == static_cast<int>(kIntervalTimer)
                            ? signal_from_kernel(timer.signal)
                            : signal_of_timer(timer.signal, number, timer.overruns, value),
                        slot);
            const PendingSignals& pending =
                thread ? domain().threads[slot].pending : runtime.process->pending;
            const int32_t overruns = overruns_pending(pending, timer.signal, number);
            if (overruns >= 0) timer.overruns = static_cast<uint64_t>(overruns);
        }
    }
    return count;
}

/// What sigfillset() has; the functions that timers call find it blocked.
constexpr uint64_t kBlockable =
    ~(signal_bit(SIGKILL) | signal_bit(SIGSTOP) | signal_bit(32) | signal_bit(33));

void* timer_thread(void*) {
    Call calls[kTimers];
    for (;;) {
        uint32_t count = 0;
        {
            Operation turn(Op::kTimer, wake_key());
            domain().threads[self.slot].mask = kBlockable;
            follow_identity();
            follow_wall_clock();
            count = fire_due(calls);
            if (count == 0) turn.wait(wake_key(), earliest_ns(), false, wall_clock_bit());
        }
        for (uint32_t i = 0; i < count; ++i) make(calls[i]);
    }
    return nullptr;
}

/// Outside a turn: making a thread is an operation of its own.
bool ensure_thread() {
    {
        const SharedOperation turn(Op::kTimer, followed_key());
        if (timers().thread_made || timers().making_thread) return true;
        timers().making_thread = true;
    }
    const bool made = begin_helper(timer_thread);
    const Operation turn(Op::kTimer, followed_key());
    own_timers.making_thread = false;
    own_timers.thread_made = made;
    scheduler().signal(followed_key(), UINT32_MAX);
    return made;
}

void arm(SignalTimer& timer, uint64_t next_ns, uint64_t interval_ns, bool by_wall = false) {
    timer.next_ns = next_ns;
    timer.interval_ns = interval_ns;
    timer.by_wall = by_wall;
    timer.shift_ns = domain().wall_shift_ns;
    timer.overruns = 0;
    scheduler().signal(wake_key(), 1);
}

/// What is left, and the interval, as {value, interval} in ns.
uint64_t left_ns(const SignalTimer& timer) {
    if (timer.next_ns == 0) return 0;
    const uint64_t now = now_realtime_ns();
    // Due but not fired yet: never 0, which would mean disarmed.
    return timer.next_ns > now ? timer.next_ns - now : 1000;
}

uint64_t to_ns(const timeval& time) {
    return static_cast<uint64_t>(time.tv_sec) * kNsPerSecond + static_cast<uint64_t>(time.tv_usec) * 1000;
}

timeval to_timeval(uint64_t ns) {
    return {static_cast<time_t>(ns / kNsPerSecond), static_cast<suseconds_t>(ns % kNsPerSecond / 1000)};
}

bool valid_timeval(const timeval& time) {
    return time.tv_sec >= 0 && time.tv_usec >= 0 && time.tv_usec < 1'000'000;
}

/// Sets the interval timer to go off `ns` from now (0: never) and returns what was left.
uint64_t set_interval_timer(uint64_t ns, uint64_t interval_ns) {
    if (ns != 0) ensure_thread();
    Operation turn(Op::kTimer, wake_key());
    SignalTimer& timer = timers().timers[kIntervalTimer];
    const uint64_t before = left_ns(timer);
    arm(timer, ns ? deadline_from_relative_ns(ns) : 0, interval_ns);
    return before;
}

void say_refusal_once(const char* what) {
    Operation turn(Op::kTimer, wake_key());
    // PHP sets such a timer in each request.
    if (timers().refusal_said) return;
    timers().refusal_said = true;
    refuse_call(what);
}

SignalTimer* find_timer(timer_t id) {
    const auto index = reinterpret_cast<uintptr_t>(id);
    if (index == kIntervalTimer || index >= kTimers) return nullptr;
    SignalTimer& timer = timers().timers[index];
    return timer.used ? &timer : nullptr;
}

}  // namespace

namespace crane::interpose {

void have_timer_thread_follow(long number, const long* arguments, bool succeeded) {
    if (self.slot != runtime.process->main_slot) return;
    Operation turn(Op::kTimer, followed_key());
    if (!succeeded || own_timers.owner != owner()) return;
    while (own_timers.making_thread) turn.wait(followed_key());
    if (!own_timers.thread_made) return;
    own_timers.follows = number;
    std::memcpy(own_timers.arguments, arguments, sizeof(own_timers.arguments));
    scheduler().signal(wake_key(), 1);
    while (own_timers.follows != 0) turn.wait(followed_key());
}

void leave_alarm_to_program(bool scheduled) {
    const SignalTimer& timer = timers().timers[kIntervalTimer];
    runtime.process->alarm_ns = scheduled ? timer.next_ns : 0;
    runtime.process->alarm_interval_ns = timer.interval_ns;
    if (scheduled || timer.next_ns == 0) return;
    const itimerval left{to_timeval(timer.interval_ns), to_timeval(left_ns(timer))};
    raw(SYS_setitimer, ITIMER_REAL, &left, nullptr);
}

namespace {

void go_on_with_alarm() {
    if (!ensure_thread())
        report("no thread for the alarm that the program was started with: it does not come");
    Operation turn(Op::kTimer, wake_key());
    Process& process = *runtime.process;
    arm(timers().timers[kIntervalTimer], process.alarm_ns, process.alarm_interval_ns);
    process.alarm_ns = 0;
}

/// Before anything is attached.
__attribute__((constructor(101))) void offer_alarm() {
    take_over_alarm = go_on_with_alarm;
}

}  // namespace
}  // namespace crane::interpose

CRANE_EXPORT unsigned int alarm(unsigned int seconds) noexcept {
    if (!active()) return resolve_real(), real.alarm(seconds);
    const uint64_t before = set_interval_timer(seconds * kNsPerSecond, 0);
    // Rounded as the kernel does: never down to "none was set".
    const uint64_t rounded = (before + kNsPerSecond / 2) / kNsPerSecond;
    return static_cast<unsigned int>(before != 0 && rounded == 0 ? 1 : rounded);
}

CRANE_EXPORT useconds_t ualarm(useconds_t value, useconds_t interval) noexcept {
    if (!active()) return resolve_real(), real.ualarm(value, interval);
    return static_cast<useconds_t>(set_interval_timer(value * 1000ULL, interval * 1000ULL) / 1000);
}

CRANE_EXPORT int getitimer(__itimer_which_t which, itimerval* value) noexcept {
    if (!active()) return resolve_real(), real.getitimer(which, value);
    if (which != ITIMER_REAL && which != ITIMER_VIRTUAL && which != ITIMER_PROF) return fail(EINVAL);
    if (!store(value, itimerval{})) return fail(EFAULT);
    if (which != ITIMER_REAL) return 0;
    Operation turn(Op::kTimer, wake_key());
    const SignalTimer& timer = timers().timers[kIntervalTimer];
    *value = {to_timeval(timer.interval_ns), to_timeval(left_ns(timer))};
    return 0;
}

CRANE_EXPORT int setitimer(__itimer_which_t which, const itimerval* value, itimerval* old) noexcept {
    if (!active()) return resolve_real(), real.setitimer(which, value, old);
    itimerval asked{};
    if (value && !fetch(asked, value)) return fail(EFAULT);
    if (old && ::getitimer(which, old) != 0) return -1;
    if (!valid_timeval(asked.it_value) || !valid_timeval(asked.it_interval)) return fail(EINVAL);
    if (which != ITIMER_REAL) {
        if (to_ns(asked.it_value) == 0) return 0;
        say_refusal_once("setitimer with a timer of CPU time");
        return fail(EINVAL);
    }
    set_interval_timer(to_ns(asked.it_value), to_ns(asked.it_interval));
    return 0;
}

CRANE_EXPORT int timer_create(clockid_t clock, sigevent* event, timer_t* id) noexcept {
    if (!active()) return resolve_real(), real.timer_create(clock, event, id);
    const bool realtime = clock == CLOCK_REALTIME || clock == CLOCK_TAI || clock == CLOCK_REALTIME_ALARM;
    if (!realtime && clock != CLOCK_MONOTONIC && clock != CLOCK_BOOTTIME && clock != CLOCK_BOOTTIME_ALARM) {
        if (clock < 0 || clock == CLOCK_PROCESS_CPUTIME_ID || clock == CLOCK_THREAD_CPUTIME_ID) {
            say_refusal_once("timer_create with a clock of CPU time");
        }
        return fail(EINVAL);
    }
    SignalTimer made{};
    made.used = true;
    made.realtime = realtime;
    made.notify = SIGEV_SIGNAL;
    made.signal = SIGALRM;
    if (!readable_if_given(event)) return fail(EFAULT);
    if (event) {
        made.notify = event->sigev_notify;
        made.signal = event->sigev_signo;
        made.value = event->sigev_value;
        if (made.notify == SIGEV_THREAD) {
            made.function = event->sigev_notify_function;
            take_attributes(made, *event);
        }
        if (made.notify == SIGEV_THREAD_ID) made.tid = event->_sigev_un._tid;
        const bool by_signal = made.notify == SIGEV_SIGNAL || made.notify == SIGEV_THREAD_ID;
        if (!by_signal && made.notify != SIGEV_NONE && made.notify != SIGEV_THREAD) return fail(EINVAL);
        if (by_signal && (made.signal < 1 || made.signal >= kSignals)) return fail(EINVAL);
    }
    if (!ensure_thread()) return fail(EAGAIN);
    Operation turn(Op::kTimer, wake_key());
    for (uint32_t i = kIntervalTimer + 1; i < kTimers; ++i) {
        SignalTimer& timer = timers().timers[i];
        if (timer.used) continue;
        timer = made;
        *id = reinterpret_cast<timer_t>(static_cast<uintptr_t>(i));
        return 0;
    }
    return fail(EAGAIN);
}

CRANE_EXPORT int timer_gettime(timer_t id, itimerspec* value) noexcept {
    if (!active()) return resolve_real(), real.timer_gettime(id, value);
    Operation turn(Op::kTimer, wake_key());
    const SignalTimer* timer = find_timer(id);
    if (!timer) return fail(EINVAL);
    const itimerspec told{to_timespec(timer->interval_ns), to_timespec(left_ns(*timer))};
    return store(value, told) ? 0 : fail(EFAULT);
}

CRANE_EXPORT int timer_settime(timer_t id, int flags, const itimerspec* value, itimerspec* old) noexcept {
    if (!active()) return resolve_real(), real.timer_settime(id, flags, value, old);
    if (!value) return fail(EINVAL);
    itimerspec wanted{};  // `old` may be the same
    if (!fetch(wanted, value) || !writable_if_given(old)) return fail(EFAULT);
    if (!valid_timespec(&wanted.it_value) || !valid_timespec(&wanted.it_interval)) return fail(EINVAL);
    Operation turn(Op::kTimer, wake_key());
    SignalTimer* timer = find_timer(id);
    if (!timer) return fail(EINVAL);
    if (old) *old = {to_timespec(timer->interval_ns), to_timespec(left_ns(*timer))};
    uint64_t next = 0;
    if (crane::interpose::to_ns(wanted.it_value) != 0) {
        next =
            flags & TIMER_ABSTIME
                ? deadline_from_absolute(timer->realtime ? CLOCK_REALTIME : CLOCK_MONOTONIC, wanted.it_value)
                : deadline_from_relative_ns(crane::interpose::to_ns(wanted.it_value));
    }
    arm(*timer, next, crane::interpose::to_ns(wanted.it_interval),
        (flags & TIMER_ABSTIME) && timer->realtime);
    return 0;
}

CRANE_EXPORT int timer_getoverrun(timer_t id) noexcept {
    if (!active()) return resolve_real(), real.timer_getoverrun(id);
    Operation turn(Op::kTimer, wake_key());
    const SignalTimer* timer = find_timer(id);
    return timer ? static_cast<int>(timer->overruns) : fail(EINVAL);
}

CRANE_EXPORT int timer_delete(timer_t id) noexcept {
    if (!active()) return resolve_real(), real.timer_delete(id);
    Operation turn(Op::kTimer, wake_key());
    SignalTimer* timer = find_timer(id);
    if (!timer) return fail(EINVAL);
    *timer = {};
    return 0;
}
