// Locks that are only ever tried: pthread_mutex_trylock and its kin, in a loop.
//
// In a schedule two threads may meet in the same phase for ever: one lets the others in (sched_yield, a wait)
// with the lock in its hand each time, so whoever tries it then finds it taken each time. On a machine chance
// ends that. Here a thread that has tried one lock in vain so often waits for it to be given up, a moment of
// virtual time at most, and comes first then.
#pragma once

#include "interpose/core/runtime.hpp"

namespace crane::interpose {

/// Counts a trial of the lock `key` that failed. True: there were many in a row.
inline bool poll_failed(uint64_t key) {
    constexpr uint32_t kMany = 64;
    if (self.polls.key != key) self.polls = {key, 0};
    return ++self.polls.failures > kMany;
}

/// `try_it` says EBUSY where the lock is taken.
template <typename Try>
int try_in_turn(Op op, uint64_t key, Try try_it) {
    // As long as a thousand operations.
    constexpr uint64_t kMomentNs = 1000 * dmt::kOperationStepNs;
    Operation turn(op, key);
    int rc = try_it();
    // Not each time: of two that hold what the other one tries, one has to let go while the other waits.
    if (rc == EBUSY && poll_failed(key) && scheduler().state().hash % 2 == 0) {
        // Who comes too late the first time is preferred the second time.
        for (int round = 0; round < 2 && rc == EBUSY; ++round) {
            const dmt::WaitResult result = turn.contend(key, now_realtime_ns() + kMomentNs, true);
            rc = try_it();
            if (result != dmt::WaitResult::kSignaled) break;
        }
    } else if (rc == EBUSY) {
        turn.yield();
    }
    if (rc != EBUSY) self.polls = {};
    return rc;
}

}  // namespace crane::interpose
