// The daemon's clocks, in one place.
#pragma once

#include <time.h>

#include <cstdint>

namespace crane::proxy {

inline uint64_t clock_ns(clockid_t id) {
    timespec now{};
    clock_gettime(id, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}
inline uint64_t monotonic_ns() {
    return clock_ns(CLOCK_MONOTONIC);
}
inline uint64_t realtime_ns() {
    return clock_ns(CLOCK_REALTIME);
}

}  // namespace crane::proxy
