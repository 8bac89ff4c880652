#include "proxy/disk_watch.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace crane::proxy {

namespace {

constexpr uint64_t kMsNs = 1'000'000;
/// What the log needs to come to rest.
constexpr uint64_t kAheadMs = 100;
/// A shorter time says little of how fast it goes.
constexpr uint64_t kMeasureMs = 100;
constexpr uint64_t kLongestLookMs = 250, kShortestLookMs = 10;
/// Page caches take no more than this, or hardly.
constexpr uint64_t kUnseenBytesPerS = 2ULL << 30;
constexpr uint64_t kFastBytesPerS = 1 << 20;
/// Some threads that make empty files.
constexpr uint64_t kUnseenFilesPerS = 200'000;
constexpr uint64_t kFastFilesPerS = 10;

}  // namespace

void DiskLevel::observe(uint64_t free, uint64_t limit, uint64_t now_ns) {
    limit_ = limit;
    const uint64_t passed_ms = (now_ns - measured_ns_) / kMsNs;
    if (measured_ns_ == 0 || passed_ms >= kMeasureMs) {
        const uint64_t fell = measured_free_ - std::min(measured_free_, free);
        // Who writes in bursts is between two of them for a while.
        if (measured_ns_ != 0) falls_per_s_ = std::max(fell / passed_ms * 1000, falls_per_s_ / 2);
        measured_ns_ = now_ns;
        measured_free_ = free;
    }
    free_ = free;
    const uint64_t soon = free - std::min(free, falls_per_s_ / 1000 * kAheadMs);
    // A quarter more before it goes on, or it would stop and go on all the time at the limit.
    low_ = soon < (low_ ? limit_ + limit_ / 4 : limit_);
    critical_ = free < (critical_ ? limit_ : limit_ / 2);
}

uint64_t DiskLevel::next_look_ns() const {
    const uint64_t edge = low_ ? limit_ / 2 : limit_;
    if (critical_) return kLongestLookMs * kMsNs;  // there is nothing left to be missed
    const uint64_t slack = free_ - std::min(free_, edge);
    const uint64_t per_ms = std::max(falls_per_s_, unseen_per_s_) / 1000;
    return std::clamp(slack / 2 / per_ms, kShortestLookMs, kLongestLookMs) * kMsNs;
}

DiskWatch::DiskWatch(uint64_t reserve_bytes)
    : reserve_bytes_(reserve_bytes),
      bytes_(kUnseenBytesPerS, kFastBytesPerS),
      files_(kUnseenFilesPerS, kFastFilesPerS) {}

bool DiskWatch::observe(const DiskSpace& space, uint64_t now_ns) {
    const bool before = low();
    bytes_.observe(space.free_bytes, std::min(reserve_bytes_, space.total_bytes / 20), now_ns);
    files_.observe(space.free_files, std::min(kReserveFiles, space.total_files / 20), now_ns);
    return low() != before;
}

uint64_t DiskWatch::next_look_ns() const {
    // What is critical already is not looked at for the sake of what is not.
    return critical() ? kLongestLookMs * kMsNs : std::min(bytes_.next_look_ns(), files_.next_look_ns());
}

std::string DiskWatch::free_text() const {
    const std::string mib = std::to_string(bytes_.free() >> 20) + " MiB";
    return files_.free() == kUnboundedFiles ? mib : mib + ", " + std::to_string(files_.free()) + " files";
}

std::string DiskWatch::alarm(const std::string& path) const {
    if (!low()) return "";
    std::string what;
    if (bytes_.low()) {
        const uint64_t falls = bytes_.falls_per_s() >> 20;
        what = std::to_string(bytes_.free() >> 20) + " MiB are left where " + path + " is" +
               (bytes_.falls_per_s() ? " (" + std::to_string(falls) + " MiB/s less)" : "") +
               ", and the log needs " + std::to_string(bytes_.limit() >> 20) + " MiB in reserve";
    }
    if (files_.low()) {
        what += (what.empty() ? "" : "; ") + std::to_string(files_.free()) +
                " more files can be made where " + path + " is (its inodes are used up)" +
                (files_.falls_per_s() ? " (" + std::to_string(files_.falls_per_s()) + "/s less)" : "") +
                ", and " + std::to_string(files_.limit()) + " are kept in reserve for the log";
    }
    return "DISK FULL: " + what +
           ": until there is room again this replica leads only where no other can, and takes "
           "no input then; " +
           (bytes_.low() ? "free some space" : "remove some files");
}

nlohmann::json disk_json(const DiskWatch& disk, uint64_t reserve_bytes) {
    nlohmann::json files;  // null: as many as there is room for
    if (disk.free_files() != kUnboundedFiles) files = disk.free_files();
    return {{"free_bytes", disk.free_bytes()}, {"reserve_bytes", reserve_bytes}, {"free_files", files}};
}

}  // namespace crane::proxy
