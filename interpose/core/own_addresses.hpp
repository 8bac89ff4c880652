// The addresses that the server finds beside the loopback ones (base/own_address.hpp), and what /proc/net
// tells of them.
#pragma once

#include "base/own_address.hpp"
#include "interpose/core/domain.hpp"
#include "interpose/core/runtime.hpp"
#include "interpose/core/text.hpp"

namespace crane::interpose {

/// The interfaces of the container, by number.
constexpr int kLoopbackInterface = 1, kOuterInterface = 2;

inline const OwnAddresses& own_addresses() {
    const OwnAddresses& given = runtime.view.control->own_addresses;
    return given.count != 0 && given.count <= std::size(given.list) ? given : kUsualAddresses;
}

/// Of the one that has the address: IPv6 is on the loopback interface.
int interface_of(const Address& address);

/// As /proc/net/route and /proc/net/if_inet6 of the container.
void write_routes(Text& out);
void write_interfaces_six(Text& out);

}  // namespace crane::interpose
