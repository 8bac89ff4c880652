// Small tools over /proc and pidfds: finding processes by what they are, ending them for certain.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace crane::checkpoint {

/// "" when the file cannot be read; its beginning when it has more than `most` bytes.
std::string read_text_file(const std::string& path, size_t most = SIZE_MAX);

int open_pidfd(pid_t pid);  ///< -1 when there is no such process

/// True when the process behind the pidfd has ended within the time.
bool wait_for_end(int pidfd, int timeout_ms);

/// All pids for which `matches` holds; not this process.
std::vector<pid_t> find_processes(const std::function<bool(pid_t)>& matches);

std::vector<std::string> command_line(pid_t pid);
pid_t parent_of(pid_t pid);
std::vector<pid_t> descendants_of(pid_t root);

/// SIGKILLs the processes and waits for them to end. True when all did.
bool kill_processes(const std::vector<pid_t>& pids, int timeout_ms);

}  // namespace crane::checkpoint
