#include "proxy/disk_watch.hpp"

#include <algorithm>

namespace crane::proxy {

namespace {

/// Some looks (each housekeeping), and what the log needs to come to rest.
constexpr uint64_t kAheadMs = 1000;
/// Slower than this it does not matter.
constexpr uint64_t kFastBytesPerS = 1 << 20;

}  // namespace

bool DiskWatch::observe(uint64_t free_bytes, uint64_t total_bytes, uint64_t now_ns) {
    limit_bytes_ = std::min(reserve_bytes_, total_bytes / 20);
    const uint64_t passed_ms = (now_ns - seen_ns_) / 1'000'000;
    if (seen_ns_ != 0 && passed_ms != 0) {
        const uint64_t fell = free_bytes_ - std::min(free_bytes_, free_bytes);
        // Who writes in bursts is between two of them for a while.
        falls_bytes_per_s_ = std::max(fell / passed_ms * 1000, falls_bytes_per_s_ / 2);
    }
    seen_ns_ = now_ns;
    free_bytes_ = free_bytes;
    const uint64_t soon = free_bytes - std::min(free_bytes, falls_bytes_per_s_ / 1000 * kAheadMs);
    // A quarter more before it goes on, or it would stop and go on all the time at the limit.
    const bool now_low = soon < (low_ ? limit_bytes_ + limit_bytes_ / 4 : limit_bytes_);
    critical_ = free_bytes < (critical_ ? limit_bytes_ : limit_bytes_ / 2);
    const bool changed = now_low != low_;
    low_ = now_low;
    return changed;
}

std::string DiskWatch::alarm(const std::string& path) const {
    if (!low_) return "";
    const bool fast = falls_bytes_per_s_ > kFastBytesPerS;
    return "DISK FULL: " + std::to_string(free_bytes_ >> 20) + " MiB are left where " + path + " is" +
           (fast ? " (" + std::to_string(falls_bytes_per_s_ >> 20) + " MiB/s less)" : "") +
           ", and the log needs " + std::to_string(limit_bytes_ >> 20) +
           " MiB in reserve: until there is room again this replica leads only where no other can, and takes "
           "no input then; free some space";
}

}  // namespace crane::proxy
