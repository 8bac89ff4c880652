// Waiting on synchronization objects, shared by the wrappers that take a mutex in passing.
#pragma once

#include "interpose/core/runtime.hpp"

namespace crane::interpose {

/// Wakes those who wait for an object. Objects shared between processes are known by their place in the page
/// only, so all waiters there look again.
inline void wake_waiters(const void* object, bool shared, uint32_t most) {
    scheduler().signal(object_key(object, shared), shared ? ~uint32_t{0} : most);
}

int unlock_mutex_in_turn(pthread_mutex_t* m);
int lock_mutex_in_turn(Turn& turn, pthread_mutex_t* m);

}  // namespace crane::interpose
