// Virtual TCP sockets (docs/design.md, "Virtual sockets"): client connections end in the proxy, and the
// server's accepted sockets live here. What recv returns and what send takes depends on the log alone.
//
// Every function is called with the turn. Results: a count or 0, or -errno.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include "interpose/core/addresses.hpp"
#include "interpose/core/runtime.hpp"

namespace crane::interpose {

/// Unread input of a connection inside the domain beyond which its writer waits.
constexpr uint64_t kPairBufferBytes = 1024 * 1024;

uint32_t new_socket(int family, bool nonblocking);  ///< kNone: table full
/// A descriptor that named the socket is closed; with the last one the socket goes.
void release_socket(uint32_t socket);

int socket_bind(uint32_t socket, const sockaddr* address, socklen_t length);
int socket_listen(uint32_t socket, int backlog);
/// Connects to a listener inside the domain, or begins to connect to the outside (egress.hpp).
int socket_connect(uint32_t socket, const sockaddr* address, socklen_t length);
/// connect() to no family: it neither listens nor is connected any more.
int socket_disconnect(uint32_t socket);
/// TCP_DEFER_ACCEPT: craned's listening socket does what the kernel would do.
void socket_defer_accept(uint32_t socket, int seconds);
/// SO_KEEPALIVE, its times and TCP_USER_TIMEOUT, which craned's socket to the client must have.
bool is_probe_option(int level, int name);
/// 0 or -EINVAL, as the kernel has it.
int socket_set_probe(uint32_t socket, int level, int name, int value);
int socket_get_probe(uint32_t socket, int level, int name);
/// The oldest queued connection, or kNone.
uint32_t socket_accept(uint32_t listener);
/// Copies up to the vector's size out of the unread input, or drops as much (`discard`: MSG_TRUNC). 0: end of
/// stream; -EAGAIN: nothing there yet; -EFAULT.
long socket_receive(uint32_t socket, const iovec* vector, int count, bool peek, bool discard = false);
/// Takes what the window has room for of the vector behind its first `skip` bytes. -EAGAIN: the window is
/// closed; -EPIPE / -ECONNRESET / -ENOTCONN / -EFAULT.
/// Why the other end's reset ended it, which is told once: EPIPE behind the end of its input, else
/// ECONNRESET. 0: it did not, or that was told.
int take_reset_error(VirtualSocket& s);
long socket_send(uint32_t socket, const iovec* vector, int count, size_t skip = 0);
/// How much socket_send would take now.
uint64_t socket_room(uint32_t socket);
/// Sends `bytes` of the file from its offset; returns how many it sent. -EAGAIN as above, or the file's
/// error.
long socket_send_file(uint32_t socket, int file, off_t* offset, size_t bytes);
int socket_shutdown(uint32_t socket, int how);

/// EPOLLIN, EPOLLOUT, … as they are now.
uint32_t socket_events(uint32_t socket);
inline uint64_t socket_key(uint32_t socket) {
    return make_key(ObjectKind::kSocket, socket);
}
/// Threads that may write, when the window opens.
inline uint64_t socket_write_key(uint32_t socket) {
    return make_key(ObjectKind::kSocket, socket | 0x8000'0000);
}

/// A thread that sleeps in a call on a socket keeps it, as the kernel's calls keep their file: closed by
/// another thread meanwhile, it goes when the call ends. Taken and let go with the turn.
class SocketHold {
  public:
    SocketHold() = default;
    ~SocketHold();
    SocketHold(const SocketHold&) = delete;
    SocketHold& operator=(const SocketHold&) = delete;
    void take(uint32_t socket);

  private:
    uint32_t depth_ = 0;  ///< how many the thread held before, plus one; 0: not taken
};
/// What a thread that will not return from its call still holds.
void release_held_sockets(dmt::SlotId slot, uint32_t keep = 0);

}  // namespace crane::interpose
