#include "proxy/disk_watch.hpp"

#include <algorithm>

namespace crane::proxy {

namespace {

constexpr uint64_t kMsNs = 1'000'000;
/// What the log needs to come to rest.
constexpr uint64_t kAheadMs = 100;
/// A shorter time says little of how fast it goes.
constexpr uint64_t kMeasureMs = 100;
constexpr uint64_t kLongestLookMs = 250, kShortestLookMs = 10;
/// Who begins to write after a look was not seen to. Page caches take no more than this, or hardly.
constexpr uint64_t kUnseenBytesPerS = 2ULL << 30;
/// Slower than this it does not matter.
constexpr uint64_t kFastBytesPerS = 1 << 20;

}  // namespace

bool DiskWatch::observe(uint64_t free_bytes, uint64_t total_bytes, uint64_t now_ns) {
    limit_bytes_ = std::min(reserve_bytes_, total_bytes / 20);
    const uint64_t passed_ms = (now_ns - measured_ns_) / kMsNs;
    if (measured_ns_ == 0 || passed_ms >= kMeasureMs) {
        const uint64_t fell = measured_free_bytes_ - std::min(measured_free_bytes_, free_bytes);
        // Who writes in bursts is between two of them for a while.
        if (measured_ns_ != 0) falls_bytes_per_s_ = std::max(fell / passed_ms * 1000, falls_bytes_per_s_ / 2);
        measured_ns_ = now_ns;
        measured_free_bytes_ = free_bytes;
    }
    free_bytes_ = free_bytes;
    const uint64_t soon = free_bytes - std::min(free_bytes, falls_bytes_per_s_ / 1000 * kAheadMs);
    // A quarter more before it goes on, or it would stop and go on all the time at the limit.
    const bool now_low = soon < (low_ ? limit_bytes_ + limit_bytes_ / 4 : limit_bytes_);
    critical_ = free_bytes < (critical_ ? limit_bytes_ : limit_bytes_ / 2);
    const bool changed = now_low != low_;
    low_ = now_low;
    return changed;
}

uint64_t DiskWatch::next_look_ns() const {
    const uint64_t edge = low_ ? limit_bytes_ / 2 : limit_bytes_;
    if (critical_) return kLongestLookMs * kMsNs;  // there is nothing left to be missed
    const uint64_t slack = free_bytes_ - std::min(free_bytes_, edge);
    const uint64_t bytes_per_ms = std::max(falls_bytes_per_s_, kUnseenBytesPerS) / 1000;
    return std::clamp(slack / 2 / bytes_per_ms, kShortestLookMs, kLongestLookMs) * kMsNs;
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
