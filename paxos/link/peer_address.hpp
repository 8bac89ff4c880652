// Where a replica listens for its peers.
#pragma once

#include <cstdint>
#include <string>

struct sockaddr;

namespace crane::paxos {

struct PeerAddress {
    uint32_t id = 0;
    std::string host;
    uint16_t port = 0;
    bool operator==(const PeerAddress&) const = default;
};

/// "host:port"; an IPv6 address may stand in brackets. False: it is not that, and `address` is unchanged.
bool parse_address(const std::string& text, PeerAddress& address);
std::string to_text(const PeerAddress& address);

/// Whether it can be reached from this machine alone: 127.0.0.0/8, ::1, and the name localhost. Other names
/// are not looked up.
bool is_loopback(const std::string& host);
bool is_numeric(const std::string& host);
bool is_loopback(const sockaddr* address);
std::string to_text(const sockaddr* address);  ///< numeric, without the port

}  // namespace crane::paxos
