// A thread of the server that computes: seen to do so, and held still for a moment.
//
// Rule: only one that was seen to compute in user space alone is stopped. Stopping one that is at work in a
// call could cut that call short (a long write returns with a part).
#pragma once

#include <sys/types.h>

namespace crane::proxy {

enum class Computing {
    kAlone,  ///< in user space, and nothing else
    kMoves,  ///< it sleeps, or makes system calls
    kRests,  ///< it is ready to run, and gets little CPU
};

/// Watches the thread for up to two seconds, by what /proc says of it.
Computing watch_computing(pid_t thread);

/// Holds a thread still while it lives.
class StoppedThread {
  public:
    /// Waits for the thread for half a minute at most; errno says what failed.
    explicit StoppedThread(pid_t thread);
    ~StoppedThread();
    StoppedThread(const StoppedThread&) = delete;
    StoppedThread& operator=(const StoppedThread&) = delete;
    bool ok() const { return ok_; }
    /// It was stopped in no system call.
    bool computes() const;

  private:
    pid_t thread_;
    bool seized_ = false;
    bool ok_ = false;
    long signal_ = 0;
};

/// Asks a thread below `root` that computes, if there is one, to look whether it waits for another one
/// (interpose/core/endless_rounds.hpp). May take seconds.
void ask_for_round(pid_t root);

}  // namespace crane::proxy
