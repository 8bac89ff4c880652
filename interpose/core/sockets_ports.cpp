// Which TCP socket has which port: whoever is bound to one excludes others from it, whether it listens or
// not.
#include "interpose/core/datagrams.hpp"
#include "interpose/core/socket_options.hpp"
#include "interpose/core/socket_table.hpp"

namespace crane::interpose {

namespace {

/// Whether the one has some address of the other's; the same port is taken for granted.
bool covers(const VirtualSocket& holder, const VirtualSocket& s, const Address& wanted) {
    const Address there = plain(holder.local), here = plain(wanted);
    if (there.family == here.family) return same_host(there, here) || is_any(there) || is_any(here);
    // IPv6 is in the way of IPv4 where a socket takes both.
    const bool six_holds = there.family == AF_INET6;
    return six_holds ? is_any(there) && !holder.v6_only : is_any(here) && !s.v6_only;
}

bool reuses_address(uint32_t index) {
    return kept_number(index, SOL_SOCKET, SO_REUSEADDR, 0) != 0;
}

/// As the kernel has it: two that both say SO_REUSEADDR share a port until one listens.
bool may_share(uint32_t holder, uint32_t index) {
    const VirtualSocket& h = socket_at(holder);
    if (h.reuse_port && socket_at(index).reuse_port) return true;
    return h.state != SocketState::kListening && reuses_address(holder) && reuses_address(index);
}

uint32_t& port_bucket(uint32_t port) {
    return domain().ports[port % kPortBuckets];
}

}  // namespace

bool port_is_taken(uint32_t index, const Address& wanted, bool by_number) {
    for (uint32_t at = port_bucket(wanted.port); at != 0; at = socket_at(at - 1).port_next) {
        const VirtualSocket& holder = socket_at(at - 1);
        if (at - 1 == index || holder.held_port != wanted.port) continue;
        if (by_number && may_share(at - 1, index)) continue;
        if (covers(holder, socket_at(index), wanted)) return true;
    }
    return false;
}

int choose_port_of(uint32_t index, Address& wanted) {
    const bool by_number = wanted.port != 0;
    return choose_port(wanted, [index, by_number](const Address& address) {
        return port_is_taken(index, address, by_number);
    });
}

void hold_port(uint32_t index) {
    VirtualSocket& s = socket_at(index);
    uint32_t& first = port_bucket(s.local.port);
    s.held_port = s.local.port;
    s.port_next = first;
    first = index + 1;
}

void release_port(uint32_t index) {
    VirtualSocket& s = socket_at(index);
    if (s.held_port == 0) return;
    uint32_t* link = &port_bucket(s.held_port);
    while (*link != index + 1) link = &socket_at(*link - 1).port_next;
    *link = s.port_next;
    s.held_port = s.port_next = 0;
}

int socket_bind(uint32_t index, const sockaddr* address, socklen_t length) {
    VirtualSocket& s = socket_at(index);
    if (s.bound) return -EINVAL;
    Address wanted;
    if (const int error = address_from_sockaddr(address, length, wanted)) return error;
    if (wanted.family != s.local.family) return -EINVAL;
    if (s.state == SocketState::kDatagram) return datagram_bind(index, wanted);
    if (const int error = choose_port_of(index, wanted)) return error;
    s.local = wanted;
    s.bound = 1;
    hold_port(index);
    return 0;
}

}  // namespace crane::interpose
