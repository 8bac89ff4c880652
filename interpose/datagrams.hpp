// recv and send on virtual UDP sockets, in all their spellings (transfer.cpp).
#pragma once

#include <sys/socket.h>

#include <cstdint>

namespace crane::interpose {

bool is_udp(int family, int type, int protocol);

/// What recvfrom and recvmsg have beside the bytes; all may be null. Of a message only what is not the bytes
/// is looked at.
struct DatagramWanted {
    sockaddr* address = nullptr;
    socklen_t* length = nullptr;
    msghdr* message = nullptr;
};
long receive_datagram(uint32_t socket, const iovec* vector, int count, int flags,
                      const DatagramWanted& wanted);
/// `address` null: to whom the socket is connected. In the program's memory, like the vector's pieces.
long send_datagram(uint32_t socket, const iovec* vector, int count, int flags, const sockaddr* address,
                   socklen_t length);

/// Options that mean something else on a UDP socket than on the idle TCP socket behind all of them. True if
/// it was answered. `value` is readable or writable as far as `bytes` says.
bool datagram_set_option(uint32_t socket, int level, int name, const void* value, socklen_t bytes, long& rc);
bool datagram_get_option(uint32_t socket, int level, int name, int& number);

}  // namespace crane::interpose
