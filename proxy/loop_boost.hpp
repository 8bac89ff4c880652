// Puts the event loop into real time when it waits for a processor although it could run.
//
// A loop that is kept from running cannot say so: a thread of its own, in real time and next to idle, looks
// whether the loop stands in a queue of the kernel's and has not come on since the last look. At the next
// look behind which it has run it is as it was: a loop that stays in real time runs at each word of a server
// that shares its core (static pages of Apache on two cores: two thirds of the rate). Without the right to
// real time there is no such thread, and the session share (session_share.hpp) is what helps.
#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

namespace crane::proxy {

/// Two looks in a row at a thread. Pure.
class Starving {
  public:
    /// `state` as /proc shows it, `ran_ns` on processors so far. True: it could run, and did not since the
    /// last look.
    bool observe(char state, uint64_t ran_ns);

  private:
    char state_ = 0;
    uint64_t ran_ns_ = 0;
};

class LoopBoost {
  public:
    static constexpr int kLookMs = 50;

    /// Of the calling thread.
    LoopBoost();
    ~LoopBoost();
    LoopBoost(const LoopBoost&) = delete;
    LoopBoost& operator=(const LoopBoost&) = delete;

  private:
    void work(pid_t loop);

    std::mutex mutex_;
    std::condition_variable signal_;
    bool stopping_ = false;
    std::thread thread_;
};

}  // namespace crane::proxy
