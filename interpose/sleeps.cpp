// Sleeping: a wait for nothing but virtual time, cut short by a signal as the kernel's is.
#include "interpose/core/runtime.hpp"
#include "interpose/core/signals.hpp"
#include "interpose/core/threads.hpp"
#include "interpose/core/user_memory.hpp"

using namespace crane::interpose;

namespace {

/// Sleeps in a turn of its own. Returns 0 or EINTR, and what was left at the interruption.
int sleep_in_turn(bool absolute, clockid_t clock, const timespec& when, uint64_t& left_ns) {
    Operation turn(Op::kSleep, own_key());
    const bool by_wall = absolute && clock == CLOCK_REALTIME;
    uint64_t deadline =
        absolute ? deadline_from_absolute(clock, when) : deadline_from_relative_ns(to_ns(when));
    for (;;) {
        if (handler_due()) break;
        const auto result = turn.wait(own_key(), deadline, true, by_wall ? wall_clock_bit() : 0);
        if (result == crane::dmt::WaitResult::kTimedOut) return 0;
        if (result == crane::dmt::WaitResult::kInterrupted) break;
        if (by_wall) deadline = deadline_from_absolute(clock, when);  // it was set
    }
    const uint64_t now = now_realtime_ns();
    if (deadline == crane::dmt::kNoDeadline) {
        left_ns = to_ns(when);
    } else {
        left_ns = deadline > now ? deadline - now : 0;
    }
    return EINTR;
}

int sleep_as_asked(bool absolute, clockid_t clock, const timespec* when, timespec* left) {
    timespec asked;
    if (!fetch(asked, when)) return EFAULT;
    if (!valid_timespec(&asked)) return EINVAL;
    uint64_t left_ns = 0;
    // Outside the turn: a cancelled thread unwinds from here.
    test_cancel();
    const int result = sleep_in_turn(absolute, clock, asked, left_ns);
    if (result == EINTR && !absolute && left && !store(left, to_timespec(left_ns))) return EFAULT;
    test_cancel();
    return result;
}

int sleep_ns(uint64_t ns, timespec* left) {
    const timespec when = to_timespec(ns);
    return sleep_as_asked(false, CLOCK_REALTIME, &when, left);
}

}  // namespace

CRANE_EXPORT int nanosleep(const timespec* time, timespec* left) {
    if (!active()) return resolve_real(), real.nanosleep(time, left);
    const int error = sleep_as_asked(false, CLOCK_REALTIME, time, left);
    if (error == 0) return 0;
    errno = error;
    return -1;
}

CRANE_EXPORT int clock_nanosleep(clockid_t clock, int flags, const timespec* time, timespec* left) {
    if (!active()) return resolve_real(), real.clock_nanosleep(clock, flags, time, left);
    switch (clock) {
        case CLOCK_TAI:
        case CLOCK_REALTIME_ALARM:
            clock = CLOCK_REALTIME;
            break;
        case CLOCK_REALTIME:
        case CLOCK_MONOTONIC:
        case CLOCK_BOOTTIME:
        case CLOCK_BOOTTIME_ALARM:
            break;
        case CLOCK_PROCESS_CPUTIME_ID:
            // Its stand-in runs with virtual time, so a span of it is a span of that.
            if (flags & TIMER_ABSTIME) return ENOTSUP;
            break;
        case CLOCK_REALTIME_COARSE:
        case CLOCK_MONOTONIC_COARSE:
        case CLOCK_MONOTONIC_RAW:
            return ENOTSUP;
        default:
            return EINVAL;
    }
    return sleep_as_asked(flags & TIMER_ABSTIME, clock, time, left);
}

CRANE_EXPORT int usleep(useconds_t us) {
    if (!active()) return resolve_real(), real.usleep(us);
    if (sleep_ns(uint64_t{us} * 1000, nullptr) == 0) return 0;
    errno = EINTR;
    return -1;
}

CRANE_EXPORT unsigned int sleep(unsigned int seconds) {
    if (!active()) return resolve_real(), real.sleep(seconds);
    timespec left{};
    const int saved = errno;
    if (sleep_ns(seconds * kNsPerSecond, &left) == 0) return 0;
    errno = saved;
    return static_cast<unsigned int>(left.tv_sec);
}
