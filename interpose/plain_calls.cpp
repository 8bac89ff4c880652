// Calls that are the kernel's as they are, and that servers make often: a wrapper costs less than a trapped
// call (core/backstop.hpp).
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "interpose/core/backstop.hpp"
#include "interpose/core/blocking.hpp"
#include "interpose/core/operation.hpp"
#include "interpose/core/threads.hpp"

using namespace crane::interpose;

namespace {

/// The program's own filters judge it, as ever.
template <typename... Args>
long plain(long number, Args... args) {
    if (!active() || runtime.process->judged == Judged::kByNobody) return as_libc(raw(number, args...));
    const long all[6 + 1] = {(long)args...};
    return as_libc(crane_judged_call(all, number));
}

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
CRANE_EXPORT void* mmap(void* place, size_t bytes, int protection, int flags, int fd, off_t offset) noexcept {
    return reinterpret_cast<void*>(plain(SYS_mmap, place, bytes, protection, flags, fd, offset));
}
CRANE_EXPORT void* mmap64(void* place, size_t bytes, int protection, int flags, int fd,
                          off64_t offset) noexcept {
    return reinterpret_cast<void*>(plain(SYS_mmap, place, bytes, protection, flags, fd, offset));
}
CRANE_EXPORT int munmap(void* place, size_t bytes) noexcept {
    return static_cast<int>(plain(SYS_munmap, place, bytes));
}
CRANE_EXPORT int mprotect(void* place, size_t bytes, int protection) noexcept {
    return static_cast<int>(plain(SYS_mprotect, place, bytes, protection));
}
CRANE_EXPORT int madvise(void* place, size_t bytes, int advice) noexcept {
    return static_cast<int>(plain(SYS_madvise, place, bytes, advice));
}
CRANE_EXPORT ssize_t pread(int fd, void* place, size_t bytes, off_t offset) {
    return cancellable(SYS_pread64, fd, place, bytes, offset);
}
CRANE_EXPORT ssize_t pread64(int fd, void* place, size_t bytes, off64_t offset) {
    return cancellable(SYS_pread64, fd, place, bytes, offset);
}
CRANE_EXPORT int fsync(int fd) {
    return static_cast<int>(cancellable(SYS_fsync, fd));
}
CRANE_EXPORT int fdatasync(int fd) {
    return static_cast<int>(cancellable(SYS_fdatasync, fd));
}
