#include "checkpoint/kept_times.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "checkpoint/folder_walk.hpp"

namespace fs = std::filesystem;

namespace crane::checkpoint {
namespace {

constexpr uint64_t kNsPerSecond = 1'000'000'000;
constexpr uint64_t kJustChanged = 0;  ///< in place of a time

uint64_t to_ns(const timespec& time) {
    return static_cast<uint64_t>(time.tv_sec) * kNsPerSecond + static_cast<uint64_t>(time.tv_nsec);
}

/// kJustChanged: nobody has settled it since it was changed.
uint64_t settled_ns(const struct stat& info) {
    return to_ns(info.st_mtim) == to_ns(info.st_ctim) ? kJustChanged : to_ns(info.st_mtim);
}

timespec time_of(uint64_t time_ns) {
    if (time_ns == kJustChanged) return {0, UTIME_NOW};
    return {static_cast<time_t>(time_ns / kNsPerSecond), static_cast<long>(time_ns % kNsPerSecond)};
}

}  // namespace

nlohmann::json unlinked_times(const std::string& proc) {
    nlohmann::json times = nlohmann::json::array();
    std::error_code ignored;
    for (const auto& process : fs::directory_iterator(proc, ignored)) {
        const std::string pid = process.path().filename();
        if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
        for (const auto& one : fs::directory_iterator(process.path() / "fd", ignored)) {
            struct stat info {};
            if (::stat(one.path().c_str(), &info) != 0 || !S_ISREG(info.st_mode) || info.st_nlink != 0)
                continue;
            times.push_back({pid + "/fd/" + one.path().filename().string(), settled_ns(info)});
        }
    }
    return times;
}

void set_unlinked_times(const std::string& proc, const nlohmann::json& times) {
    for (const auto& one : times) {
        // Not those of craned, which the server has inherited: they are others here.
        const std::string path = proc + "/" + one.at(0).get<std::string>();
        struct stat info {};
        if (::stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode) || info.st_nlink != 0) continue;
        const timespec times[2] = {{0, UTIME_OMIT}, time_of(one.at(1).get<uint64_t>())};
        if (::utimensat(AT_FDCWD, path.c_str(), times, 0) != 0)
            throw std::runtime_error("setting the time of " + path + ": " + std::strerror(errno));
    }
}

FolderTimes::FolderTimes(const std::string& container_dir) : container_(container_dir) {
    const auto note_all = [this](const std::string& upper) {
        const Folder top = container_.below(upper);
        struct stat info {};
        if (::fstat(top.fd(), &info) == 0) note(upper, info);
        walk_folder(top, FolderOrder::kFirst, [&](const Walked& one) {
            if (one.is_folder) note(upper + one.path, one.look());
        });
    };
    note_all("/upper");
    std::error_code ignored;
    for (const auto& mount : fs::directory_iterator(container_dir + "/mounts", ignored))
        note_all("/mounts/" + mount.path().filename().string() + "/upper");
}

void FolderTimes::note(const std::string& path, const struct stat& info) {
    if (const uint64_t time_ns = settled_ns(info); time_ns != kJustChanged) times_ns_[path] = time_ns;
}

void FolderTimes::set_again() const {
    Lookup found(container_);
    for (const auto& [path, time_ns] : times_ns_) {
        const auto now = found.look(path, STATX_TYPE | STATX_MTIME);
        if (!now || !S_ISDIR(now->stx_mode)) continue;
        const auto& time = now->stx_mtime;
        if (static_cast<uint64_t>(time.tv_sec) * kNsPerSecond + time.tv_nsec != time_ns)
            found.stamp(path, time_of(time_ns));
    }
}

}  // namespace crane::checkpoint
