// Calls that are the kernel's as they are, and that servers make often: a wrapper costs less than a trapped
// call (core/backstop.hpp).
#include <fcntl.h>
#include <unistd.h>

#include "interpose/core/backstop.hpp"
#include "interpose/core/blocking.hpp"
#include "interpose/core/operation.hpp"
#include "interpose/core/process_files.hpp"
#include "interpose/core/syncs.hpp"
#include "interpose/core/threads.hpp"
#include "interpose/plain_call.hpp"

using namespace crane::interpose;

namespace {

/// One at which a thread that is cancelled ends.
template <typename... Args>
long cancellable(long number, Args... args) {
    if (active()) test_cancel();
    count_plain_call();
    return plain(number, args...);
}

/// One that waits for the disk. syncfs() is no cancellation point: libc declares it so that it may not throw.
template <typename... Args>
long synced(long number, int fd, Args... args) {
    if (active() && number != SYS_syncfs) test_cancel();
    const bool beside =
        active() && serial() && !in_operation() && runtime.process->judged == Judged::kByNobody;
    if (!beside) count_plain_call();
    return beside ? as_libc(sync_beside(number, fd, args...)) : plain(number, fd, args...);
}

long seek(int fd, off_t offset, int whence) {
    count_plain_call();
    return plain(SYS_lseek, fd, offset, whence);
}

/// Of this process, as it is.
long own(long number) {
    if (active()) count_cheap_call();
    return plain(number);
}

}  // namespace

CRANE_EXPORT pid_t getpid() noexcept {
    return static_cast<pid_t>(own(SYS_getpid));
}
CRANE_EXPORT pid_t gettid() noexcept {
    return static_cast<pid_t>(own(SYS_gettid));
}
CRANE_EXPORT uid_t getuid() noexcept {
    return static_cast<uid_t>(own(SYS_getuid));
}
CRANE_EXPORT uid_t geteuid() noexcept {
    return static_cast<uid_t>(own(SYS_geteuid));
}
CRANE_EXPORT gid_t getgid() noexcept {
    return static_cast<gid_t>(own(SYS_getgid));
}
CRANE_EXPORT gid_t getegid() noexcept {
    return static_cast<gid_t>(own(SYS_getegid));
}
CRANE_EXPORT off_t lseek(int fd, off_t offset, int whence) noexcept {
    return seek(fd, offset, whence);
}
CRANE_EXPORT off64_t lseek64(int fd, off64_t offset, int whence) noexcept {
    return seek(fd, offset, whence);
}
CRANE_EXPORT int access(const char* path, int mode) noexcept {
    if (active()) count_file_call();
    if (active() && is_of_ended_orphan(path)) return static_cast<int>(as_libc(-ENOENT));
    return static_cast<int>(plain(SYS_access, path, mode));
}
CRANE_EXPORT ssize_t pread(int fd, void* place, size_t bytes, off_t offset) {
    // Its bytes are the schedule's, wherever they are read.
    if (active() && offset >= 0 && entry_of_kind(fd, FdKind::kEntropy)) return ::read(fd, place, bytes);
    return cancellable(SYS_pread64, fd, place, bytes, offset);
}
CRANE_EXPORT ssize_t pread64(int fd, void* place, size_t bytes, off64_t offset) {
    return ::pread(fd, place, bytes, offset);
}
CRANE_EXPORT int fsync(int fd) {
    return static_cast<int>(synced(SYS_fsync, fd));
}
CRANE_EXPORT int fdatasync(int fd) {
    return static_cast<int>(synced(SYS_fdatasync, fd));
}
CRANE_EXPORT int syncfs(int fd) noexcept {
    return static_cast<int>(synced(SYS_syncfs, fd));
}
CRANE_EXPORT int sync_file_range(int fd, off64_t from, off64_t bytes, unsigned flags) {
    return static_cast<int>(synced(SYS_sync_file_range, fd, from, bytes, flags));
}
