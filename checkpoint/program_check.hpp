// Can the shim enter this program? Answered before anything is started, because a server that the shim
// cannot enter would run, unscheduled, and diverge without a word.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/server_root.hpp"

namespace crane::checkpoint {

struct ProgramCheck {
    bool ok = false;
    std::string path;                ///< the file that would be executed, as found
    std::vector<std::string> files;  ///< that one, and what its #! lines lead to
    std::string loader;              ///< the dynamic loader of the last of them
    std::string message;             ///< when not ok: what is wrong with it and what to do
};

/// Looks `program` up as execvp would (PATH of `environment`, relative to `cwd`), follows #! lines, and
/// refuses what cannot be scheduled: not found, not executable, not x86-64, statically linked, another
/// libc's loader, Go, set-user-ID. Paths are as the server sees them, whose files are those of `root`.
ProgramCheck check_program(const std::string& program, const std::string& cwd,
                           const std::vector<std::string>& environment, const ServerRoot& root = {});

}  // namespace crane::checkpoint
