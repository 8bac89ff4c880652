// The daemon's clocks, in one place.
#pragma once

#include <time.h>

#include <cstdint>

namespace crane {

inline uint64_t clock_ns(clockid_t id) {
    timespec now{};
    clock_gettime(id, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}
inline uint64_t monotonic_ns() {
    return clock_ns(CLOCK_MONOTONIC);
}
/// The same, but it counts on while the host is suspended.
inline uint64_t boottime_ns() {
    return clock_ns(CLOCK_BOOTTIME);
}
/// May be set to anything at any time: the timekeeper alone judges it.
inline uint64_t realtime_ns() {
    return clock_ns(CLOCK_REALTIME);
}

}  // namespace crane
