// Calls that are the kernel's as they are, and that servers make often: a wrapper costs less than a trapped
// call (core/backstop.hpp).
#include <fcntl.h>
#include <unistd.h>

#include "interpose/core/backstop.hpp"
#include "interpose/core/blocking.hpp"
#include "interpose/core/operation.hpp"
#include "interpose/core/threads.hpp"
#include "interpose/plain_call.hpp"

using namespace crane::interpose;

namespace {

/// One at which a thread that is cancelled ends.
template <typename... Args>
long cancellable(long number, Args... args) {
    if (active()) test_cancel();
    return plain(number, args...);
}

}  // namespace

CRANE_EXPORT pid_t getpid() noexcept {
    if (active()) count_cheap_call();
    return static_cast<pid_t>(plain(SYS_getpid));
}
CRANE_EXPORT pid_t gettid() noexcept {
    if (active()) count_cheap_call();
    return static_cast<pid_t>(plain(SYS_gettid));
}
CRANE_EXPORT uid_t getuid() noexcept {
    return static_cast<uid_t>(plain(SYS_getuid));
}
CRANE_EXPORT uid_t geteuid() noexcept {
    return static_cast<uid_t>(plain(SYS_geteuid));
}
CRANE_EXPORT gid_t getgid() noexcept {
    return static_cast<gid_t>(plain(SYS_getgid));
}
CRANE_EXPORT gid_t getegid() noexcept {
    return static_cast<gid_t>(plain(SYS_getegid));
}
CRANE_EXPORT off_t lseek(int fd, off_t offset, int whence) noexcept {
    return plain(SYS_lseek, fd, offset, whence);
}
CRANE_EXPORT off64_t lseek64(int fd, off64_t offset, int whence) noexcept {
    return plain(SYS_lseek, fd, offset, whence);
}
CRANE_EXPORT int access(const char* path, int mode) noexcept {
    if (active()) count_file_call();
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
    return static_cast<int>(cancellable(SYS_fsync, fd));
}
CRANE_EXPORT int fdatasync(int fd) {
    return static_cast<int>(cancellable(SYS_fdatasync, fd));
}
