// The stat family: what differs between replicas' file systems is shown as a stand-in (times, inode and
// device numbers, block counts, sizes and link counts of directories), the rest as it is.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <cstring>

#include "interpose/core/fds.hpp"
#include "interpose/core/file_identity.hpp"
#include "interpose/core/file_times.hpp"
#include "interpose/core/process_files.hpp"
#include "interpose/core/shared_operation.hpp"
#include "interpose/core/user_memory.hpp"

using namespace crane::interpose;

namespace {

constexpr uint32_t kBlockBytes = 4096;
constexpr uint32_t kSectorBytes = 512;
/// Up to the device's number, which is the last that every kernel knows.
constexpr size_t kBasicBytes = offsetof(struct statx, stx_dev_minor) + sizeof(statx::stx_dev_minor);

statx_timestamp to_timestamp(int64_t ns) {
    constexpr auto kSecond = static_cast<int64_t>(kNsPerSecond);
    statx_timestamp time{};
    time.tv_sec = ns / kSecond - (ns % kSecond < 0);
    time.tv_nsec = static_cast<uint32_t>((ns % kSecond + kSecond) % kSecond);
    return time;
}

int64_t to_ns(const statx_timestamp& time) {
    return time.tv_sec * static_cast<int64_t>(kNsPerSecond) + time.tv_nsec;
}

/// One link, as some file systems have it: how many subdirectories there are is not told. But for that of a
/// process's threads: a sandbox looks there whether it has but one, and ends if that is not told.
uint32_t links_of_folder(const struct statx& info, int fd, const char* path, int at_flags) {
    char name[64];
    const bool may_be_of_tasks = info.stx_size == 0 && info.stx_nlink > 2;
    if (may_be_of_tasks && path_of_file(info, fd, path, at_flags, name, sizeof(name)))
        if (const uint64_t links = links_of_tasks(name); links != 0) return static_cast<uint32_t>(links);
    return std::min(info.stx_nlink, uint32_t{1});
}

void make_stable(struct statx& info, int fd, const char* path, int at_flags) {
    const statx_timestamp time = settled_mtime(info, fd, path, at_flags);
    const uint64_t inode = stable_inode(info, fd, path, at_flags);
    const uint64_t device = stable_device(info, fd, path, at_flags);
    const int64_t read_ns = time_of_access_ns(info);
    const int64_t changed_ns = time_of_change_ns(info, to_ns(time));
    info.stx_mtime = info.stx_atime = time;
    info.stx_ctime = to_timestamp(changed_ns);
    if (read_ns != kNoTime) info.stx_atime = to_timestamp(read_ns);
    info.stx_btime = {};
    // What later kernels and some file systems say besides: mounts, attributes, alignments.
    info.stx_mask &= STATX_BASIC_STATS;
    info.stx_attributes = info.stx_attributes_mask = 0;
    std::memset(reinterpret_cast<char*>(&info) + kBasicBytes, 0, sizeof(info) - kBasicBytes);
    info.stx_ino = inode;
    info.stx_dev_major = major(device);
    info.stx_dev_minor = minor(device);
    info.stx_blksize = kBlockBytes;
    const auto type = info.stx_mode & S_IFMT;
    if (type == S_IFDIR) {
        info.stx_nlink = links_of_folder(info, fd, path, at_flags);
        info.stx_size = kBlockBytes;
    }
    info.stx_blocks = type == S_IFREG || type == S_IFDIR
                          ? (info.stx_size + kBlockBytes - 1) / kBlockBytes * (kBlockBytes / kSectorBytes)
                          : 0;
}

long stable_statx(int fd, const char* path, int at_flags, unsigned mask, struct statx* info) {
    if ((at_flags & AT_EMPTY_PATH) && is_reserved_fd(fd)) return -EBADF;
    SharedOperation turn(Op::kFile, files_key());
    if (is_of_ended_orphan(path)) return -ENOENT;
    const long rc = raw(SYS_statx, fd, path, at_flags, mask | STATX_BASIC_STATS | STATX_BTIME, info);
    if (rc == 0) make_stable(*info, fd, path, at_flags);
    const bool by_descriptor = (at_flags & AT_EMPTY_PATH) && (!path || !*path);
    if (rc == 0 && by_descriptor && only_seems_socket(fd)) info->stx_mode = S_IRUSR | S_IWUSR;
    return rc;
}

timespec to_timespec(const statx_timestamp& time) {
    return {static_cast<time_t>(time.tv_sec), static_cast<long>(time.tv_nsec)};
}

void convert(const struct statx& from, struct stat* to) {
    std::memset(to, 0, sizeof(*to));
    to->st_dev = makedev(from.stx_dev_major, from.stx_dev_minor);
    to->st_ino = from.stx_ino;
    to->st_mode = from.stx_mode;
    to->st_nlink = from.stx_nlink;
    to->st_uid = from.stx_uid;
    to->st_gid = from.stx_gid;
    to->st_rdev = makedev(from.stx_rdev_major, from.stx_rdev_minor);
    to->st_size = static_cast<off_t>(from.stx_size);
    to->st_blksize = from.stx_blksize;
    to->st_blocks = static_cast<blkcnt_t>(from.stx_blocks);
    to->st_atim = to_timespec(from.stx_atime);
    to->st_mtim = to_timespec(from.stx_mtime);
    to->st_ctim = to_timespec(from.stx_ctime);
}

int answer(long rc) {
    if (rc >= 0) return static_cast<int>(rc);
    errno = static_cast<int>(-rc);
    return -1;
}

/// `out` is a struct stat or stat64: one and the same here.
int stat_at(int fd, const char* path, void* out, int at_flags) {
    auto* place = static_cast<struct stat*>(out);
    if (!active()) return answer(raw(SYS_newfstatat, fd, path, place, at_flags));
    struct statx info;
    const long rc = stable_statx(fd, path, at_flags, STATX_BASIC_STATS, &info);
    if (rc != 0) return answer(rc);
    struct stat told;
    convert(info, &told);
    return answer(store(place, told) ? 0 : -EFAULT);
}

int stat_fd(int fd, void* out) {
    // As a path, "" with a bad descriptor of -100 would mean the working directory.
    return fd < 0 ? answer(-EBADF) : stat_at(fd, "", out, AT_EMPTY_PATH);
}

static_assert(sizeof(struct stat) == sizeof(struct stat64));
constexpr int kStatVersions = 1;  ///< _STAT_VER of x86-64; 0 is the kernel's, the same

}  // namespace

