// Waiting for what the kernel keeps and has no descriptor for: System V objects, message queues.
#pragma once

#include "interpose/core/blocking.hpp"
#include "interpose/core/opaque.hpp"

namespace crane::interpose {

/// What the thread waits for is looked for by others until the call is done: taken back with the turn in
/// hand.
class AwaitsNothing {
  public:
    AwaitsNothing() = default;
    ~AwaitsNothing() { domain().threads[self.slot].awaits = 0; }
    AwaitsNothing(const AwaitsNothing&) = delete;
    AwaitsNothing& operator=(const AwaitsNothing&) = delete;
};

/// One call: it is tried without waiting, and again after whatever may have changed the object.
struct IpcWait {
    Op op;
    uint64_t key;
    uint64_t deadline_ns;
    long not_now;           ///< what the kernel says when the call would have to wait
    long timed_out;         ///< what the program is told after its own deadline
    bool restarts = false;  ///< made again after handlers with SA_RESTART (signal(7))

    /// `attempt` makes the call, `may_wait` says whether the program wants to wait when it cannot be made.
    template <typename Attempt, typename MayWait>
    long until_done(Attempt attempt, MayWait may_wait) {
        Operation turn(op, key);
        const AwaitsNothing afterwards;
        bool waited = false;
        for (uint32_t looks = 0;;) {
            const long rc = uninterrupted(attempt);
            if (rc >= 0) {
                scheduler().signal(key, ~uint32_t{0});
                return rc;
            }
            // The object was removed meanwhile: its number is free.
            if (rc == -EINVAL && waited) return -EIDRM;
            if (rc != not_now || !may_wait()) {
                turn.yield();
                return rc;
            }
            waited = true;
            const uint64_t until_ns = earlier_ns(deadline_ns, next_look_for_left_ns(looks));
            // All sets: the end of a process undoes what it did to semaphores.
            switch (turn.contend(key, until_ns, true, ~uint64_t{0})) {
                case dmt::WaitResult::kTimedOut:
                    if (until_ns == deadline_ns) return timed_out;
                    break;
                case dmt::WaitResult::kInterrupted:
                    if (!restarts || !restart_after_signals()) return -EINTR;
                    break;
                case dmt::WaitResult::kSignaled:
                    break;
            }
        }
    }
};

}  // namespace crane::interpose
