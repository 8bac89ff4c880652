// What a program asks about file systems, and where links of /proc lead: how large a host's disk is, how full
// and of what kind is its own business. Where it really ends, writes fail as they do everywhere.
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>

#include <cstring>

#include "interpose/core/file_identity.hpp"
#include "interpose/core/machine.hpp"
#include "interpose/core/process_files.hpp"
#include "interpose/core/shared_operation.hpp"

using namespace crane::interpose;

namespace {

constexpr uint64_t kOverlay = 0x794c7630;  ///< what a container's files are on
constexpr uint64_t kDiskBlocks = (uint64_t{256} << 30) / kPageBytes;
constexpr uint64_t kDiskFiles = 16 << 20;
constexpr long kLongestName = 255;

int answer(long rc) {
    if (rc >= 0) return static_cast<int>(rc);
    errno = static_cast<int>(-rc);
    return -1;
}

void show_space(struct statfs& system, uint64_t blocks, uint64_t free, uint64_t files, uint64_t free_files) {
    system.f_blocks = blocks;
    system.f_bfree = system.f_bavail = free;
    system.f_files = files;
    system.f_ffree = free_files;
}

void make_stable(struct statfs& system) {
    auto kind = static_cast<uint64_t>(system.f_type);
    long flags = system.f_flags & (ST_RDONLY | ST_NOSUID);
    if (!is_kernels_own(kind)) {
        kind = kOverlay;
        flags = (flags & ST_RDONLY) | ST_RELATIME;
        show_space(system, kDiskBlocks, kDiskBlocks / 4 * 3, kDiskFiles, kDiskFiles / 4 * 3);
    } else if (kind == TMPFS_MAGIC) {
        const uint64_t blocks = virtual_free_bytes() / kPageBytes;
        show_space(system, blocks, blocks, blocks, blocks);
    } else {
        if (kind == RAMFS_MAGIC) kind = SYSFS_MAGIC;
        show_space(system, 0, 0, 0, 0);
    }
    system.f_type = static_cast<decltype(system.f_type)>(kind);
    system.f_bsize = system.f_frsize = kPageBytes;
    system.f_namelen = kLongestName;
    constexpr long kValid = 0x0020;  // that there are flags, which statvfs() looks at
    system.f_flags = flags | kValid;
    std::memset(&system.f_fsid, 0, sizeof(system.f_fsid));
    std::memcpy(&system.f_fsid, &kind, sizeof(system.f_fsid));
    std::memset(system.f_spare, 0, sizeof(system.f_spare));
}

long stable_statfs(const char* path, struct statfs* out) {
    SharedOperation turn(Op::kFile, files_key());
    const long rc = raw(SYS_statfs, path, out);
    if (rc == 0) make_stable(*out);
    return rc;
}

long stable_fstatfs(int fd, struct statfs* out) {
    SharedOperation turn(Op::kFile, files_key());
    const long rc = raw(SYS_fstatfs, fd, out);
    if (rc == 0) make_stable(*out);
    return rc;
}

/// `out` is a structure of either name: one and the same here.
int statfs_at(const char* path, void* out) {
    auto* place = static_cast<struct statfs*>(out);
    return answer(active() ? stable_statfs(path, place) : raw(SYS_statfs, path, place));
}

int statfs_of(int fd, void* out) {
    auto* place = static_cast<struct statfs*>(out);
    return answer(active() ? stable_fstatfs(fd, place) : raw(SYS_fstatfs, fd, place));
}

int convert(long rc, const struct statfs& from, void* out) {
    if (rc < 0) return answer(rc);
    auto* to = static_cast<struct statvfs*>(out);
    std::memset(to, 0, sizeof(*to));
    to->f_bsize = static_cast<unsigned long>(from.f_bsize);
    to->f_frsize = static_cast<unsigned long>(from.f_frsize);
    to->f_blocks = from.f_blocks;
    to->f_bfree = from.f_bfree;
    to->f_bavail = from.f_bavail;
    to->f_files = from.f_files;
    to->f_ffree = to->f_favail = from.f_ffree;
    std::memcpy(&to->f_fsid, &from.f_fsid, sizeof(to->f_fsid));
    to->f_flag = static_cast<unsigned long>(from.f_flags & 0xf) |
                 static_cast<unsigned long>(from.f_flags & ST_RELATIME);
    to->f_namemax = static_cast<unsigned long>(from.f_namelen);
    return 0;
}

int statvfs_at(const char* path, void* out) {
    if (!active()) return resolve_real(), real.statvfs(path, static_cast<struct statvfs*>(out));
    struct statfs system {};
    return convert(stable_statfs(path, &system), system, out);
}

int statvfs_of(int fd, void* out) {
    if (!active()) return resolve_real(), real.fstatvfs(fd, static_cast<struct statvfs*>(out));
    struct statfs system {};
    return convert(stable_fstatfs(fd, &system), system, out);
}

static_assert(sizeof(struct statfs) == sizeof(struct statfs64));
static_assert(sizeof(struct statvfs) == sizeof(struct statvfs64));

/// What follows from the kind of file system; false: nothing does.
bool fixed_bound(int name, long& value) {
    switch (name) {
        case _PC_LINK_MAX:
            value = 127;  // as libc has it for kinds that it does not know
            return true;
        case _PC_FILESIZEBITS:
            value = 64;
            return true;
        case _PC_NAME_MAX:
            value = kLongestName;
            return true;
        case _PC_2_SYMLINKS:
            value = 1;
            return true;
        case _PC_REC_MIN_XFER_SIZE:
        case _PC_REC_XFER_ALIGN:
        case _PC_ALLOC_SIZE_MIN:
        case _PC_REC_INCR_XFER_SIZE:
            value = static_cast<long>(kPageBytes);
            return true;
        default:
            return false;
    }
}

// --- links

/// "name:[number]": an object of the kernel's, with the kernel's number.
char* number_in(char* text, long length) {
    if (length < 4 || text[length - 1] != ']') return nullptr;
    for (long at = length - 2; at > 1; --at) {
        if (text[at] >= '0' && text[at] <= '9') continue;
        return text[at] == '[' && text[at - 1] == ':' && at < length - 2 ? text + at + 1 : nullptr;
    }
    return nullptr;
}

/// In place of the number the one that stat() shows. A shorter place gets as much of it as there is room for.
long show_number(int fd, const char* path, char* place, char* digits, size_t room) {
    struct statx info;
    const long rc = raw(SYS_statx, fd, path, 0, STATX_BASIC_STATS | STATX_BTIME, &info);
    uint64_t number = rc == 0 ? stable_inode(info, fd, path, 0) : 0;
    char text[24];
    size_t count = 0;
    do text[count++] = static_cast<char>('0' + number % 10);
    while (number /= 10);
    size_t at = static_cast<size_t>(digits - place);
    while (count > 0 && at < room) place[at++] = text[--count];
    if (at < room) place[at++] = ']';
    return static_cast<long>(at);
}

ssize_t read_link(int fd, const char* path, char* place, size_t room) {
    if (!active()) return resolve_real(), real.readlinkat(fd, path, place, room);
    SharedOperation turn(Op::kFile, files_key());
    if (is_of_ended_orphan(path)) return answer(-ENOENT);
    const long length = raw(SYS_readlinkat, fd, path, place, room);
    if (length < 0) return answer(length);
    char* digits = number_in(place, length);
    struct statfs system {};
    if (!digits) return length;
    const long link = raw(SYS_openat, fd, path, O_PATH | O_NOFOLLOW | O_CLOEXEC, 0);
    if (link < 0) return length;
    raw(SYS_fstatfs, link, &system);
    raw(SYS_close, link);
    return system.f_type == PROC_SUPER_MAGIC ? show_number(fd, path, place, digits, room) : length;
}

}  // namespace

