// Reading clocks. All of them are views of the domain's virtual time; reading takes no turn.
//
// CPU clocks have no deterministic truth: they show the virtual time since the process or thread started,
// which rises and is the same everywhere. A program with the right may set the wall clock, for the domain
// alone.
#include <linux/capability.h>
#include <sys/timex.h>

#include <cstring>

#include "interpose/core/runtime.hpp"
#include "interpose/core/user_memory.hpp"

using namespace crane::interpose;

namespace {

constexpr long kTickNs = 10'000'000;  // sysconf(_SC_CLK_TCK) is 100 on Linux
constexpr long kCoarseNs = 4'000'000;

uint64_t cpu_time_ns() {
    const uint64_t born = runtime.process->born_ns;
    return now_realtime_ns() - (born ? born : domain_start_ns());
}

uint64_t thread_cpu_time_ns() {
    const uint64_t born = domain().threads[self.slot].born_ns;
    return born ? now_realtime_ns() - born : cpu_time_ns();
}

bool is_coarse(clockid_t clock) {
    return clock == CLOCK_REALTIME_COARSE || clock == CLOCK_MONOTONIC_COARSE;
}

/// Negative numbers are clocks of a process or thread (its id is in the upper bits, 0 for the caller's),
/// except those of a descriptor (low bits 3).
bool is_dynamic_cpu_clock(clockid_t clock) {
    if (clock >= 0 || (clock & 3) == 3) return false;
    const int id = ~(clock >> 3);
    const bool of_thread = clock & 4;
    if (id == 0) return true;
    return of_thread ? raw(SYS_tgkill, raw(SYS_getpid), id, 0) == 0 : raw(SYS_kill, id, 0) != -ESRCH;
}

/// False: no such clock.
bool read_clock_ns(clockid_t clock, uint64_t& ns) {
    switch (clock) {
        case CLOCK_REALTIME:
        case CLOCK_REALTIME_COARSE:
        case CLOCK_REALTIME_ALARM:
        case CLOCK_TAI:
            ns = wall_clock_ns();
            return true;
        case CLOCK_MONOTONIC:
        case CLOCK_MONOTONIC_RAW:
        case CLOCK_MONOTONIC_COARSE:
        case CLOCK_BOOTTIME:
        case CLOCK_BOOTTIME_ALARM:
            ns = now_monotonic_ns();
            return true;
        case CLOCK_PROCESS_CPUTIME_ID:
            ns = cpu_time_ns();
            return true;
        case CLOCK_THREAD_CPUTIME_ID:
            ns = thread_cpu_time_ns();
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

bool may_set_clock() {
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct data[2]{};
    return raw(SYS_capget, &header, data) == 0 && (data[0].effective & (1U << CAP_SYS_TIME));
}

/// Of the whole domain, as a machine has one.
int set_wall_clock(uint64_t wanted_ns) {
    if (!may_set_clock()) return fail(EPERM);
    Operation turn(Op::kTimer, own_key());
    domain().wall_shift_ns = static_cast<int64_t>(wanted_ns - now_realtime_ns());
    scheduler().signal_set(wall_clock_bit());
    return 0;
}

}  // namespace

CRANE_EXPORT int clock_gettime(clockid_t clock, timespec* time) noexcept {
    if (!active()) return resolve_real(), real.clock_gettime(clock, time);
    count_clock_reading();
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
    count_clock_reading();
    if (time) *time = to_timeval(wall_clock_ns());
    return !zone || store(zone, (struct timezone){}) ? 0 : fail(EFAULT);
}

CRANE_EXPORT time_t time(time_t* place) noexcept {
    if (!active()) return resolve_real(), real.time(place);
    count_clock_reading();
    const time_t now = static_cast<time_t>(wall_clock_ns() / kNsPerSecond);
    if (place) *place = now;
    return now;
}

CRANE_EXPORT int timespec_get(timespec* time, int base) noexcept {
    if (!active()) return resolve_real(), real.timespec_get(time, base);
    if (base != TIME_UTC) return 0;
    count_clock_reading();
    *time = to_timespec(wall_clock_ns());
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
    count_clock_reading();
    return static_cast<clock_t>(cpu_time_ns() / (kNsPerSecond / CLOCKS_PER_SEC));
}

CRANE_EXPORT clock_t times(tms* out) noexcept {
    if (!active()) return resolve_real(), real.times(out);
    if (out)
        *out = {static_cast<clock_t>(cpu_time_ns() / kTickNs), 0,
                static_cast<clock_t>(runtime.process->children_ns / kTickNs), 0};
    return static_cast<clock_t>(now_monotonic_ns() / kTickNs);
}

CRANE_EXPORT int getrusage(__rusage_who_t who, rusage* usage) noexcept {
    if (!active()) return resolve_real(), real.getrusage(who, usage);
    if (who != RUSAGE_SELF && who != RUSAGE_CHILDREN && who != RUSAGE_THREAD) return fail(EINVAL);
    std::memset(usage, 0, sizeof(*usage));
    usage->ru_utime = to_timeval(who == RUSAGE_CHILDREN ? runtime.process->children_ns
                                 : who == RUSAGE_THREAD ? thread_cpu_time_ns()
                                                        : cpu_time_ns());
    return 0;
}

CRANE_EXPORT int clock_settime(clockid_t clock, const timespec* time) noexcept {
    if (!active()) return resolve_real(), real.clock_settime(clock, time);
    const bool settable = clock == CLOCK_REALTIME;
    uint64_t now;
    if (!settable && clock >= 0 && !read_clock_ns(clock, now)) return fail(EINVAL);
    if (!settable) return fail(EINVAL);
    timespec given;
    if (!fetch(given, time)) return fail(EFAULT);
    if (!valid_timespec(&given)) return fail(EINVAL);
    return set_wall_clock(crane::interpose::to_ns(given));
}

CRANE_EXPORT int settimeofday(const timeval* time, const struct timezone* zone) noexcept {
    if (!active()) return resolve_real(), real.settimeofday(time, zone);
    if (!time) return may_set_clock() ? 0 : fail(EPERM);
    if (time->tv_sec < 0 || time->tv_usec < 0 || time->tv_usec >= 1'000'000) return fail(EINVAL);
    return set_wall_clock(static_cast<uint64_t>(time->tv_sec) * kNsPerSecond +
                          static_cast<uint64_t>(time->tv_usec) * 1000);
}

CRANE_EXPORT int adjtime(const timeval* delta, timeval* old) noexcept {
    if (!active()) return resolve_real(), real.adjtime(delta, old);
    if (delta) return fail(EPERM);
    if (old) *old = {};
    return 0;
}

namespace {

int read_adjustment(timex* adjustment) {
    timex told{};
    if (!fetch(told, adjustment)) return fail(EFAULT);
    if (told.modes != 0) return fail(EPERM);
    told = {};
    told.time = to_timeval(wall_clock_ns());
    told.tick = 10'000;
    return store(adjustment, told) ? TIME_OK : fail(EFAULT);
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
