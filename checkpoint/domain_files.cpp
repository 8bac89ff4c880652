#include "checkpoint/domain_files.hpp"

#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <functional>
#include <stdexcept>
#include <vector>

#include "checkpoint/command.hpp"
#include "checkpoint/folder_walk.hpp"
#include "checkpoint/server_files.hpp"

namespace fs = std::filesystem;

namespace crane::checkpoint {
namespace {

constexpr char kTar[] = "/usr/bin/tar";
constexpr char kCp[] = "/usr/bin/cp";
/// Half the time of the usual level, for a tenth more bytes.
constexpr char kCompress[] = "--use-compress-program=zstd -1";
constexpr char kZstd[] = "/usr/bin/zstd";
/// Few calls: 256 KiB each.
constexpr char kBigBlocks[] = "--blocking-factor=512";
constexpr char kCopying[] = "copying the server's files", kPacking[] = "packing the server's files";
constexpr char kLayersFile[] = "/layers", kGathered[] = "/files.tar";
constexpr uint64_t kNsPerSecond = 1'000'000'000;

uint64_t to_ns(const timespec& time) {
    return static_cast<uint64_t>(time.tv_sec) * kNsPerSecond + static_cast<uint64_t>(time.tv_nsec);
}

/// The folders that hold upper layers, of the root and of other mounts: below that of the container.
std::vector<std::string> upper_layers(const std::string& container_dir) {
    std::vector<std::string> uppers{"/upper"};
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(container_dir + "/mounts", ignored))
        uppers.push_back("/mounts/" + entry.path().filename().string() + "/upper");
    return uppers;
}

bool is_unsettled(const struct stat& info, uint64_t since_ns) {
    const bool has_own_times = S_ISREG(info.st_mode) || S_ISDIR(info.st_mode) || S_ISLNK(info.st_mode);
    const uint64_t changed = to_ns(info.st_ctim);
    return has_own_times && changed == to_ns(info.st_mtim) && changed >= since_ns;
}

/// Of a file that is_unsettled(): `name` in the folder that is open as `folder`, or ("") that one itself.
struct Unsettled {
    int folder;
    const char* name;
    const std::string& top;   ///< below which it is
    const std::string& path;  ///< from there
};

/// Visits each below these folders of `base`, or they themselves, folders after what is in them.
void each_unsettled(const Folder& base, const std::vector<std::string>& folders, uint64_t since_ns,
                    const std::function<void(const Unsettled&)>& visit) {
    for (const std::string& folder : folders) {
        const Folder top = base.below(folder);
        walk_folder(top, FolderOrder::kLast, [&](const Walked& one) {
            if (is_unsettled(one.look(), since_ns)) visit({one.folder, one.name, folder, one.path});
        });
        struct stat info {};
        if (::fstat(top.fd(), &info) != 0)
            throw std::runtime_error("looking at " + top.path() + ": " + std::strerror(errno));
        if (is_unsettled(info, since_ns)) visit({top.fd(), "", folder, ""});
    }
}

/// What tar can lay out again.
constexpr size_t kMostNameBytes = PATH_MAX - 1;

void check_name(const std::string& top, const std::string& path) {
    if (top.size() + path.size() + 1 > kMostNameBytes)
        throw std::runtime_error(
            "the server has a file so deep in folders that no archive could bring it back: " +
            short_path(path));
}

void check_names(const std::string& base, const std::vector<std::string>& folders, const std::string& doing) {
    try {
        const Folder all(base);
        for (const std::string& folder : folders)
            walk_folder(all.below(folder), FolderOrder::kFirst,
                        [&](const Walked& one) { check_name(folder, one.path); });
    } catch (const std::runtime_error& error) {
        throw std::runtime_error(doing + ": " + error.what());
    }
}

}  // namespace

uint64_t file_clock_ns() {
    timespec now{};
    ::clock_gettime(CLOCK_REALTIME_COARSE, &now);
    return to_ns(now);
}

uint64_t settle_times(const std::string& container_dir, uint64_t since_ns, uint64_t time_ns) {
    const timespec times[2] = {
        {0, UTIME_OMIT},
        {static_cast<time_t>(time_ns / kNsPerSecond), static_cast<long>(time_ns % kNsPerSecond)}};
    uint64_t settled = 0;
    const Folder base(container_dir);
    each_unsettled(base, upper_layers(container_dir), since_ns, [&](const Unsettled& one) {
        const bool itself = *one.name == '\0';
        if ((itself ? ::futimens(one.folder, times)
                    : ::utimensat(one.folder, one.name, times, AT_SYMLINK_NOFOLLOW)) != 0)
            throw std::runtime_error("setting the time of " + short_path(container_dir + one.top + one.path) +
                                     ": " + std::strerror(errno));
        ++settled;
    });
    return settled;
}

namespace {

std::string unsettled_below(const std::string& base, const std::vector<std::string>& folders,
                            uint64_t since_ns) {
    std::string files;
    each_unsettled(Folder(base), folders, since_ns, [&](const Unsettled& one) {
        check_name(one.top, one.path);
        files.append(one.top).append(one.path).push_back('\0');
    });
    return files;
}

}  // namespace

