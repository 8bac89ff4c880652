// Virtual time as programs see it: views of the scheduler's clock, and deadlines on it.
#pragma once

#include <ctime>

#include "interpose/core/context.hpp"

namespace crane::interpose {

constexpr uint64_t kNsPerSecond = 1'000'000'000;
/// What the monotonic clock shows when the domain starts.
constexpr uint64_t kUptimeAtStartNs = 1000 * kNsPerSecond;

inline uint64_t now_realtime_ns() {
    return scheduler().read_clock(self.slot);
}
inline uint64_t now_monotonic_ns() {
    return now_realtime_ns() - domain().monotonic_offset_ns;
}
/// The program's wall clock, which it may have set. Deadlines and the rest go by now_realtime_ns().
inline uint64_t wall_clock_ns() {
    return now_realtime_ns() + static_cast<uint64_t>(domain().wall_shift_ns);
}
/// Those who sleep until a time of the wall clock look again when it is set.
uint64_t wall_clock_bit();
/// Virtual time at which the domain started.
inline uint64_t domain_start_ns() {
    return domain().monotonic_offset_ns + kUptimeAtStartNs;
}
uint64_t to_ns(const timespec& time);
timespec to_timespec(uint64_t ns);
/// The realtime deadline of an absolute time on `clock`; at least 1, so that it is never "none".
uint64_t deadline_from_absolute(clockid_t clock, const timespec& when);
uint64_t deadline_from_relative_ns(uint64_t ns);
bool valid_timespec(const timespec* time);

}  // namespace crane::interpose
