#include "checkpoint/domain_files.hpp"

#include <fcntl.h>
#include <fts.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <vector>

#include "checkpoint/command.hpp"

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
constexpr char kCopying[] = "copying the server's files";
constexpr char kLayersFile[] = "/layers", kGathered[] = "/files.tar";
constexpr uint64_t kNsPerSecond = 1'000'000'000;

uint64_t to_ns(const timespec& time) {
    return static_cast<uint64_t>(time.tv_sec) * kNsPerSecond + static_cast<uint64_t>(time.tv_nsec);
}

/// The folders that hold upper layers: of the root, and of other mounts.
std::vector<std::string> upper_layers(const std::string& container_dir) {
    std::vector<std::string> uppers{container_dir + "/upper"};
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(container_dir + "/mounts", ignored))
        uppers.push_back(entry.path().string() + "/upper");
    return uppers;
}

bool is_unsettled(const struct stat& info, uint64_t since_ns) {
    const bool has_own_times = S_ISREG(info.st_mode) || S_ISDIR(info.st_mode) || S_ISLNK(info.st_mode);
    const uint64_t changed = to_ns(info.st_ctim);
    return has_own_times && changed == to_ns(info.st_mtim) && changed >= since_ns;
}

/// Calls visit(path) for each file below the folders that is_unsettled(), folders after what is in them.
template <typename Visit>
void each_unsettled(const std::vector<std::string>& folders, uint64_t since_ns, Visit visit) {
    for (const std::string& folder : folders) {
        char* const roots[] = {const_cast<char*>(folder.c_str()), nullptr};
        const std::unique_ptr<FTS, int (*)(FTS*)> walk(
            ::fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR | FTS_XDEV, nullptr), ::fts_close);
        if (!walk) throw std::runtime_error("reading " + folder + ": " + std::strerror(errno));
        while (const FTSENT* entry = ::fts_read(walk.get())) {
            if (entry->fts_info == FTS_DNR || entry->fts_info == FTS_ERR || entry->fts_info == FTS_NS)
                throw std::runtime_error(std::string("reading ") + entry->fts_path + ": " +
                                         std::strerror(entry->fts_errno));
            // Folders once, when all below them is done.
            if (entry->fts_info != FTS_D && is_unsettled(*entry->fts_statp, since_ns)) visit(entry->fts_path);
        }
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
    each_unsettled(upper_layers(container_dir), since_ns, [&](const char* path) {
        if (::utimensat(AT_FDCWD, path, times, AT_SYMLINK_NOFOLLOW) != 0)
            throw std::runtime_error(std::string("setting the time of ") + path + ": " +
                                     std::strerror(errno));
        ++settled;
    });
    return settled;
}

namespace {

std::string unsettled_below(const std::vector<std::string>& folders, const std::string& base,
                            uint64_t since_ns) {
    std::string files;
    each_unsettled(folders, since_ns, [&](const char* path) {
        files.append(path + base.size());
        files.push_back('\0');
    });
    return files;
}

}  // namespace

std::string unsettled_files(const std::string& container_dir, uint64_t since_ns) {
    return unsettled_below(upper_layers(container_dir), container_dir, since_ns);
}

std::string unsettled_in_folder(const std::string& folder) {
    return unsettled_below({folder}, folder, 0);
}

void unsettle(const std::string& container_dir, const std::string& files) {
    for (size_t at = 0; at < files.size();) {
        const std::string name = files.c_str() + at;
        at += name.size() + 1;
        const timespec now[2] = {{0, UTIME_OMIT}, {0, UTIME_NOW}};
        if (::utimensat(AT_FDCWD, (container_dir + name).c_str(), now, AT_SYMLINK_NOFOLLOW) != 0 &&
            errno != ENOENT)
            throw std::runtime_error("setting the time of " + container_dir + name + ": " +
                                     std::strerror(errno));
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
    for (const std::string& upper : upper_layers(container_dir))
        words->push_back("." + upper.substr(container_dir.size()));
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
    std::vector<std::string> words = making_of_layers(archive, container_dir);
    words.emplace_back(kCompress);
    if (kept == Kept::kFiles)
        words.insert(words.end(), {"--anchored", "--exclude=./upper/run", "--exclude=./upper/tmp"});
    name_layers(container_dir, &words);
    // A restart waits for it.
    const Pace pace = kept == Kept::kFiles ? Pace::kWaitedFor : Pace::kInBackground;
    run_command(words, "packing the server's files", 0, check, pace);
}

void copy_files(const std::string& container_dir, const std::string& copy, const Check& check) {
    fs::create_directories(copy);
    if (!share_blocks(container_dir, copy)) {
        std::vector<std::string> words = making_of_layers(copy + kGathered, container_dir);
        name_layers(container_dir, &words);
        run_command(words, kCopying, 0, check);
        return;
    }
    std::vector<std::string> all = upper_layers(container_dir);
    all.push_back(container_dir + kLayersFile);
    for (const std::string& from : all) {
        const std::string to = copy + from.substr(container_dir.size());
        fs::create_directories(fs::path(to).parent_path());
        run_command({kCp, "--archive", "--reflink=auto", "--no-target-directory", from, to}, kCopying, 0,
                    check);
    }
}

void pack_copy(const std::string& copy, const std::string& archive, const Check& check) {
    if (!fs::exists(copy + kGathered)) {
        pack_files(copy, archive, Kept::kAll, check);
        return;
    }
    run_command({kZstd, "-1", "--quiet", "--force", "-o", archive, copy + kGathered},
                "packing the server's files", 0, check, Pace::kInBackground);
}

void unpack_files(const std::string& archive, const std::string& container_dir) {
    run_command(extracting(archive, container_dir), "unpacking the server's files");
}

void pack_folder(const std::string& folder, const std::string& archive, Pace pace, const Check& check) {
    std::vector<std::string> words = making(archive, folder);
    words.insert(words.end(), {kCompress, "."});
    run_command(words, "packing " + folder, 0, check, pace);
}

void unpack_folder(const std::string& archive, const std::string& folder) {
    run_command(extracting(archive, folder), "unpacking " + archive);
}

}  // namespace crane::checkpoint
