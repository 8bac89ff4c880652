// Waiting on synchronization objects, shared by the wrappers that take a mutex in passing.
#pragma once

#include <climits>

#include "interpose/core/runtime.hpp"

namespace crane::interpose {

/// Wakes those who wait for an object. Objects shared between processes are known by their place in the page
/// only, so all waiters there look again.
inline void wake_waiters(const void* object, bool shared, uint32_t most) {
    scheduler().signal(object_key(object, shared), shared ? ~uint32_t{0} : most);
}

inline bool is_shared(const pthread_mutex_t* m) {
    constexpr int kSharedBit = 128;  ///< PTHREAD_MUTEX_PSHARED_BIT of glibc's __kind
    return m->__data.__kind & kSharedBit;
}
/// The kernel gives it up at its owner's end.
inline bool is_robust(const pthread_mutex_t* m) {
    constexpr int kRobustBit = 16;  ///< PTHREAD_MUTEX_ROBUST_NORMAL_NP
    return m->__data.__kind & kRobustBit;
}
/// libc's, which leaves one behind locked that nobody can have any more (ENOTRECOVERABLE).
inline int try_mutex(pthread_mutex_t* m) {
    constexpr int kNotRecoverable = INT_MAX - 1;  ///< of __owner in glibc
    if (is_robust(m) && m->__data.__owner == kNotRecoverable) return ENOTRECOVERABLE;
    return real.pthread_mutex_trylock(m);
}
inline uint64_t mutex_key(const pthread_mutex_t* m) {
    return object_key(m, is_shared(m));
}
inline int unlock_mutex_in_turn(pthread_mutex_t* m) {
    const bool shared = is_shared(m);
    const int rc = real.pthread_mutex_unlock(m);
    if (rc == 0) wake_waiters(m, shared, 1);
    return rc;
}

inline int lock_mutex_in_turn(Operation& turn, pthread_mutex_t* m) {
    const uint64_t key = mutex_key(m);
    for (;;) {
        const int rc = try_mutex(m);
        if (rc != EBUSY) return rc;
        turn.outlast(key, dmt::kNoDeadline, true, is_robust(m) ? robust_bit() : 0);
    }
}

}  // namespace crane::interpose
