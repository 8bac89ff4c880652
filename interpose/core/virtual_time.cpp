#include "interpose/core/virtual_time.hpp"

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
    uint64_t ns = to_ns(when);
    if (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE) ns += domain().monotonic_offset_ns;
    return ns ? ns : 1;
}

uint64_t deadline_from_relative_ns(uint64_t ns) {
    if (ns > 8'000'000'000 * kNsPerSecond) return dmt::kNoDeadline;
    return now_realtime_ns() + ns;
}

}  // namespace crane::interpose
