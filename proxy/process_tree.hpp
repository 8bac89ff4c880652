// The processes below one process, as /proc shows them now.
//
// Rule: the event loop does not go through the host's processes, of which a neighbour may have any number.
// What it asks for (CPU, bytes) is read in the /proc of the container, which shows the server's processes
// alone; without a container, or where that cannot be seen, one goes down from parent to child. A look at a
// server with more than 4,096 processes is cut short.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace crane::proxy {

struct ProcessTimes {
    pid_t parent = 0;
    unsigned long ticks = 0;  ///< of CPU, waited-for children included
};

/// `root` and all its descendants, as `proc` shows them. Empty if `root` is not there.
std::map<pid_t, ProcessTimes> process_tree(pid_t root, const std::string& proc = "/proc");

/// The /proc of the pid namespace that `root` is the first process of, seen from here; "" if it is none, or
/// its /proc is not to be seen.
std::string own_proc(pid_t root);

/// CPU time of a process and all its descendants, in seconds; what they waited for included.
double tree_cpu_seconds(pid_t root);
/// The same of this process alone.
double own_cpu_seconds();
/// Memory that is theirs and not a file's, in bytes; what they share is counted where most of it is.
uint64_t tree_memory_bytes(pid_t root);
/// Their threads, by the numbers that they have here, in the order of their processes; `most` at most.
/// `mapped`: of processes that have a file whose path has this in it in their memory; null: of all.
std::vector<pid_t> tree_threads(pid_t root, size_t most, const char* mapped = nullptr);
/// Bytes that they have read and written by system calls.
uint64_t tree_io_bytes(pid_t root);

}  // namespace crane::proxy
