// Scheduling policies by the system calls that libc has no function for. Results are as the kernel's.
#pragma once

#include <sys/types.h>

namespace crane::interpose {

/// sched_setattr(): policy and priority of it.
long set_scheduling_attributes(pid_t tid, const void* given);
long get_scheduling_attributes(pid_t tid, void* shown, unsigned bytes, unsigned flags);

}  // namespace crane::interpose
