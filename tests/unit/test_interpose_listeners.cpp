// Listeners: which one a connection comes to, and how many may wait there.
#include <catch2/catch.hpp>
#include <cstring>
#include <deque>
#include <map>

#include "interpose/core/socket_options.hpp"
#include "interpose/core/socket_table.hpp"
#include "test_interpose_sockets.hpp"
#include "timebubble/limits.hpp"

using namespace crane::interpose;
using namespace crane::interpose::testing;
using crane::timebubble::CallKind;
using crane::timebubble::OutputKind;

namespace {

template <typename Name>
uint32_t listen_at(const Name& name, int family, bool reuse = false, bool v6_only = false) {
    const uint32_t socket = new_socket(family, true);
    socket_at(socket).reuse_port = reuse;
    socket_at(socket).v6_only = v6_only;
    REQUIRE(bind_to(socket, name) == 0);
    REQUIRE(socket_listen(socket, 10) == 0);
    return socket;
}

Address of(const sockaddr_in& in) {
    Address address{AF_INET, ntohs(in.sin_port), {}};
    std::memcpy(address.bytes, &in.sin_addr, 4);
    return address;
}
Address of(const sockaddr_in6& in) {
    Address address{AF_INET6, ntohs(in.sin6_port), {}};
    std::memcpy(address.bytes, &in.sin6_addr, 16);
    return address;
}

}  // namespace

TEST_CASE("listeners: the nearer address goes before the wider", "[interpose]") {
    PlainDomain domain;
    const Address to = of(ipv4("10.0.0.1", 80));
    CHECK(find_listener(to, true) == kNone);
    const uint32_t loopback = listen_at(ipv4("127.0.0.1", 80), AF_INET, true);
    CHECK(find_listener(to, true) == loopback);  // craned decides whom it serves there
    CHECK(find_listener(to, false) == kNone);
    const uint32_t elsewhere = listen_at(ipv4("10.9.9.9", 80), AF_INET, true);
    CHECK(find_listener(to, true) == elsewhere);
    const uint32_t dual = listen_at(ipv6("::", 80), AF_INET6, true);
    CHECK(find_listener(to, true) == dual);
    CHECK(find_listener(to, false) == dual);
    const uint32_t mapped = listen_at(ipv6("::ffff:10.0.0.1", 80), AF_INET6, true);
    CHECK(find_listener(to, true) == mapped);
    const uint32_t exact = listen_at(ipv4("10.0.0.1", 80), AF_INET, true);
    CHECK(find_listener(to, true) == exact);
    CHECK(find_listener(of(ipv6("fd00::1", 80)), true) == dual);
    CHECK(find_listener(of(ipv4("10.0.0.1", 81)), true) == kNone);
    release_socket(exact);
    CHECK(find_listener(to, true) == mapped);
}

TEST_CASE("listeners: one for IPv6 alone gets no IPv4 client", "[interpose]") {
    PlainDomain domain;
    const uint32_t six = listen_at(ipv6("::", 80), AF_INET6, false, true);
    CHECK(find_listener(of(ipv4("10.0.0.1", 80)), true) == kNone);
    CHECK(find_listener(of(ipv6("fd00::1", 80)), true) == six);
    const uint32_t four = listen_at(ipv4("0.0.0.0", 80), AF_INET);
    CHECK(find_listener(of(ipv4("10.0.0.1", 80)), true) == four);
}

TEST_CASE("listeners: a port that is bound is taken, until it is closed", "[interpose]") {
    PlainDomain domain;
    const uint32_t holder = new_socket(AF_INET, true), other = new_socket(AF_INET, true),
                   six = new_socket(AF_INET6, true), third = new_socket(AF_INET, true);
    REQUIRE(bind_to(holder, ipv4("127.0.0.1", 80)) == 0);
    CHECK(bind_to(other, ipv4("127.0.0.1", 80)) == -EADDRINUSE);
    CHECK(bind_to(other, ipv4("0.0.0.0", 80)) == -EADDRINUSE);
    CHECK(bind_to(six, ipv6("::", 80)) == -EADDRINUSE);
    CHECK(bind_to(other, ipv4("127.0.0.2", 80)) == 0);
    for (const uint32_t one : {holder, third}) keep_switch(one, SOL_SOCKET, SO_REUSEADDR, true);
    CHECK(bind_to(third, ipv4("127.0.0.1", 80)) == 0);
    CHECK(socket_listen(third, 5) == 0);
    CHECK(socket_listen(holder, 5) == -EADDRINUSE);
    for (const uint32_t one : {holder, third}) release_socket(one);
    const uint32_t again = new_socket(AF_INET, true);
    CHECK(bind_to(again, ipv4("127.0.0.1", 80)) == 0);
    for (const uint32_t one : {again, other, six}) release_socket(one);
    for (const uint32_t first : domain.state().ports) REQUIRE(first == 0);
}

