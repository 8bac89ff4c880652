// What wrappers of blocking calls share: waiting on kernel streams, restarts after signals, results in errno.
#pragma once

#include "interpose/core/fds.hpp"
#include "interpose/core/runtime.hpp"
#include "interpose/core/sockets.hpp"

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
/// The same of a call on a socket: one with a timeout of the socket's own ends with EINTR whatever the
/// handler's flags (signal(7)).
inline bool restart_on_socket(uint64_t deadline_ns) {
    return deadline_ns == dmt::kNoDeadline && restart_after_signals();
}

/// A call that does not wait, again when a tracer, a checkpoint or a real SIGCHLD cut it short: the program's
/// own signals never reach the kernel's calls.
template <typename Call>
long uninterrupted(Call call) {
    for (;;) {
        const long rc = call();
        if (rc != -EINTR) return rc;
    }
}

/// poll(2) on kernel descriptors, never -EINTR.
int probe_streams(pollfd* fds, size_t count, int timeout_ms);
/// Of one call, however often it has to wait.
struct StreamWait {
    /// So often the stream was ready and the call would have waited all the same: something has to happen
    /// first, or some time to pass.
    uint32_t in_vain = 0;
    uint64_t deadline_ns = 0;  ///< by the socket's own timeout (SO_RCVTIMEO, SO_SNDTIMEO); 0: not known yet
};
/// By the socket's own timeout for `events` (POLLIN, POLLOUT); none has a pipe.
uint64_t stream_deadline(int fd, short events);
/// Waits until the kernel stream is ready for `events` (POLLIN, POLLOUT). Returns 0 when it is or when the
/// real call will not block anyway, -EINTR, -EAGAIN when the socket's own timeout has passed, -EBADF when
/// another thread closed it.
long wait_for_stream(Operation& turn, int fd, const FdEntry& entry, short events);
long wait_for_stream(Operation& turn, int fd, const FdEntry& entry, short events, StreamWait& wait);
/// Sleeps until something happens to the virtual socket, which `hold` keeps. 0 after a wake, or the error
/// that the call ends with.
long wait_on_socket(Operation& turn, SocketHold& hold, uint32_t socket, uint64_t key, uint64_t deadline_ns);
/// True if the descriptor is non-blocking for the kernel.
bool kernel_nonblocking(int fd);
/// The descriptor is non-blocking for as long as this is there, with the turn: for calls that no flag keeps
/// from waiting. -1: none.
class WithoutWaiting {
  public:
    explicit WithoutWaiting(int fd);
    ~WithoutWaiting();
    WithoutWaiting(const WithoutWaiting&) = delete;
    WithoutWaiting& operator=(const WithoutWaiting&) = delete;

  private:
    int fd_;
    long flags_ = 0;
};
/// Raises SIGPIPE in this thread. Turn in hand.
void raise_sigpipe();

}  // namespace crane::interpose
