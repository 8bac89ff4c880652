// What wrappers of blocking calls share: waiting on kernel streams, restarts after signals, results in errno.
#pragma once

#include "interpose/core/fds.hpp"
#include "interpose/core/runtime.hpp"

namespace crane::interpose {

/// Turns a core result (value or -errno) into libc's.
inline long as_libc(long rc) {
    if (rc >= 0) return rc;
    errno = static_cast<int>(-rc);
    return -1;
}

/// A wait was cut short by signals: runs their handlers, with the turn in hand before and after. True if the
/// call should go on (every handler was installed with SA_RESTART), false for EINTR.
bool restart_after_signals();

/// Waits until the kernel stream is ready for `events` (POLLIN, POLLOUT). Returns 0 when it is or when the
/// real call will not block anyway, -EINTR, or -EAGAIN when `deadline_ns` passed.
long wait_for_stream(Operation& turn, int fd, const FdEntry& entry, short events, uint64_t deadline_ns);
/// True if the descriptor is non-blocking for the kernel.
bool kernel_nonblocking(int fd);
/// Raises SIGPIPE in this thread. Turn in hand.
void raise_sigpipe();

}  // namespace crane::interpose
