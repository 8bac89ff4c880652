// The processes below one process, as /proc shows them now.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>

namespace crane::proxy {

struct ProcessTimes {
    pid_t parent = 0;
    unsigned long ticks = 0;  ///< of CPU, waited-for children included
};

/// `root` and all its descendants. Empty if `root` is not there.
std::map<pid_t, ProcessTimes> process_tree(pid_t root);

/// CPU time of a process and all its descendants, in seconds; what they waited for included.
double tree_cpu_seconds(pid_t root);
/// Bytes that they have read and written by system calls.
uint64_t tree_io_bytes(pid_t root);

}  // namespace crane::proxy
