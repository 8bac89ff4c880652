// The network of a container: the loopback interface, and one that leads nowhere and has the server's
// address, as servers look for both.
#pragma once

#include <string>
#include <vector>

namespace crane::checkpoint {

struct Network {
    std::string error;   ///< what went wrong; "": nothing
    std::string weaker;  ///< what there is instead of what should be; "": all is there
};

/// A new network namespace has its loopback interface down, and nothing else. Up, and with an interface eth0
/// that is the same on all hosts: it has the addresses given, or that of base/own_address.hpp. Those of IPv6
/// are on the loopback interface, since eth0 would speak by itself. Where there is none but
/// loopback, libc's look-ups pass over all numbers of IPv4 (AI_ADDRCONFIG), who listens at each address by
/// itself would serve nobody from outside, and who passes over loopback interfaces finds none.
Network bring_network_up(const std::vector<std::string>& addresses);

}  // namespace crane::checkpoint