std::string unsettled_files(const std::string& container_dir, uint64_t since_ns) {
    return unsettled_below(container_dir, upper_layers(container_dir), since_ns);
}

std::string unsettled_in_folder(const std::string& folder) {
    return unsettled_below(folder, {""}, 0);
}

void unsettle(const std::string& container_dir, const std::string& files) {
    const Folder base(container_dir);
    Lookup found(base);
    for (size_t at = 0; at < files.size();) {
        const std::string name = files.c_str() + at;
        at += name.size() + 1;
        found.stamp(name, {0, UTIME_NOW});
    }
}

namespace {

const std::vector<std::string> kAsItIs{"--numeric-owner",    "--acls",   "--xattrs",
                                       "--xattrs-include=*", "--sparse", kBigBlocks};

/// How tar is called to make `archive` of what is named behind it.
std::vector<std::string> making(const std::string& archive, const std::string& folder) {
    std::vector<std::string> words{
        kTar, "--create", "--file=" + archive, "--directory=" + folder, "--format=posix", "--sort=name"};
    words.insert(words.end(), kAsItIs.begin(), kAsItIs.end());
    return words;
}

std::vector<std::string> extracting(const std::string& archive, const std::string& folder) {
    std::vector<std::string> words{
        kTar,           "--extract",         "--zstd", "--file=" + archive, "--directory=" + folder,
        "--same-owner", "--same-permissions"};
    words.insert(words.end(), kAsItIs.begin(), kAsItIs.end());
    return words;
}

std::vector<std::string> making_of_layers(const std::string& archive, const std::string& container_dir) {
    std::vector<std::string> words = making(archive, container_dir);
    words.emplace_back("--pax-option=delete=atime,delete=ctime");
    return words;
}

void name_layers(const std::string& container_dir, std::vector<std::string>* words) {
    words->push_back(std::string(".") + kLayersFile);
    for (const std::string& upper : upper_layers(container_dir)) words->push_back("." + upper);
}

/// Can a file of the one be copied into the other without its data?
bool share_blocks(const std::string& from, const std::string& to) {
    const int source = ::open(from.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    const int copy = ::open(to.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    const bool shared = source >= 0 && copy >= 0 && ::ioctl(copy, FICLONE, source) == 0;
    if (source >= 0) ::close(source);
    if (copy >= 0) ::close(copy);
    return shared;
}

}  // namespace

void pack_files(const std::string& container_dir, const std::string& archive, Kept kept, const Check& check) {
    check_names(container_dir, upper_layers(container_dir), kPacking);
    std::vector<std::string> words = making_of_layers(archive, container_dir);
    words.emplace_back(kCompress);
    if (kept == Kept::kFiles)
        words.insert(words.end(), {"--anchored", "--exclude=./upper/run", "--exclude=./upper/tmp"});
    name_layers(container_dir, &words);
    // A restart waits for it.
    const Pace pace = kept == Kept::kFiles ? Pace::kWaitedFor : Pace::kInBackground;
    run_command(words, kPacking, 0, check, pace);
}

void copy_files(const std::string& container_dir, const std::string& copy, const Check& check) {
    check_names(container_dir, upper_layers(container_dir), kCopying);
    fs::create_directories(copy);
    if (!share_blocks(container_dir, copy)) {
        std::vector<std::string> words = making_of_layers(copy + kGathered, container_dir);
        name_layers(container_dir, &words);
        run_command(words, kCopying, 0, check);
        return;
    }
    std::vector<std::string> all = upper_layers(container_dir);
    all.emplace_back(kLayersFile);
    for (const std::string& one : all) {
        fs::create_directories(fs::path(copy + one).parent_path());
        run_command(
            {kCp, "--archive", "--reflink=auto", "--no-target-directory", container_dir + one, copy + one},
            kCopying, 0, check);
    }
}

void pack_copy(const std::string& copy, const std::string& archive, const Check& check) {
    if (!fs::exists(copy + kGathered)) {
        pack_files(copy, archive, Kept::kAll, check);
        return;
    }
    run_command({kZstd, "-1", "--quiet", "--force", "-o", archive, copy + kGathered}, kPacking, 0, check,
                Pace::kInBackground);
}

void unpack_files(const std::string& archive, const std::string& container_dir) {
    run_command(extracting(archive, container_dir), "unpacking the server's files");
}

void pack_folder(const std::string& folder, const std::string& archive, Pace pace, const Check& check) {
    check_names(folder, {""}, "packing " + folder);
    std::vector<std::string> words = making(archive, folder);
    words.insert(words.end(), {kCompress, "."});
    run_command(words, "packing " + folder, 0, check, pace);
}

void unpack_folder(const std::string& archive, const std::string& folder) {
    run_command(extracting(archive, folder), "unpacking " + archive);
}

}  // namespace crane::checkpoint
