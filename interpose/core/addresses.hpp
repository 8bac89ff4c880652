// Addresses of virtual sockets: what the program gives and is shown, and what kinds there are.
#pragma once

#include <sys/socket.h>

#include <cerrno>

#include "interpose/core/domain.hpp"

namespace crane::interpose {

/// 0, -EINVAL or -EAFNOSUPPORT, as bind has it. `given` is Crane's own copy.
int address_from_sockaddr(const sockaddr* given, socklen_t length, Address& out);
/// 0, -EFAULT or -EINVAL, as getsockname has it.
int address_to_sockaddr(const Address& address, sockaddr* out, socklen_t* length);

/// An IPv4 address in IPv6's clothes (::ffff:…) as what it is, and how a socket of a family shows an address.
Address plain(const Address& address);
Address as_family(const Address& address, uint16_t family);

/// Of plain addresses.
bool is_any(const Address& address);
bool is_loopback(const Address& address);
/// Of this host: loopback, or its own address (base/own_address.hpp).
bool is_here(const Address& address);
/// From where it speaks to one of its own addresses. Port 0.
Address near_to(const Address& here);
/// For a group, or for all hosts.
bool is_for_many(const Address& address);
/// Of those, one that hosts join (multicast).
bool is_group(const Address& address);
/// This host's, beside loopback.
Address own_address_of(uint16_t family, uint16_t port);
/// The family's usual loopback address, port 0.
Address loopback_of(uint16_t family);
bool same_host(const Address& one, const Address& other);

/// Ports that nobody asked for by number come in order, above the registered ones.
constexpr int kFreePorts = 16384;
uint16_t next_free_port();
/// Port 0 is any that is not taken. -EADDRINUSE: the one that is wanted is, or all are.
template <typename IsTaken>
int choose_port(Address& wanted, IsTaken is_taken) {
    const bool any = wanted.port == 0;
    if (any) wanted.port = next_free_port();
    for (int tries = 0; is_taken(wanted); ++tries) {
        if (!any || tries == kFreePorts) return -EADDRINUSE;
        wanted.port = next_free_port();
    }
    return 0;
}

}  // namespace crane::interpose
