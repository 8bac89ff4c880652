// Speaks for a replica whose loop waits for its disk, so that the others do not take it for dead.
//
// A sync of some 100 us is waited for in the loop: in a thread of its own each would cost two hand-overs, and
// throughput with them (docs/paxos.md). This thread wakes only for one that takes longer than a heartbeat.
//
// Rules kept here:
//   - the loop stands still in wait_for() while `speak` runs, so what belongs to the loop may be used there;
//     it changes nothing that what is waited for uses;
//   - nothing is done, and nobody wakes, while nothing is waited for.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>

namespace crane::paxos {

class HeartbeatThread {
  public:
    HeartbeatThread(uint64_t heartbeat_us, std::function<void()> speak);
    ~HeartbeatThread();
    HeartbeatThread(const HeartbeatThread&) = delete;
    HeartbeatThread& operator=(const HeartbeatThread&) = delete;

    /// Does `act`, which may throw, in the caller's thread; `speak` is called with every heartbeat meanwhile.
    template <typename Act>
    void wait_for(Act act) {
        const Waiting waiting(*this);
        act();
    }

  private:
    class Waiting {
      public:
        explicit Waiting(HeartbeatThread& thread) : thread_(thread) { thread_.begin(); }
        ~Waiting() { thread_.end(); }
        Waiting(const Waiting&) = delete;
        Waiting& operator=(const Waiting&) = delete;

      private:
        HeartbeatThread& thread_;
    };

    void begin();
    void end();
    void work();

    const std::chrono::microseconds heartbeat_;
    const std::function<void()> speak_;
    std::mutex mutex_;  ///< held while speaking
    std::condition_variable signal_;
    bool waiting_ = false, asleep_ = false, stopping_ = false;
    uint64_t waits_ = 0;  ///< so far
    std::thread thread_;
};

}  // namespace crane::paxos
