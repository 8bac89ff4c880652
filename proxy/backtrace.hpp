// Looks into the domain from outside: which threads are busy, and where. No schedule changes, and no call of
// the program is interrupted:
//   - a thread that sleeps in the kernel is not touched: /proc tells where it entered, and its stack is read
//     in its place;
//   - only one that was seen to compute in user space alone is stopped, for a moment, with ptrace
//     (computing_thread.hpp).
// May wait for long (a thread in uninterruptible sleep): call it from a thread that nobody waits for.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "proxy/thread_state.hpp"

namespace crane::proxy {

struct BusyThread {
    pid_t process;
    pid_t thread;
    std::string program;     ///< of the process
    std::string name;        ///< of the thread
    long system_call;        ///< number of the one it is blocked in, -1: it runs or is ready to
    std::string stopped_by;  ///< in words; empty: it is not stopped
};

/// The threads below `root`, itself left out, that run, or that are blocked in a system call other than the
/// futex where threads without the turn sleep: those that run alone if there is one. Where there is neither,
/// those that are stopped.
std::vector<BusyThread> busy_threads(pid_t root);

/// "function+0x1c" (thread_stack.hpp), innermost first, at most `most` of them; the reason in words if it
/// cannot be had.
std::vector<std::string> backtrace_of(pid_t thread, size_t most);

struct StallReport {
    std::string summary;  ///< one line; empty if no thread is to blame
    std::string details;  ///< the rest: each thread's backtrace
};

/// Says who keeps the domain below `root` from going on, where, and what to do about it.
StallReport describe_stall(pid_t root, uint64_t stood_s);

}  // namespace crane::proxy