CRANE_EXPORT int statfs(const char* path, struct statfs* out) noexcept {
    return statfs_at(path, out);
}
CRANE_EXPORT int statfs64(const char* path, struct statfs64* out) noexcept {
    return statfs_at(path, out);
}
CRANE_EXPORT int fstatfs(int fd, struct statfs* out) noexcept {
    return statfs_of(fd, out);
}
CRANE_EXPORT int fstatfs64(int fd, struct statfs64* out) noexcept {
    return statfs_of(fd, out);
}
CRANE_EXPORT int statvfs(const char* path, struct statvfs* out) noexcept {
    return statvfs_at(path, out);
}
CRANE_EXPORT int statvfs64(const char* path, struct statvfs64* out) noexcept {
    return statvfs_at(path, out);
}
CRANE_EXPORT int fstatvfs(int fd, struct statvfs* out) noexcept {
    return statvfs_of(fd, out);
}
CRANE_EXPORT int fstatvfs64(int fd, struct statvfs64* out) noexcept {
    return statvfs_of(fd, out);
}

CRANE_EXPORT long pathconf(const char* path, int name) noexcept {
    long value = 0;
    if (!active() || !fixed_bound(name, value)) return resolve_real(), real.pathconf(path, name);
    struct statfs system {};
    const long rc = stable_statfs(path, &system);
    return rc < 0 ? answer(rc) : value;
}
CRANE_EXPORT long fpathconf(int fd, int name) noexcept {
    long value = 0;
    if (!active() || !fixed_bound(name, value)) return resolve_real(), real.fpathconf(fd, name);
    struct statfs system {};
    const long rc = stable_fstatfs(fd, &system);
    return rc < 0 ? answer(rc) : value;
}

CRANE_EXPORT ssize_t readlink(const char* path, char* place, size_t room) noexcept {
    return read_link(AT_FDCWD, path, place, room);
}
CRANE_EXPORT ssize_t readlinkat(int fd, const char* path, char* place, size_t room) noexcept {
    return read_link(fd, path, place, room);
}
CRANE_EXPORT ssize_t __readlink_chk(const char* path, char* place, size_t room, size_t) {
    return read_link(AT_FDCWD, path, place, room);
}
CRANE_EXPORT ssize_t __readlinkat_chk(int fd, const char* path, char* place, size_t room, size_t) {
    return read_link(fd, path, place, room);
}
