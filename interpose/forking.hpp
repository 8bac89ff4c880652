// fork() for what libc does by a child that shares its memory: posix_spawn, system, popen, vfork.
#pragma once

#include <sys/types.h>

namespace crane::interpose {

/// Runs none of the program's handlers (pthread_atfork), as natively. The child may allocate nothing before
/// it executes a program: what they would have made usable there may be locked. -1 with errno.
pid_t fork_without_handlers();

}  // namespace crane::interpose
