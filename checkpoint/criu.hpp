// Images of a container's processes: one run of CRIU inside it, driven from outside (crane-criu), in bounded
// time.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

namespace crane::checkpoint {

struct CriuJob {
    bool restore = false;  ///< else a dump
    pid_t init = 0;        ///< crane-init, as this process numbers it
    std::string helper;    ///< path of crane-criu
    std::string folder;    ///< of the images
    long last_pid = 0;     ///< of a restore: as the dump's outcome had it
    struct Replacement {
        std::string key;  ///< what the process had open, as CRIU calls it: see criu_key()
        int fd;           ///< this process': what the restored process has in its place
    };
    std::vector<Replacement> replacements;
    /// Of a dump: files that inotify watches, which CRIU would look for in /etc and some more places alone.
    std::vector<std::string> watched;
    /// Called while the processes stand still: images are complete, or restored processes are about to run.
    /// When it throws, the dump fails and the server runs on; a restore fails.
    std::function<void()> while_frozen;
    int timeout_ms = 60'000;  ///< for all but that
};

struct CriuOutcome {
    long last_pid = 0;
    uint64_t wall_us = 0;
    uint64_t frozen_us = 0;  ///< of a dump
};

/// What happened, what CRIU said of it and what to do.
struct CriuError : std::runtime_error {
    CriuError(const std::string& text, bool lost) : std::runtime_error(text), server_lost(lost) {}
    /// The server may stand still for ever and must be ended. Else a failed dump has left it running.
    bool server_lost;
};

/// Throws CriuError.
CriuOutcome run_criu(const CriuJob& job);

/// How CRIU's images name what this process has open at `fd`, which it shares with the server: a pipe or a
/// memfd.
/// "" for others.
std::string criu_key(int fd);

}  // namespace crane::checkpoint
