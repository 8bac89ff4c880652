// Reading clocks. All of them are views of the domain's virtual time; reading takes no turn.
//
// CPU clocks have no deterministic truth: they show the virtual time since the domain started, which rises
// and is the same everywhere. Clocks are not the program's to set: EPERM, as for a process without the right.
#include <sys/timex.h>

#include <cstring>

#include "interpose/core/runtime.hpp"

using namespace crane::interpose;

namespace {

constexpr long kTickNs = 10'000'000;  // sysconf(_SC_CLK_TCK) is 100 on Linux
constexpr long kCoarseNs = 4'000'000;

uint64_t cpu_time_ns() {
    return now_monotonic_ns() - kUptimeAtStartNs;
}

bool is_coarse(clockid_t clock) {
    return clock == CLOCK_REALTIME_COARSE || clock == CLOCK_MONOTONIC_COARSE;
}

/// Negative numbers are clocks of a process or thread, except those of a descriptor (low bits 3).
bool is_dynamic_cpu_clock(clockid_t clock) {
    return clock < 0 && (clock & 7) != 3;
}

/// False: no such clock.
bool read_clock_ns(clockid_t clock, uint64_t& ns) {
    switch (clock) {
        case CLOCK_REALTIME:
        case CLOCK_REALTIME_COARSE:
        case CLOCK_REALTIME_ALARM:
        case CLOCK_TAI:
            ns = now_realtime_ns();
            return true;
        case CLOCK_MONOTONIC:
        case CLOCK_MONOTONIC_RAW:
        case CLOCK_MONOTONIC_COARSE:
        case CLOCK_BOOTTIME:
        case CLOCK_BOOTTIME_ALARM:
            ns = now_monotonic_ns();
            return true;
        case CLOCK_PROCESS_CPUTIME_ID:
        case CLOCK_THREAD_CPUTIME_ID:
            ns = cpu_time_ns();
            return true;
        default:
            if (!is_dynamic_cpu_clock(clock)) return false;
            ns = cpu_time_ns();
            return true;
    }
}

timeval to_timeval(uint64_t ns) {
    return {static_cast<time_t>(ns / kNsPerSecond), static_cast<suseconds_t>(ns % kNsPerSecond / 1000)};
}

int fail(int error) {
    errno = error;
    return -1;
}

}  // namespace

CRANE_EXPORT int clock_gettime(clockid_t clock, timespec* time) noexcept {
    if (!active()) return resolve_real(), real.clock_gettime(clock, time);
    uint64_t ns;
    if (!read_clock_ns(clock, ns)) return fail(EINVAL);
    *time = to_timespec(ns);
    return 0;
}

CRANE_EXPORT int clock_getres(clockid_t clock, timespec* resolution) noexcept {
    if (!active()) return resolve_real(), real.clock_getres(clock, resolution);
    uint64_t ns;
    if (!read_clock_ns(clock, ns)) return fail(EINVAL);
    if (resolution) *resolution = {0, is_coarse(clock) ? kCoarseNs : 1};
    return 0;
}

CRANE_EXPORT int gettimeofday(timeval* time, void* zone) noexcept {
    if (!active()) return resolve_real(), real.gettimeofday(time, zone);
    // Declared nonnull, yet called with none.
    asm("" : "+r"(time));
    if (time) *time = to_timeval(now_realtime_ns());
    if (zone) std::memset(zone, 0, sizeof(struct timezone));
    return 0;
}

CRANE_EXPORT time_t time(time_t* place) noexcept {
    if (!active()) return resolve_real(), real.time(place);
    const time_t now = static_cast<time_t>(now_realtime_ns() / kNsPerSecond);
    if (place) *place = now;
    return now;
}

CRANE_EXPORT int timespec_get(timespec* time, int base) noexcept {
    if (!active()) return resolve_real(), real.timespec_get(time, base);
    if (base != TIME_UTC) return 0;
    *time = to_timespec(now_realtime_ns());
    return base;
}

/// Declared no more, but old binaries call it.
struct crane_timeb {
    time_t time;
    unsigned short millitm;
    short timezone, dstflag;
};

CRANE_EXPORT int ftime(crane_timeb* out) {
    timespec now;
    ::clock_gettime(CLOCK_REALTIME, &now);
    *out = {now.tv_sec, static_cast<unsigned short>(now.tv_nsec / 1'000'000), 0, 0};
    return 0;
}

CRANE_EXPORT clock_t clock() noexcept {
    if (!active()) return resolve_real(), real.clock();
    return static_cast<clock_t>(cpu_time_ns() / (kNsPerSecond / CLOCKS_PER_SEC));
}

CRANE_EXPORT clock_t times(tms* out) noexcept {
    if (!active()) return resolve_real(), real.times(out);
    if (out) *out = {static_cast<clock_t>(cpu_time_ns() / kTickNs), 0, 0, 0};
    return static_cast<clock_t>(now_monotonic_ns() / kTickNs);
}

CRANE_EXPORT int getrusage(__rusage_who_t who, rusage* usage) noexcept {
    if (!active()) return resolve_real(), real.getrusage(who, usage);
    if (who != RUSAGE_SELF && who != RUSAGE_CHILDREN && who != RUSAGE_THREAD) return fail(EINVAL);
    std::memset(usage, 0, sizeof(*usage));
    if (who != RUSAGE_CHILDREN) usage->ru_utime = to_timeval(cpu_time_ns());
    return 0;
}

CRANE_EXPORT int clock_settime(clockid_t clock, const timespec* time) noexcept {
    return active() ? fail(EPERM) : real.clock_settime(clock, time);
}

CRANE_EXPORT int settimeofday(const timeval* time, const struct timezone* zone) noexcept {
    return active() ? fail(EPERM) : real.settimeofday(time, zone);
}

CRANE_EXPORT int adjtime(const timeval* delta, timeval* old) noexcept {
    if (!active()) return resolve_real(), real.adjtime(delta, old);
    if (delta) return fail(EPERM);
    if (old) *old = {};
    return 0;
}

namespace {

int read_adjustment(timex* adjustment) {
    if (adjustment->modes != 0) return fail(EPERM);
    *adjustment = {};
    adjustment->time = to_timeval(now_realtime_ns());
    adjustment->tick = 10'000;
    return TIME_OK;
}

}  // namespace

CRANE_EXPORT int adjtimex(timex* adjustment) noexcept {
    return active() ? read_adjustment(adjustment) : real.adjtimex(adjustment);
}

CRANE_EXPORT int ntp_adjtime(timex* adjustment) noexcept {
    return active() ? read_adjustment(adjustment) : real.adjtimex(adjustment);
}

CRANE_EXPORT int clock_adjtime(clockid_t clock, timex* adjustment) noexcept {
    return active() ? read_adjustment(adjustment) : real.clock_adjtime(clock, adjustment);
}
