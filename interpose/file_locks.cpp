// flock and lockf; fcntl's locks come by descriptors.cpp.
#include "interpose/core/file_locks.hpp"

#include <sys/file.h>

#include "interpose/core/blocking.hpp"

namespace crane::interpose {
namespace {

long lock_region(int fd, int command, off_t bytes) {
    struct flock region {};
    region.l_type = F_WRLCK;
    region.l_whence = SEEK_CUR;
    region.l_len = bytes;
    switch (command) {
        case F_TEST: {
            const long rc = raw(SYS_fcntl, fd, F_GETLK, &region);
            if (rc < 0) return rc;
            return region.l_type == F_UNLCK ? 0 : -EACCES;
        }
        case F_ULOCK:
            region.l_type = F_UNLCK;
            [[fallthrough]];
        case F_TLOCK:
            return lock_by_fcntl(fd, F_SETLK, reinterpret_cast<long>(&region));
        case F_LOCK:
            return lock_by_fcntl(fd, F_SETLKW, reinterpret_cast<long>(&region));
        default:
            return -EINVAL;
    }
}

}  // namespace
}  // namespace crane::interpose

using namespace crane::interpose;

CRANE_EXPORT int flock(int fd, int operation) noexcept {
    if (!active()) return resolve_real(), real.flock(fd, operation);
    return static_cast<int>(as_libc(lock_by_flock(fd, operation)));
}

CRANE_EXPORT int lockf(int fd, int command, off_t bytes) {
    if (!active()) return resolve_real(), real.lockf(fd, command, bytes);
    return static_cast<int>(as_libc(lock_region(fd, command, bytes)));
}

CRANE_EXPORT int lockf64(int fd, int command, off64_t bytes) {
    return lockf(fd, command, bytes);
}