TEST_CASE("listeners: those that share a port take turns", "[interpose]") {
    PlainDomain domain;
    std::vector<uint32_t> all;
    for (int i = 0; i < 3; ++i) all.push_back(listen_at(ipv4("0.0.0.0", 80), AF_INET, true));
    std::map<uint32_t, int> got;
    for (int i = 0; i < 30; ++i) ++got[find_listener(of(ipv4("10.0.0.1", 80)), true)];
    for (const uint32_t one : all) CHECK(got[one] == 10);
    const uint32_t alone = new_socket(AF_INET, true);
    CHECK(bind_to(alone, ipv4("0.0.0.0", 80)) == -EADDRINUSE);
    CHECK(bind_to(alone, ipv4("127.0.0.1", 80)) == -EADDRINUSE);
    CHECK(bind_to(alone, ipv6("::", 80)) == -EINVAL);
    CHECK(bind_to(alone, ipv4("0.0.0.0", 81)) == 0);
    CHECK(bind_to(alone, ipv4("0.0.0.0", 82)) == -EINVAL);  // once
}

TEST_CASE("listeners: as many clients wait as listen() said, and they are accepted in order", "[interpose]") {
    PlainDomain domain;
    Clients clients(domain, 4);
    const uint32_t places = crane::timebubble::backlog_places(4);
    for (uint64_t c = 1; c <= places + 2; ++c) Clients::connect(domain, c);
    CHECK_FALSE(port_has_place(Clients::kPort));
    uint64_t refused = 0;
    for (const Said& one : domain.said()) refused += one.kind == OutputKind::kClose && one.flags == 1;
    CHECK(refused == 2);
    for (uint64_t c = 1; c <= places; ++c) {
        CHECK(socket_at(socket_accept(clients.listener())).connection == c);
    }
    CHECK(socket_accept(clients.listener()) == kNone);
    CHECK(port_has_place(Clients::kPort));
    REQUIRE(socket_listen(clients.listener(), 1) == 0);
    for (uint64_t c = 100; c < 110; ++c) Clients::connect(domain, c);
    CHECK(socket_at(clients.listener()).queued_clients == crane::timebubble::backlog_places(1));
}

TEST_CASE("listeners: a queue of random comers agrees with a deque", "[interpose]") {
    PlainDomain domain;
    Dice dice{static_cast<uint64_t>(GENERATE(1, 2))};
    Clients clients(domain, 50);
    std::deque<uint64_t> model;  // 0: from inside
    for (uint64_t step = 1; step < 2000; ++step) {
        if (dice.below(2) && model.size() < 40) {
            const bool inside = dice.below(3) == 0;
            if (inside) {
                REQUIRE(connect_to(new_socket(AF_INET, true), ipv4("127.0.0.1", 80)) == -EINPROGRESS);
            } else {
                Clients::connect(domain, step);
            }
            model.push_back(inside ? 0 : step);
        } else {
            const uint32_t socket = socket_accept(clients.listener());
            REQUIRE((socket == kNone) == model.empty());
            if (model.empty()) continue;
            REQUIRE(socket_at(socket).connection == model.front());
            const uint32_t other = socket_at(socket).other;
            model.pop_front();
            release_socket(socket);
            if (other != kNone) release_socket(other);
        }
        REQUIRE(socket_at(clients.listener()).queued == model.size());
        const auto of_clients = model.size() - static_cast<size_t>(std::count(model.begin(), model.end(), 0));
        REQUIRE(socket_at(clients.listener()).queued_clients == of_clients);
        domain.said();
    }
}

TEST_CASE("listeners: one that closes resets those whom nobody has accepted", "[interpose]") {
    PlainDomain domain;
    Clients clients(domain);
    Clients::connect(domain, 1);
    const uint32_t inside = new_socket(AF_INET, true);
    REQUIRE(connect_to(inside, ipv4("127.0.0.1", Clients::kPort)) == -EINPROGRESS);
    Clients::connect(domain, 2);
    domain.said();
    release_socket(clients.listener());
    std::vector<uint64_t> reset;
    for (const Said& one : domain.said()) {
        if (one.kind == OutputKind::kClose && one.flags == 1) reset.push_back(one.connection);
    }
    CHECK(reset == std::vector<uint64_t>{1, 2});
    CHECK(domain.state().clients == 0);
    CHECK(domain.state().listener_count == 0);
    CHECK(send(inside, "x") == -ECONNRESET);
    CHECK(connect_to(new_socket(AF_INET, false), ipv4("127.0.0.1", Clients::kPort)) == -ECONNREFUSED);
}

TEST_CASE("listeners: a full table of them says so", "[interpose]") {
    PlainDomain domain;
    for (uint16_t port = 1; port <= 256; ++port) listen_at(ipv4("0.0.0.0", port), AF_INET);
    const uint32_t one_more = new_socket(AF_INET, true);
    REQUIRE(bind_to(one_more, ipv4("0.0.0.0", 999)) == 0);
    CHECK(socket_listen(one_more, 10) == -ENOBUFS);
}
