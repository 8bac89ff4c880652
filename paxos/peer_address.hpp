// Where a replica listens for its peers.
#pragma once

#include <cstdint>
#include <string>

namespace crane::paxos {

struct PeerAddress {
    uint32_t id = 0;
    std::string host;
    uint16_t port = 0;
    bool operator==(const PeerAddress&) const = default;
};

}  // namespace crane::paxos
