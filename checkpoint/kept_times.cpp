#include "checkpoint/kept_times.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>

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

bool set_time(const std::string& path, uint64_t time_ns) {
    timespec times[2] = {{0, UTIME_OMIT}, {0, UTIME_NOW}};
    if (time_ns != kJustChanged)
        times[1] = {static_cast<time_t>(time_ns / kNsPerSecond), static_cast<long>(time_ns % kNsPerSecond)};
    return ::utimensat(AT_FDCWD, path.c_str(), times, 0) == 0;
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
        if (!set_time(path, one.at(1).get<uint64_t>()))
            throw std::runtime_error("setting the time of " + path + ": " + std::strerror(errno));
    }
}

FolderTimes::FolderTimes(const std::string& container_dir) {
    const auto note = [this](const fs::path& folder) {
        struct stat info {};
        if (::lstat(folder.c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) return;
        if (const uint64_t time_ns = settled_ns(info); time_ns != kJustChanged) times_ns_[folder] = time_ns;
    };
    std::error_code ignored;
    const auto note_all = [&](const std::string& upper) {
        note(upper);
        for (const auto& one : fs::recursive_directory_iterator(upper, ignored))
            if (one.is_directory(ignored) && !one.is_symlink(ignored)) note(one.path());
    };
    note_all(container_dir + "/upper");
    for (const auto& mount : fs::directory_iterator(container_dir + "/mounts", ignored))
        note_all(mount.path().string() + "/upper");
}

void FolderTimes::set_again() const {
    for (const auto& [path, time_ns] : times_ns_) {
        struct stat info {};
        if (::lstat(path.c_str(), &info) != 0 || !S_ISDIR(info.st_mode) || to_ns(info.st_mtim) == time_ns)
            continue;
        if (!set_time(path, time_ns))
            throw std::runtime_error("setting the time of " + path + ": " + std::strerror(errno));
    }
}

}  // namespace crane::checkpoint
