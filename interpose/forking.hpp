// fork() for what libc and the kernel do by other names: posix_spawn, system, popen, vfork, clone.
#pragma once

#include <signal.h>
#include <sys/types.h>

namespace crane::interpose {

/// What clone(2) may say of a child.
struct Birth {
    int end_signal = SIGCHLD;
    bool as_sibling = false;  ///< of its maker, whose parent is its own
    bool suspends = false;    ///< its maker, until it executes a program or ends
    int* pidfd = nullptr;     ///< where its maker wants a descriptor of it
};
/// Runs none of the program's handlers (pthread_atfork), as natively. The child may allocate nothing before
/// it executes a program: what they would have made usable there may be locked. -1 with errno.
pid_t fork_without_handlers(const Birth& birth = {});
/// fork() of such a child.
pid_t fork_as(const Birth& birth);

}  // namespace crane::interpose
