#include "proxy/disk_watch.hpp"

#include <algorithm>

namespace crane::proxy {

bool DiskWatch::observe(uint64_t free_bytes, uint64_t total_bytes) {
    limit_bytes_ = std::min(reserve_bytes_, total_bytes / 20);
    free_bytes_ = free_bytes;
    // A quarter more before it goes on, or it would stop and go on all the time at the limit.
    const bool now_low = free_bytes < (low_ ? limit_bytes_ + limit_bytes_ / 4 : limit_bytes_);
    critical_ = free_bytes < (critical_ ? limit_bytes_ : limit_bytes_ / 2);
    const bool changed = now_low != low_;
    low_ = now_low;
    return changed;
}

std::string DiskWatch::alarm(const std::string& path) const {
    if (!low_) return "";
    return "DISK FULL: " + std::to_string(free_bytes_ >> 20) + " MiB are left where " + path +
           " is, and the log needs " + std::to_string(limit_bytes_ >> 20) +
           " MiB in reserve: until there is room again this replica leads only where no other can, and takes "
           "no input then; free some space";
}

}  // namespace crane::proxy
