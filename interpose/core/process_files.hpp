// /proc/PID/…: what a program can read of itself and its fellows. Sizes of memory, times on a processor,
// faults, mounts and the like are each host's own: what is the same everywhere is shown as it is, the rest as
// fixed values.
#pragma once

namespace crane::interpose {

/// A descriptor of a file in memory with what `path` shows; -1: it is no such file. Other negative numbers
/// are -errno.
long open_process_file(const char* path, bool close_on_exec);

}  // namespace crane::interpose