CRANE_EXPORT int stat(const char* path, struct stat* out) noexcept {
    return stat_at(AT_FDCWD, path, out, 0);
}
CRANE_EXPORT int stat64(const char* path, struct stat64* out) noexcept {
    return stat_at(AT_FDCWD, path, out, 0);
}
CRANE_EXPORT int lstat(const char* path, struct stat* out) noexcept {
    return stat_at(AT_FDCWD, path, out, AT_SYMLINK_NOFOLLOW);
}
CRANE_EXPORT int lstat64(const char* path, struct stat64* out) noexcept {
    return stat_at(AT_FDCWD, path, out, AT_SYMLINK_NOFOLLOW);
}
CRANE_EXPORT int fstat(int fd, struct stat* out) noexcept {
    return stat_fd(fd, out);
}
CRANE_EXPORT int fstat64(int fd, struct stat64* out) noexcept {
    return stat_fd(fd, out);
}
CRANE_EXPORT int fstatat(int fd, const char* path, struct stat* out, int flags) noexcept {
    return stat_at(fd, path, out, flags);
}
CRANE_EXPORT int fstatat64(int fd, const char* path, struct stat64* out, int flags) noexcept {
    return stat_at(fd, path, out, flags);
}

CRANE_EXPORT int statx(int fd, const char* path, int flags, unsigned int mask, struct statx* out) noexcept {
    if (!active()) return answer(raw(SYS_statx, fd, path, flags, mask, out));
    return answer(stable_statx(fd, path, flags, mask, out));
}

// What programs linked against glibc before 2.33 call.

CRANE_EXPORT int __xstat(int version, const char* path, struct stat* out) noexcept {
    return version > kStatVersions ? answer(-EINVAL) : stat_at(AT_FDCWD, path, out, 0);
}
CRANE_EXPORT int __xstat64(int version, const char* path, struct stat64* out) noexcept {
    return version > kStatVersions ? answer(-EINVAL) : stat_at(AT_FDCWD, path, out, 0);
}
CRANE_EXPORT int __lxstat(int version, const char* path, struct stat* out) noexcept {
    return version > kStatVersions ? answer(-EINVAL) : stat_at(AT_FDCWD, path, out, AT_SYMLINK_NOFOLLOW);
}
CRANE_EXPORT int __lxstat64(int version, const char* path, struct stat64* out) noexcept {
    return version > kStatVersions ? answer(-EINVAL) : stat_at(AT_FDCWD, path, out, AT_SYMLINK_NOFOLLOW);
}
CRANE_EXPORT int __fxstat(int version, int fd, struct stat* out) noexcept {
    return version > kStatVersions ? answer(-EINVAL) : stat_fd(fd, out);
}
CRANE_EXPORT int __fxstat64(int version, int fd, struct stat64* out) noexcept {
    return version > kStatVersions ? answer(-EINVAL) : stat_fd(fd, out);
}
CRANE_EXPORT int __fxstatat(int version, int fd, const char* path, struct stat* out, int flags) noexcept {
    return version > kStatVersions ? answer(-EINVAL) : stat_at(fd, path, out, flags);
}
CRANE_EXPORT int __fxstatat64(int version, int fd, const char* path, struct stat64* out, int flags) noexcept {
    return version > kStatVersions ? answer(-EINVAL) : stat_at(fd, path, out, flags);
}
