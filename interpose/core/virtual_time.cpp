#include "interpose/core/virtual_time.hpp"

#include "interpose/core/objects.hpp"

namespace crane::interpose {

uint64_t to_ns(const timespec& time) {
    return static_cast<uint64_t>(time.tv_sec) * kNsPerSecond + static_cast<uint64_t>(time.tv_nsec);
}

timespec to_timespec(uint64_t ns) {
    return {static_cast<time_t>(ns / kNsPerSecond), static_cast<long>(ns % kNsPerSecond)};
}

bool valid_timespec(const timespec* time) {
    return time->tv_sec >= 0 && time->tv_nsec >= 0 && time->tv_nsec < static_cast<long>(kNsPerSecond);
}

uint64_t deadline_from_absolute(clockid_t clock, const timespec& when) {
    if (when.tv_sec < 0) return 1;
    // Far beyond any run: never due, and safe to add to.
    if (when.tv_sec > 8'000'000'000) return dmt::kNoDeadline;
    const auto ns = static_cast<int64_t>(to_ns(when));
    const bool wall = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
    const int64_t at =
        wall ? ns - domain().wall_shift_ns : ns + static_cast<int64_t>(domain().monotonic_offset_ns);
    return at > 0 ? static_cast<uint64_t>(at) : 1;
}

uint64_t wall_clock_bit() {
    return set_bit(ObjectKind::kTimer, kNone);
}

uint64_t deadline_from_relative_ns(uint64_t ns) {
    if (ns > 8'000'000'000 * kNsPerSecond) return dmt::kNoDeadline;
    return now_realtime_ns() + ns;
}

}  // namespace crane::interpose
