#include "interpose/core/file_times.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/statfs.h>

#include "interpose/core/fds.hpp"
#include "interpose/core/user_memory.hpp"

namespace crane::interpose {

namespace {

uint64_t to_ns(const statx_timestamp& time) {
    return static_cast<uint64_t>(time.tv_sec) * kNsPerSecond + time.tv_nsec;
}

statx_timestamp to_timestamp(uint64_t ns) {
    statx_timestamp time{};
    time.tv_sec = static_cast<int64_t>(ns / kNsPerSecond);
    time.tv_nsec = static_cast<uint32_t>(ns % kNsPerSecond);
    return time;
}

bool has_own_times(const struct statx& info) {
    const auto type = info.stx_mode & S_IFMT;
    return type == S_IFREG || type == S_IFDIR || type == S_IFLNK;
}

/// In /proc and /sys the kernel keeps a time for as long as it likes. They know no time of birth, as others
/// do.
bool is_made_up(const struct statx& info, int fd, const char* path, int at_flags) {
    if (info.stx_mask & STATX_BTIME) return false;
    struct statfs system {};
    const int nofollow = at_flags & AT_SYMLINK_NOFOLLOW ? O_NOFOLLOW : 0;
    const bool by_path = path && path[0];
    const long opened = by_path ? raw(SYS_openat, fd, path, O_PATH | O_CLOEXEC | nofollow, 0) : fd;
    if (opened < 0) return false;
    raw(SYS_fstatfs, opened, &system);
    if (by_path) raw(SYS_close, opened);
    return system.f_type == PROC_SUPER_MAGIC || system.f_type == SYSFS_MAGIC;
}

bool needs_stamp(const struct statx& info) {
    if (!has_own_times(info)) return false;
    const uint64_t changed = to_ns(info.stx_ctime);
    return changed == to_ns(info.stx_mtime) && changed >= domain().real_start_ns;
}

statx_timestamp stamp(int fd, const char* path, int at_flags) {
    const uint64_t now = now_realtime_ns();
    const timespec times[2] = {{0, UTIME_OMIT}, to_timespec(now)};
    // utimensat knows AT_EMPTY_PATH only since Linux 5.8; no path at all means the descriptor.
    const bool by_descriptor = path == nullptr || path[0] == 0;
    raw(SYS_utimensat, fd, by_descriptor ? nullptr : path, times,
        by_descriptor ? 0 : at_flags & AT_SYMLINK_NOFOLLOW);
    // Not ours to stamp: it goes on looking as if it had just been changed.
    return to_timestamp(now);
}

}  // namespace

statx_timestamp settled_mtime(const struct statx& info, int fd, const char* path, int at_flags) {
    // Pipes, sockets and devices: the kernel's own business, the same whenever it is looked at.
    if (!has_own_times(info) || is_made_up(info, fd, path, at_flags)) return to_timestamp(domain_start_ns());
    return needs_stamp(info) ? stamp(fd, path, at_flags) : info.stx_mtime;
}

void settle_path(int fd, const char* path, bool follow) {
    struct statx info;
    char first = 0;
    if (path && !fetch(first, path)) return;
    const bool by_descriptor = first == 0;
    const int flags = (follow ? 0 : AT_SYMLINK_NOFOLLOW) | (by_descriptor ? AT_EMPTY_PATH : 0);
    if (raw(SYS_statx, fd, by_descriptor ? "" : path, flags, STATX_BASIC_STATS, &info) != 0) return;
    if (needs_stamp(info)) stamp(fd, path, flags);
}

void settle_file_times(int fd) {
    if (fd < 0 || static_cast<size_t>(fd) >= kMaxFds) return;
    FdEntry& entry = runtime.process->fds[fd];
    if (!(entry.flags & kFdWritten)) return;
    entry.flags = static_cast<uint8_t>(entry.flags & ~kFdWritten);
    settle_path(fd, nullptr, true);
}

void remember_real_start() {
    // A server that goes on with the files of an earlier one finds some that nobody has looked at since.
    timebubble::Control& control = *runtime.view.control;
    if (control.settings.files_since_ns != 0) {
        runtime.domain->real_start_ns = control.settings.files_since_ns;
        return;
    }
    // The coarse clock is the one that stamps files.
    timespec now{};
    raw(SYS_clock_gettime, CLOCK_REALTIME_COARSE, &now);
    runtime.domain->real_start_ns = crane::interpose::to_ns(now);
    control.status.files_since_ns.store(runtime.domain->real_start_ns, std::memory_order_relaxed);
}

}  // namespace crane::interpose
