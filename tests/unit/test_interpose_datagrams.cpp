// Virtual UDP sockets: whom a datagram is for, what is lost, and what goes out.
#include <string.h>
#include <sys/epoll.h>
#include <catch2/catch.hpp>

#include "interpose/core/datagrams.hpp"
#include "interpose/core/socket_options.hpp"
#include "interpose/core/socket_table.hpp"
#include "test_interpose_sockets.hpp"

using namespace crane::interpose;
using namespace crane::interpose::testing;
using crane::timebubble::CallKind;
using crane::timebubble::DatagramPayload;
using crane::timebubble::DatagramRecord;
using crane::timebubble::ListenRecord;
using crane::timebubble::OutputKind;

namespace {

void arrive(PlainDomain& domain, uint16_t port, uint16_t peer_port, std::string_view bytes) {
    DatagramPayload call{port, AF_INET, peer_port, 0, 1, {10, 0, 0, 9}, {10, 0, 0, 1}};
    std::string payload(reinterpret_cast<const char*>(&call), sizeof(call));
    domain.call(CallKind::kDatagram, 0, payload.append(bytes));
}

std::string take(uint32_t socket, uint16_t* from = nullptr, size_t most = 65536) {
    std::string bytes(most, '\0');
    const iovec one{bytes.data(), most};
    DatagramInfo info;
    const long got = datagram_receive(socket, &one, 1, false, info);
    if (from) *from = info.from.port;
    if (got < 0) return std::to_string(got);
    bytes.resize(static_cast<size_t>(got));
    return bytes;
}

long give(uint32_t socket, std::string_view bytes, const sockaddr_in* to = nullptr) {
    const iovec one{const_cast<char*>(bytes.data()), bytes.size()};
    if (!to) return datagram_send(socket, &one, 1, nullptr);
    Address address;
    REQUIRE(address_from_sockaddr(reinterpret_cast<const sockaddr*>(to), sizeof(*to), address) == 0);
    return datagram_send(socket, &one, 1, &address);
}

uint32_t bound(const char* address, uint16_t port) {
    const uint32_t socket = new_datagram_socket(AF_INET, true);
    REQUIRE(bind_to(socket, ipv4(address, port)) == 0);
    return socket;
}

const std::string kNothing = std::to_string(-EAGAIN);

}  // namespace

TEST_CASE("datagrams: a bound port is told, once, and its end too", "[interpose]") {
    PlainDomain domain;
    const uint32_t socket = bound("0.0.0.0", 53);
    auto said = domain.said();
    REQUIRE(said.size() == 1);
    CHECK(said[0].kind == OutputKind::kDatagramPort);
    ListenRecord record;
    REQUIRE(said[0].payload.size() == sizeof(record));
    memcpy(&record, said[0].payload.data(), sizeof(record));
    CHECK(record.port == 53);
    CHECK(record.protocol == IPPROTO_UDP);
    release_socket(socket);
    said = domain.said();
    REQUIRE(said.size() == 1);
    CHECK(said[0].kind == OutputKind::kDatagramPortEnd);
    CHECK(domain.state().datagram_socket_count == 0);
}

TEST_CASE("datagrams: the end of a port names it as it was announced, though its socket is connected",
          "[interpose]") {
    PlainDomain domain;
    const uint32_t socket = bound("0.0.0.0", 53);
    arrive(domain, 53, 4000, "a");
    const sockaddr_in client = ipv4("10.0.0.9", 4000), nobody{};
    REQUIRE(datagram_connect(socket, reinterpret_cast<const sockaddr*>(&client), sizeof(client)) == 0);
    CHECK_FALSE(is_any(socket_at(socket).local));
    REQUIRE(datagram_connect(socket, reinterpret_cast<const sockaddr*>(&nobody), sizeof(nobody)) == 0);
    CHECK(is_any(socket_at(socket).local));
    REQUIRE(datagram_connect(socket, reinterpret_cast<const sockaddr*>(&client), sizeof(client)) == 0);
    release_socket(socket);
    const auto said = domain.said();
    REQUIRE(said.size() == 2);
    CHECK(said[1].kind == OutputKind::kDatagramPortEnd);
    CHECK(said[1].payload == said[0].payload);
}

