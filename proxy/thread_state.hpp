// One thread of another process, as /proc shows it now. Reading it disturbs nobody.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace crane::proxy {

struct ThreadState {
    char letter = '?';         ///< R: it runs or is ready to; D: in a sleep that nothing can interrupt
    long system_call = -1;     ///< the one it sleeps in; -1: none, or it cannot be told
    uint64_t stack = 0;        ///< its stack pointer, as long as it sleeps
    uint64_t instruction = 0;  ///< where it goes on in user space
    uint64_t user_ticks = 0;   ///< of CPU time
    uint64_t system_ticks = 0;

    bool sleeps() const { return stack != 0; }
    /// Asleep at the same place in the same call.
    bool same_sleep(const ThreadState& other) const;
};

/// `task` is /proc/PID/task/TID.
ThreadState read_thread_state(const std::string& task);
std::string first_line(const std::string& path);

}  // namespace crane::proxy
