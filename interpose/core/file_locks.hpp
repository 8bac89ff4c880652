// Locks on files. The kernel keeps them; waiting for one is scheduled. A lock held by another thread or
// process of the domain is given up at some operation of its: an unlock, a close, its end. Who waits looks
// again after each.
#pragma once

#include "interpose/core/fds.hpp"

namespace crane::interpose {

/// True for the fcntl commands that take or give up a lock.
bool is_file_lock(int command);
long lock_by_fcntl(int fd, int command, long argument);
long lock_by_flock(int fd, int operation);
/// Some lock may have been given up: those that wait for one look again.
inline void file_lock_event() {
    if (domain().file_lock_waiters != 0) all_streams_event();
}

}  // namespace crane::interpose
