// Changes to files that are not writes. Each moves ctime alone, which would hide a write before it: that is
// settled first (core/file_times.hpp). Times that the program sets are its own, "now" is the virtual one.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/xattr.h>
#include <utime.h>

#include <algorithm>
#include <cstdint>

#include "interpose/core/fds.hpp"
#include "interpose/core/file_identity.hpp"
#include "interpose/core/file_times.hpp"
#include "interpose/core/shared_operation.hpp"
#include "interpose/core/user_memory.hpp"

using namespace crane::interpose;

namespace {

int answer(long rc) {
    if (rc >= 0) return static_cast<int>(rc);
    errno = static_cast<int>(-rc);
    return -1;
}

/// With no path: the file behind `fd`.
void keep_time_of_change(int fd, const char* path, bool follow) {
    crane::interpose::keep_time_of_change(fd, path ? path : "",
                                          (follow ? 0 : AT_SYMLINK_NOFOLLOW) | (path ? 0 : AT_EMPTY_PATH));
}

template <typename... Args>
int change(int fd, const char* path, bool follow, long call, Args... args) {
    if (!active()) return answer(raw(call, args...));
    SharedOperation turn(Op::kFile, files_key());
    settle_path(fd, path, follow);
    const long rc = raw(call, args...);
    if (rc == 0) keep_time_of_change(fd, path, follow);
    return answer(rc);
}

/// With AT_SYMLINK_NOFOLLOW only fchmodat2 can do it; libc knows how to.
int change_mode_at(int fd, const char* path, mode_t mode, int flags) {
    if (flags != 0) {
        const bool follow = !(flags & AT_SYMLINK_NOFOLLOW);
        if (active()) settle_path(fd, path, follow);
        const int rc = real.fchmodat(fd, path, mode, flags);
        if (active() && rc == 0) keep_time_of_change(fd, path, follow);
        return rc;
    }
    return change(fd, path, true, SYS_fchmodat, fd, path, mode);
}

/// (fd, path) is the name of no file after it, or of another.
template <typename... Args>
int take_name(int fd, const char* path, int settled_fd, const char* settled, long call, Args... args) {
    if (!active()) return answer(raw(call, args...));
    SharedOperation turn(Op::kFile, files_key());
    settle_path(settled_fd, settled, false);
    const NameToGo name(fd, path);
    const long rc = raw(call, args...);
    if (rc == 0) name.gone();
    if (rc == 0 && call == SYS_renameat2) keep_time_of_change(fd, path, false);
    return answer(rc);
}

int unlink_at(int fd, const char* path, int flags) {
    return take_name(fd, path, fd, path, SYS_unlinkat, fd, path, flags);
}

int link_at(int from_fd, const char* from, int to_fd, const char* to, int flags) {
    return change(from_fd, from, flags & AT_SYMLINK_FOLLOW, SYS_linkat, from_fd, from, to_fd, to, flags);
}

int rename_at(int from_fd, const char* from, int to_fd, const char* to, unsigned flags) {
    if (flags & RENAME_EXCHANGE)
        return change(from_fd, from, false, SYS_renameat2, from_fd, from, to_fd, to, flags);
    return take_name(to_fd, to, from_fd, from, SYS_renameat2, from_fd, from, to_fd, to, flags);
}

}  // namespace