TEST_CASE("datagrams: a client's goes to the socket connected to it before the port's other one",
          "[interpose]") {
    PlainDomain domain;
    const uint32_t all = bound("0.0.0.0", 53);
    arrive(domain, 53, 4000, "a");
    uint16_t from = 0;
    CHECK(take(all, &from) == "a");
    CHECK(from == 4000);
    keep_switch(all, SOL_SOCKET, SO_REUSEADDR, true);
    const uint32_t one = new_datagram_socket(AF_INET, true);
    keep_switch(one, SOL_SOCKET, SO_REUSEADDR, true);
    REQUIRE(bind_to(one, ipv4("0.0.0.0", 53)) == 0);
    const sockaddr_in client = ipv4("10.0.0.9", 4000);
    REQUIRE(datagram_connect(one, reinterpret_cast<const sockaddr*>(&client), sizeof(client)) == 0);
    CHECK(plain(socket_at(one).local).bytes[0] == 10);  // where the client had reached the server
    arrive(domain, 53, 4000, "b");
    arrive(domain, 53, 4001, "c");
    CHECK(take(one) == "b");
    CHECK(take(one) == kNothing);
    CHECK(take(all) == "c");
    arrive(domain, 54, 4000, "to nobody");
    CHECK(take(all) == kNothing);
}

TEST_CASE("datagrams: an answer goes out whole, with where it is to go", "[interpose]") {
    PlainDomain domain;
    const uint32_t socket = bound("0.0.0.0", 53);
    domain.said();
    const sockaddr_in client = ipv4("10.0.0.9", 4000);
    CHECK(give(socket, "answer", &client) == 6);
    const auto said = domain.said();
    REQUIRE(said.size() == 1);
    CHECK(said[0].kind == OutputKind::kDatagram);
    DatagramRecord record;
    REQUIRE(said[0].payload.size() == sizeof(record) + 6);
    memcpy(&record, said[0].payload.data(), sizeof(record));
    CHECK(record.port == 53);
    CHECK(record.peer_port == 4000);
    CHECK(record.peer[0] == 10);
    CHECK(said[0].payload.substr(sizeof(record)) == "answer");
    CHECK(give(socket, std::string(65508, 'x'), &client) == -EMSGSIZE);
    CHECK(give(socket, "x") == -EDESTADDRREQ);
}

