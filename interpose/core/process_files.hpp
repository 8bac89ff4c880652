// /proc/PID/…: what a program can read of itself and its fellows. Sizes of memory, times on a processor,
// faults, mounts and the like are each host's own: what is the same everywhere is shown as it is, the rest as
// fixed values.
#pragma once

#include <cstdint>

namespace crane::interpose {

/// A descriptor of a file in memory with what `path` shows; -1: it is no such file. Other negative numbers
/// are -errno.
long open_process_file(const char* path, bool close_on_exec);
/// How many links the folder of a process's threads has, by which programs count them: the path is absolute
/// and as the kernel has it. 0: it is no such folder.
uint64_t links_of_tasks(const char* path);
/// Whether it is of a process that has ended and that nobody of the program's waits for: there until the
/// kernel has been told to forget it, at no place in the schedule, and so never shown.
bool is_of_ended_orphan(const char* path);

}  // namespace crane::interpose
