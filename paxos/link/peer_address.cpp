#include "paxos/link/peer_address.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <charconv>
#include <cstring>

namespace crane::paxos {
namespace {

bool is_loopback(const in_addr& address) {
    return ntohl(address.s_addr) >> 24 == 127;
}

bool is_loopback(const in6_addr& address) {
    if (!IN6_IS_ADDR_V4MAPPED(&address)) return IN6_IS_ADDR_LOOPBACK(&address);
    in_addr mapped{};
    std::memcpy(&mapped, address.s6_addr + 12, sizeof mapped);
    return is_loopback(mapped);
}

}  // namespace

bool parse_address(const std::string& text, PeerAddress& address) {
    const size_t colon = text.rfind(':');
    if (colon == std::string::npos || colon == 0) return false;
    const char* const end = text.data() + text.size();
    unsigned port = 0;
    const auto [rest, error] = std::from_chars(text.data() + colon + 1, end, port);
    if (error != std::errc() || rest != end || port == 0 || port > UINT16_MAX) return false;
    address.host = text.substr(0, colon);
    if (address.host.size() > 2 && address.host.front() == '[' && address.host.back() == ']')
        address.host = address.host.substr(1, address.host.size() - 2);
    address.port = static_cast<uint16_t>(port);
    return true;
}

std::string to_text(const PeerAddress& address) {
    return address.host + ":" + std::to_string(address.port);
}

bool is_numeric(const std::string& host) {
    in_addr four{};
    in6_addr six{};
    return inet_pton(AF_INET, host.c_str(), &four) == 1 || inet_pton(AF_INET6, host.c_str(), &six) == 1;
}

bool is_loopback(const std::string& host) {
    in_addr four{};
    in6_addr six{};
    if (inet_pton(AF_INET, host.c_str(), &four) == 1) return is_loopback(four);
    if (inet_pton(AF_INET6, host.c_str(), &six) == 1) return is_loopback(six);
    return host == "localhost";
}

bool is_loopback(const sockaddr* address) {
    if (address->sa_family == AF_INET)
        return is_loopback(reinterpret_cast<const sockaddr_in*>(address)->sin_addr);
    if (address->sa_family == AF_INET6)
        return is_loopback(reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
    return false;
}

std::string to_text(const sockaddr* address) {
    char text[INET6_ADDRSTRLEN] = "somewhere";
    if (address->sa_family == AF_INET)
        inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text, sizeof text);
    if (address->sa_family == AF_INET6)
        inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, text, sizeof text);
    return text;
}

}  // namespace crane::paxos