CRANE_EXPORT int chmod(const char* path, mode_t mode) noexcept {
    return change_mode_at(AT_FDCWD, path, mode, 0);
}
CRANE_EXPORT int fchmod(int fd, mode_t mode) noexcept {
    return change(fd, nullptr, true, SYS_fchmod, fd, mode);
}
CRANE_EXPORT int fchmodat(int fd, const char* path, mode_t mode, int flags) noexcept {
    return change_mode_at(fd, path, mode, flags);
}
CRANE_EXPORT int chown(const char* path, uid_t user, gid_t group) noexcept {
    return change(AT_FDCWD, path, true, SYS_fchownat, AT_FDCWD, path, user, group, 0);
}
CRANE_EXPORT int lchown(const char* path, uid_t user, gid_t group) noexcept {
    return change(AT_FDCWD, path, false, SYS_fchownat, AT_FDCWD, path, user, group, AT_SYMLINK_NOFOLLOW);
}
CRANE_EXPORT int fchown(int fd, uid_t user, gid_t group) noexcept {
    return change(fd, nullptr, true, SYS_fchown, fd, user, group);
}
CRANE_EXPORT int fchownat(int fd, const char* path, uid_t user, gid_t group, int flags) noexcept {
    return change(fd, path, !(flags & AT_SYMLINK_NOFOLLOW), SYS_fchownat, fd, path, user, group, flags);
}
CRANE_EXPORT int link(const char* from, const char* to) noexcept {
    return link_at(AT_FDCWD, from, AT_FDCWD, to, 0);
}
CRANE_EXPORT int linkat(int from_fd, const char* from, int to_fd, const char* to, int flags) noexcept {
    return link_at(from_fd, from, to_fd, to, flags);
}
CRANE_EXPORT int rename(const char* from, const char* to) noexcept {
    return rename_at(AT_FDCWD, from, AT_FDCWD, to, 0);
}
CRANE_EXPORT int renameat(int from_fd, const char* from, int to_fd, const char* to) noexcept {
    return rename_at(from_fd, from, to_fd, to, 0);
}
CRANE_EXPORT int renameat2(int from_fd, const char* from, int to_fd, const char* to,
                           unsigned flags) noexcept {
    return rename_at(from_fd, from, to_fd, to, flags);
}

CRANE_EXPORT int setxattr(const char* path, const char* name, const void* value, size_t bytes,
                          int flags) noexcept {
    return change(AT_FDCWD, path, true, SYS_setxattr, path, name, value, bytes, flags);
}
CRANE_EXPORT int lsetxattr(const char* path, const char* name, const void* value, size_t bytes,
                           int flags) noexcept {
    return change(AT_FDCWD, path, false, SYS_lsetxattr, path, name, value, bytes, flags);
}
CRANE_EXPORT int fsetxattr(int fd, const char* name, const void* value, size_t bytes, int flags) noexcept {
    return change(fd, nullptr, true, SYS_fsetxattr, fd, name, value, bytes, flags);
}
CRANE_EXPORT int removexattr(const char* path, const char* name) noexcept {
    return change(AT_FDCWD, path, true, SYS_removexattr, path, name);
}
CRANE_EXPORT int lremovexattr(const char* path, const char* name) noexcept {
    return change(AT_FDCWD, path, false, SYS_lremovexattr, path, name);
}
CRANE_EXPORT int fremovexattr(int fd, const char* name) noexcept {
    return change(fd, nullptr, true, SYS_fremovexattr, fd, name);
}

CRANE_EXPORT int unlink(const char* path) noexcept {
    return unlink_at(AT_FDCWD, path, 0);
}
CRANE_EXPORT int unlinkat(int fd, const char* path, int flags) noexcept {
    return unlink_at(fd, path, flags);
}
CRANE_EXPORT int rmdir(const char* path) noexcept {
    return unlink_at(AT_FDCWD, path, AT_REMOVEDIR);
}
CRANE_EXPORT int remove(const char* path) noexcept {
    const int rc = unlink(path);
    return rc != 0 && errno == EISDIR ? rmdir(path) : rc;
}

// --- times that the program sets

