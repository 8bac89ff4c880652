// Waiting for children as the kernel has it: waitid says what they have used, too.
#pragma once

#include <sys/resource.h>
#include <sys/wait.h>

namespace crane::interpose {

/// wait4(2). -1 with errno.
pid_t wait_for_child(pid_t pid, int* status, int options, rusage* usage);
/// waitid(2): `usage`, when not null, is told of the child that was found. -1 with errno.
int wait_by_number(idtype_t type, id_t id, siginfo_t* info, int options, rusage* usage);

}  // namespace crane::interpose