TEST_CASE("datagrams: what has no room is lost whole, and what is there stays in order", "[interpose]") {
    PlainDomain domain;
    const uint32_t socket = bound("0.0.0.0", 53);
    const int wanted = 10'000;  // twice as much, as Linux has it
    REQUIRE(keep_option(socket, SOL_SOCKET, SO_RCVBUF, &wanted, sizeof(wanted)) == 0);
    int sent = 0;
    Dice dice{3};
    std::vector<std::string> kept;
    for (int round = 0; round < 400; ++round) {
        if (dice.below(3) != 0) {
            const std::string bytes = std::to_string(++sent) + std::string(dice.below(9000), 'x');
            const uint64_t before = socket_at(socket).input.unread();
            arrive(domain, 53, 4000, bytes);
            if (socket_at(socket).input.unread() != before) kept.push_back(bytes);
            CHECK((before < 20'000) == (socket_at(socket).input.unread() != before));
        } else if (!kept.empty()) {
            CHECK(datagram_next_bytes(socket) == kept.front().size());
            REQUIRE(take(socket) == kept.front());
            kept.erase(kept.begin());
        }
    }
    for (const std::string& one : kept) REQUIRE(take(socket, nullptr, 10) == one.substr(0, 10));
    CHECK(take(socket) == kNothing);
    CHECK(domain.state().input_pool.common_used[1] == 0);
    CHECK(sent > static_cast<int>(kept.size()));
}

TEST_CASE("datagrams: to a local port without a socket a connected one hears that nobody is there",
          "[interpose]") {
    PlainDomain domain;
    const uint32_t socket = new_datagram_socket(AF_INET, true);
    const sockaddr_in nobody = ipv4("127.0.0.1", 77);
    CHECK(give(socket, "x", &nobody) == 1);
    CHECK(take(socket) == kNothing);
    REQUIRE(datagram_connect(socket, reinterpret_cast<const sockaddr*>(&nobody), sizeof(nobody)) == 0);
    CHECK(give(socket, "x") == 1);
    CHECK((datagram_events(socket) & EPOLLERR) != 0);
    CHECK(take(socket) == std::to_string(-ECONNREFUSED));
    CHECK(take(socket) == kNothing);
}

TEST_CASE(
    "datagrams: a client at a loopback address is answered outside, unless a socket of the server's is there",
    "[interpose]") {
    PlainDomain domain;
    const uint32_t socket = bound("0.0.0.0", 53);
    DatagramPayload call{53, AF_INET, 4000, 0, 1, {127, 0, 0, 1}, {127, 0, 0, 1}};
    domain.call(CallKind::kDatagram, 0, {reinterpret_cast<const char*>(&call), sizeof(call)});
    CHECK(take(socket) == "");
    domain.said();
    const sockaddr_in client = ipv4("127.0.0.1", 4000);
    CHECK(give(socket, "out", &client) == 3);
    REQUIRE(domain.said().size() == 1);
    const uint32_t own = bound("127.0.0.1", 4000);
    domain.said();
    CHECK(give(socket, "in", &client) == 2);
    CHECK(domain.said().empty());
    CHECK(take(own) == "in");
}

TEST_CASE("datagrams: a name server outside is not asked, but answered where it has asked", "[interpose]") {
    PlainDomain domain;
    const uint32_t socket = new_datagram_socket(AF_INET, true);
    const sockaddr_in server = ipv4("192.0.2.7", 53), elsewhere = ipv4("192.0.2.7", 54);
    domain.said();
    CHECK(give(socket, "x", &server) == -ENETUNREACH);
    const auto said = domain.said();
    REQUIRE(said.size() == 2);  // the port is open all the same, and the refusal is told
    CHECK(said[0].kind == OutputKind::kDatagramPort);
    CHECK(give(socket, "x", &server) == -ENETUNREACH);
    CHECK(domain.said().empty());
    CHECK(give(socket, "x", &elsewhere) == 1);  // nobody waits for that, and it may be a client's
    DatagramPayload call{53, AF_INET, 53, 0, 1, {192, 0, 2, 7}, {192, 0, 2, 1}};
    domain.call(CallKind::kDatagram, 0, {reinterpret_cast<const char*>(&call), sizeof(call)});
    CHECK(give(socket, "x", &server) == 1);
}

TEST_CASE("datagrams: sockets that share a port by SO_REUSEPORT keep each its senders", "[interpose]") {
    PlainDomain domain;
    uint32_t sockets[2];
    for (uint32_t& socket : sockets) {
        socket = new_datagram_socket(AF_INET, true);
        socket_at(socket).reuse_port = 1;
        REQUIRE(bind_to(socket, ipv4("0.0.0.0", 53)) == 0);
    }
    const uint32_t third = new_datagram_socket(AF_INET, true);
    CHECK(bind_to(third, ipv4("0.0.0.0", 53)) == -EADDRINUSE);
    int each[2] = {};
    for (uint16_t port = 4000; port < 4100; ++port) {
        for (int i = 0; i < 2; ++i) arrive(domain, 53, port, "x");
        const bool first = take(sockets[0]) == "x";
        uint32_t other = first ? sockets[0] : sockets[1];
        if (!first) CHECK(take(sockets[1]) == "x");
        CHECK(take(other) == "x");
        ++each[first ? 0 : 1];
    }
    CHECK(each[0] > 20);
    CHECK(each[1] > 20);
}
