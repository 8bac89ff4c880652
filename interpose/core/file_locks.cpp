#include "interpose/core/file_locks.hpp"

#include <sys/file.h>

#include "interpose/core/blocking.hpp"
#include "interpose/core/opaque.hpp"
#include "interpose/core/processes.hpp"
#include "interpose/core/threads.hpp"
#include "interpose/core/user_memory.hpp"

namespace crane::interpose {

namespace {

/// The process that keeps this one from a lock of its own kind; kNone: nobody in the domain.
uint32_t holder_of(int fd, const struct flock& wanted) {
    struct flock found = wanted;
    if (raw(SYS_fcntl, fd, F_GETLK, &found) != 0 || found.l_type == F_UNLCK || found.l_pid <= 0) return kNone;
    return find_process(found.l_pid);
}

/// Whether `process` waits, or waits for one that waits, for a lock of this process.
bool leads_back(uint32_t process) {
    for (size_t steps = 0; steps < kMaxProcesses && process != kNone; ++steps) {
        if (process == runtime.process_index) return true;
        const uint32_t next = domain().processes[process].waits_for_lock_of;
        if (next == 0) return false;
        process = next - 1;
    }
    return false;
}

/// True: waiting would never end (EDEADLK), as the kernel finds it for locks of processes.
bool note_wait(int fd, const struct flock* wanted) {
    if (!wanted) return false;
    const uint32_t holder = holder_of(fd, *wanted);
    runtime.process->waits_for_lock_of = holder == kNone ? 0 : holder + 1;
    return holder != kNone && leads_back(holder);
}

/// `wanted`: of a process's own lock (F_SETLKW), when it waits.
template <typename Try>
long take_lock(int fd, bool waits, const struct flock* wanted, Try attempt) {
    fd_entry(fd);  // known from here on, so that the process's end closes it in the schedule
    Operation turn(Op::kFile, descriptor_key(fd));
    for (uint32_t looks = 0;;) {
        const long rc = attempt();
        if (rc == 0) file_lock_event();
        if (!waits || (rc != -EAGAIN && rc != -EACCES)) {
            if (rc < 0) turn.yield();
            return rc;
        }
        if (note_wait(fd, wanted)) {
            runtime.process->waits_for_lock_of = 0;
            return -EDEADLK;
        }
        ++domain().file_lock_waiters;
        const dmt::WaitResult result = turn.wait(own_key(), next_look_for_left_ns(looks), true, ~uint64_t{0});
        --domain().file_lock_waiters;
        runtime.process->waits_for_lock_of = 0;
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
    struct flock given {};
    const struct flock* wanted = nullptr;
    if (command == F_SETLKW && fetch(given, reinterpret_cast<const void*>(argument))) wanted = &given;
    const auto take = [&] {
        return take_lock(fd, waits, wanted, [&] { return raw(SYS_fcntl, fd, attempt, argument); });
    };
    return waits ? at_cancellation_point(take) : take();
}

long lock_by_flock(int fd, int operation) {
    return take_lock(fd, !(operation & LOCK_NB), nullptr,
                     [&] { return raw(SYS_flock, fd, operation | LOCK_NB); });
}

}  // namespace crane::interpose
