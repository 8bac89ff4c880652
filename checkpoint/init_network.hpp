// The network of a container: no interface but the loopback one, as servers look for addresses in it.
#pragma once

#include <string>

namespace crane::checkpoint {

/// A new network namespace has the interface down, and no address. Up, with the loopback addresses and the
/// one of base/own_address.hpp: where there is none but loopback libc's look-ups pass over all numbers of
/// IPv4 (AI_ADDRCONFIG), and who listens at each address by itself would serve nobody from outside. Returns
/// "" or what went wrong.
std::string bring_network_up();

}  // namespace crane::checkpoint
