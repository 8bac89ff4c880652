// flock, lockf, and fcntl's locks. A lock held by another thread or process of the domain is given up at some
// operation of its: an unlock, a close, its end. Who waits looks again after each.
#include "interpose/core/file_locks.hpp"

#include <sys/file.h>

#include "interpose/core/blocking.hpp"

namespace crane::interpose {
namespace {

template <typename Try>
long take_lock(int fd, bool waits, Try attempt) {
    fd_entry(fd);  // known from here on, so that the process's end closes it in the schedule
    Operation turn(Op::kFile, descriptor_key(fd));
    for (;;) {
        const long rc = attempt();
        if (rc == 0) file_lock_event();
        if (!waits || (rc != -EAGAIN && rc != -EACCES)) {
            if (rc < 0) turn.yield();
            return rc;
        }
        ++domain().file_lock_waiters;
        const dmt::WaitResult result = turn.wait(own_key(), dmt::kNoDeadline, true, ~uint64_t{0});
        --domain().file_lock_waiters;
        if (result == dmt::WaitResult::kInterrupted && !restart_after_signals()) return -EINTR;
    }
}

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

bool is_file_lock(int command) {
    return command == F_SETLK || command == F_SETLKW || command == F_OFD_SETLK || command == F_OFD_SETLKW;
}

long lock_by_fcntl(int fd, int command, long argument) {
    const bool waits = command == F_SETLKW || command == F_OFD_SETLKW;
    const int attempt = command == F_SETLKW ? F_SETLK : command == F_OFD_SETLKW ? F_OFD_SETLK : command;
    return take_lock(fd, waits, [&] { return raw(SYS_fcntl, fd, attempt, argument); });
}

}  // namespace crane::interpose

using namespace crane::interpose;

CRANE_EXPORT int flock(int fd, int operation) noexcept {
    if (!active()) return resolve_real(), real.flock(fd, operation);
    return static_cast<int>(as_libc(
        take_lock(fd, !(operation & LOCK_NB), [&] { return raw(SYS_flock, fd, operation | LOCK_NB); })));
}

CRANE_EXPORT int lockf(int fd, int command, off_t bytes) {
    if (!active()) return resolve_real(), real.lockf(fd, command, bytes);
    return static_cast<int>(as_libc(lock_region(fd, command, bytes)));
}

CRANE_EXPORT int lockf64(int fd, int command, off64_t bytes) {
    return lockf(fd, command, bytes);
}