namespace {

/// As far as such a number goes, which is to the year 2262.
int64_t in_ns(const timespec& time) {
    constexpr auto kSecond = static_cast<int64_t>(kNsPerSecond);
    const int64_t seconds =
        std::clamp<int64_t>(time.tv_sec, INT64_MIN / kSecond + 1, INT64_MAX / kSecond - 1);
    return seconds * kSecond + time.tv_nsec;
}

/// What is shown as the time of access of a file of which the program has set none is its time of change: so
/// that it stays where that alone is set.
void hold_time_of_access(int fd, const char* path, int flags) {
    struct statx info;
    if (raw(SYS_statx, fd, path, flags, STATX_BASIC_STATS | STATX_BTIME, &info) != 0) return;
    if (time_of_access_ns(info) != kNoTime) return;
    const statx_timestamp shown = settled_mtime(info, fd, path, flags);
    keep_time_of_access(fd, path, flags,
                        in_ns({static_cast<time_t>(shown.tv_sec), static_cast<long>(shown.tv_nsec)}));
}

/// `times` as utimensat has them; nullptr is both now.
int set_times(int fd, const char* path, const timespec* times, int flags) {
    if (!active()) return answer(raw(SYS_utimensat, fd, path, times, flags));
    timespec settled[2] = {{0, UTIME_NOW}, {0, UTIME_NOW}};
    if (times && !fetch(settled, times)) return answer(-EFAULT);
    SharedOperation turn(Op::kFile, files_key());
    const char* const named = path ? path : "";
    const int how = path ? flags : AT_EMPTY_PATH;
    const bool both_now = settled[0].tv_nsec == UTIME_NOW && settled[1].tv_nsec == UTIME_NOW;
    if (settled[0].tv_nsec == UTIME_OMIT && settled[1].tv_nsec != UTIME_OMIT)
        hold_time_of_access(fd, named, how);
    // The mtime is left: what was written before stays to be stamped.
    if (settled[1].tv_nsec == UTIME_OMIT) settle_path(fd, path, !(flags & AT_SYMLINK_NOFOLLOW));
    const timespec now = to_timespec(now_realtime_ns());
    for (timespec& time : settled) {
        if (time.tv_nsec == UTIME_NOW) time = now;
    }
    long rc = raw(SYS_utimensat, fd, path, settled, flags);
    // Who does not own the file may set it to now, if to write it is allowed: the kernel's, until it is
    // looked at.
    if (rc == -EPERM && both_now) rc = raw(SYS_utimensat, fd, path, nullptr, flags);
    if (rc == 0 && settled[0].tv_nsec != UTIME_OMIT) keep_time_of_access(fd, named, how, in_ns(settled[0]));
    if (rc == 0 && !(settled[0].tv_nsec == UTIME_OMIT && settled[1].tv_nsec == UTIME_OMIT))
        crane::interpose::keep_time_of_change(fd, named, how);
    return answer(rc);
}

int set_times(int fd, const char* path, const timeval* times, int flags) {
    if (!times) return set_times(fd, path, static_cast<const timespec*>(nullptr), flags);
    timespec exact[2];
    timeval given[2];
    if (!fetch(given, times)) return answer(-EFAULT);
    for (int i = 0; i < 2; ++i) {
        if (given[i].tv_usec < 0 || given[i].tv_usec >= 1'000'000) return answer(-EINVAL);
        exact[i] = {given[i].tv_sec, given[i].tv_usec * 1000};
    }
    return set_times(fd, path, exact, flags);
}

}  // namespace

CRANE_EXPORT int utimensat(int fd, const char* path, const timespec times[2], int flags) noexcept {
    // Without a path it would act on the descriptor: libc has it an error.
    return path ? set_times(fd, path, times, flags) : answer(-EINVAL);
}
CRANE_EXPORT int futimens(int fd, const timespec times[2]) noexcept {
    return fd < 0 ? answer(-EBADF) : set_times(fd, nullptr, times, 0);
}
CRANE_EXPORT int utimes(const char* path, const timeval times[2]) noexcept {
    return set_times(AT_FDCWD, path, times, 0);
}
CRANE_EXPORT int lutimes(const char* path, const timeval times[2]) noexcept {
    return set_times(AT_FDCWD, path, times, AT_SYMLINK_NOFOLLOW);
}
CRANE_EXPORT int futimes(int fd, const timeval times[2]) noexcept {
    return fd < 0 ? answer(-EBADF) : set_times(fd, nullptr, times, 0);
}
CRANE_EXPORT int futimesat(int fd, const char* path, const timeval times[2]) noexcept {
    return set_times(fd, path, times, 0);
}
CRANE_EXPORT int utime(const char* path, const utimbuf* times) noexcept {
    if (!times) return set_times(AT_FDCWD, path, static_cast<const timespec*>(nullptr), 0);
    utimbuf given;
    if (!fetch(given, times)) return answer(-EFAULT);
    const timespec exact[2] = {{given.actime, 0}, {given.modtime, 0}};
    return set_times(AT_FDCWD, path, exact, 0);
}
