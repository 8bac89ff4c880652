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

}  // namespace

bool is_file_lock(int command) {
    return command == F_SETLK || command == F_SETLKW || command == F_OFD_SETLK || command == F_OFD_SETLKW;
}

long lock_by_fcntl(int fd, int command, long argument) {
    const bool waits = command == F_SETLKW || command == F_OFD_SETLKW;
    const int attempt = command == F_SETLKW ? F_SETLK : command == F_OFD_SETLKW ? F_OFD_SETLK : command;
    return take_lock(fd, waits, [&] { return raw(SYS_fcntl, fd, attempt, argument); });
}

long lock_by_flock(int fd, int operation) {
    return take_lock(fd, !(operation & LOCK_NB), [&] { return raw(SYS_flock, fd, operation | LOCK_NB); });
}

}  // namespace crane::interpose
