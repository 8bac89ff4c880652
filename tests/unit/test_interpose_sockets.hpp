// Clients and listeners of a plain domain.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <catch2/catch.hpp>

#include "interpose/core/sockets.hpp"
#include "test_interpose_domain.hpp"

namespace crane::interpose::testing {

inline sockaddr_in ipv4(const char* address, uint16_t port) {
    sockaddr_in in{};
    in.sin_family = AF_INET;
    in.sin_port = htons(port);
    inet_pton(AF_INET, address, &in.sin_addr);
    return in;
}
inline sockaddr_in6 ipv6(const char* address, uint16_t port) {
    sockaddr_in6 in{};
    in.sin6_family = AF_INET6;
    in.sin6_port = htons(port);
    inet_pton(AF_INET6, address, &in.sin6_addr);
    return in;
}
inline int bind_to(uint32_t socket, const sockaddr_in& in) {
    return socket_bind(socket, reinterpret_cast<const sockaddr*>(&in), sizeof(in));
}
inline int bind_to(uint32_t socket, const sockaddr_in6& in) {
    return socket_bind(socket, reinterpret_cast<const sockaddr*>(&in), sizeof(in));
}
inline int connect_to(uint32_t socket, const sockaddr_in& in) {
    return socket_connect(socket, reinterpret_cast<const sockaddr*>(&in), sizeof(in));
}
inline int connect_to(uint32_t socket, const sockaddr_in6& in) {
    return socket_connect(socket, reinterpret_cast<const sockaddr*>(&in), sizeof(in));
}

inline std::string receive(uint32_t socket, size_t most, bool peek = false) {
    std::string bytes(most, '\0');
    const iovec one{bytes.data(), most};
    const long got = socket_receive(socket, &one, 1, peek);
    bytes.resize(got > 0 ? static_cast<size_t>(got) : 0);
    return bytes;
}
inline long send(uint32_t socket, std::string_view bytes) {
    const iovec one{const_cast<char*>(bytes.data()), bytes.size()};
    return socket_send(socket, &one, 1);
}

class Clients {
  public:
    static constexpr uint16_t kPort = 80;

    explicit Clients(PlainDomain& domain, int backlog = 100) : domain_(domain) {
        listener_ = new_socket(AF_INET, true);
        REQUIRE(bind_to(listener_, ipv4("0.0.0.0", kPort)) == 0);
        REQUIRE(socket_listen(listener_, backlog) == 0);
    }
    uint32_t listener() const { return listener_; }

    static timebubble::ConnectPayload from(uint16_t peer_port, uint16_t listen_port = kPort) {
        timebubble::ConnectPayload call{listen_port, AF_INET, peer_port, listen_port, {10, 0, 0, 9}, {}};
        const uint8_t local[4] = {10, 0, 0, 1};
        std::copy(std::begin(local), std::end(local), call.local);
        return call;
    }
    static void connect(PlainDomain& domain, uint64_t connection, uint16_t port = kPort) {
        domain.call(timebubble::CallKind::kConnect, connection, bytes_of(from(40'000, port)));
    }
    uint32_t connect_and_accept(uint64_t connection) {
        connect(domain_, connection);
        const uint32_t socket = socket_accept(listener_);
        REQUIRE(socket != kNone);
        return socket;
    }

  private:
    PlainDomain& domain_;
    uint32_t listener_;
};

}  // namespace crane::interpose::testing
