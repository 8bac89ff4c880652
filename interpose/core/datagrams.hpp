// Virtual UDP sockets: clients' datagrams are calls in the log, and what the server sends to them leaves by
// the proxy. Datagrams inside the domain go from one socket to the other.
//
// Every function is called with the turn. Results: a count or 0, or -errno. As with UDP anywhere a datagram
// that finds no place is lost: here at the same place on every replica.
#pragma once

#include "interpose/core/sockets.hpp"

namespace crane::interpose {

/// SO_RCVBUF and SO_SNDBUF that nobody has set, as Linux has them.
constexpr int kDatagramBufferBytes = 212'992;

uint32_t new_datagram_socket(int family, bool nonblocking);  ///< kNone: table full
inline bool is_datagram(uint32_t socket) {
    return domain().sockets[socket].state == SocketState::kDatagram;
}

int datagram_bind(uint32_t socket, Address wanted);
/// To AF_UNSPEC: not connected any more.
int datagram_connect(uint32_t socket, const sockaddr* address, socklen_t length);
int datagram_shutdown(uint32_t socket, int how);
void datagram_close(uint32_t socket);
uint32_t datagram_events(uint32_t socket);
/// SO_ERROR: told once.
int datagram_take_error(uint32_t socket);

struct DatagramInfo {
    Address from, to;  ///< as the socket's family shows them
    size_t bytes;      ///< of the whole datagram
};
/// The oldest datagram, or its beginning. -EAGAIN: none is there; -EFAULT.
long datagram_receive(uint32_t socket, const iovec* vector, int count, bool peek, DatagramInfo& info);
/// FIONREAD: bytes of the oldest.
size_t datagram_next_bytes(uint32_t socket);
/// Sends the whole vector as one. `to` null: to whom the socket is connected.
long datagram_send(uint32_t socket, const iovec* vector, int count, const Address* to);

/// A client's, as decided.
void datagram_arrives(const char* payload, size_t bytes);

}  // namespace crane::interpose
