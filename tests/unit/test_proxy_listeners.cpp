// What the server listens on, and what of it clients are shown.
#include <arpa/inet.h>
#include <event2/event.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <memory>

#include "proxy/listeners.hpp"
#include "test_descriptors.hpp"
#include "test_free_port.hpp"

using namespace crane::proxy;
using crane::testing::free_port;
using crane::timebubble::ListenRecord;

namespace {

using Base = std::unique_ptr<event_base, decltype(&event_base_free)>;

ListenRecord record_of(int family, const char* address, uint16_t port) {
    ListenRecord out{};
    out.family = static_cast<uint16_t>(family);
    out.port = port;
    REQUIRE(inet_pton(family, address, out.address) == 1);
    return out;
}

/// Whether somebody listens there.
bool is_served(const char* address, uint16_t port) {
    sockaddr_storage to{};
    socklen_t length = sizeof(sockaddr_in);
    if (strchr(address, ':')) {
        auto& six = reinterpret_cast<sockaddr_in6&>(to);
        six.sin6_family = AF_INET6;
        six.sin6_port = htons(port);
        REQUIRE(inet_pton(AF_INET6, address, &six.sin6_addr) == 1);
        length = sizeof(six);
    } else {
        auto& four = reinterpret_cast<sockaddr_in&>(to);
        four.sin_family = AF_INET;
        four.sin_port = htons(port);
        REQUIRE(inet_pton(AF_INET, address, &four.sin_addr) == 1);
    }
    const int fd = socket(to.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool served = connect(fd, reinterpret_cast<sockaddr*>(&to), length) == 0;
    close(fd);
    return served;
}

auto open_descriptors() {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
}

bool has_ipv6() {
    const int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_addr = in6addr_loopback;
    const bool can = bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
    close(fd);
    return can;
}

}  // namespace

TEST_CASE("listeners: `::` serves clients of the families that the server has", "[proxy]") {
    const Base base(event_base_new(), event_base_free);
    const uint16_t port = free_port();
    Listeners here(
        base.get(), "::", {}, [](int, uint16_t, const Listeners::Place&) {}, nullptr);
    here.listen(record_of(AF_INET, "0.0.0.0", port));
    here.end_turn();
    REQUIRE(here.states().size() == 1);
    CHECK(here.states()[0].open);
    CHECK(here.states()[0].error.empty());
    CHECK(is_served("127.0.0.1", port));
    if (!has_ipv6()) return;
    CHECK_FALSE(is_served("::1", port));  // as natively: it was accepted, and reset, once
    here.listen(record_of(AF_INET6, "::", port));
    here.end_turn();
    CHECK(is_served("127.0.0.1", port));
    CHECK(is_served("::1", port));
    here.unlisten(record_of(AF_INET6, "::", port));
    here.end_turn();
    CHECK(is_served("127.0.0.1", port));
    CHECK_FALSE(is_served("::1", port));
}

TEST_CASE("listeners: a server of IPv4 alone at an address of IPv6 alone is an error that is said",
          "[proxy]") {
    const Base base(event_base_new(), event_base_free);
    Listeners here(
        base.get(), "::1", {}, [](int, uint16_t, const Listeners::Place&) {}, nullptr);
    here.listen(record_of(AF_INET, "0.0.0.0", free_port()));
    here.end_turn();
    REQUIRE(here.states().size() == 1);
    CHECK_FALSE(here.states()[0].open);
    CHECK(here.states()[0].error.find("IPv4 only") != std::string::npos);
}

TEST_CASE("listeners: all addresses of a name are served, and it is looked up beside the loop", "[proxy]") {
    const Base base(event_base_new(), event_base_free);
    const uint16_t port = free_port();
    Listeners here(
        base.get(), "localhost", {}, [](int, uint16_t, const Listeners::Place&) {}, nullptr);
    here.listen(record_of(AF_INET, "127.0.0.1", port));
    here.end_turn();
    CHECK_FALSE(here.states()[0].open);  // nothing has waited for a name server
    while (!here.states()[0].open) event_base_loop(base.get(), EVLOOP_ONCE);
    CHECK(is_served("127.0.0.1", port));
}

TEST_CASE("listeners: a port for the server's own host alone is not shown to other hosts", "[proxy]") {
    const Base base(event_base_new(), event_base_free);
    // 192.0.2.1 is nobody's: opening it fails, and is tried again, but it counts as shown.
    Listeners abroad(
        base.get(), "192.0.2.1", {{7001, 7101}}, [](int, uint16_t, const Listeners::Place&) {}, nullptr);
    abroad.listen(record_of(AF_INET, "127.0.0.1", 7000));
    abroad.listen(record_of(AF_INET6, "::1", 7002));
    abroad.unlisten(record_of(AF_INET, "127.0.0.1", 7000));
    abroad.end_turn();
    CHECK(abroad.states().empty());
    abroad.listen(record_of(AF_INET, "127.0.0.1", 7001));  // the operator asked for it
    abroad.listen(record_of(AF_INET, "0.0.0.0", 7003));
    abroad.end_turn();
    REQUIRE(abroad.states().size() == 2);
    CHECK(abroad.states()[0].client_port == 7101);
    CHECK(abroad.states()[1].port == 7003);
    // One private and one public listener on a port: it stays until the public one goes.
    abroad.listen(record_of(AF_INET, "127.0.0.1", 7003));
    abroad.unlisten(record_of(AF_INET, "127.0.0.1", 7003));
    abroad.end_turn();
    CHECK(abroad.states().size() == 2);
    abroad.unlisten(record_of(AF_INET, "0.0.0.0", 7003));
    abroad.end_turn();
    CHECK(abroad.states().size() == 1);
}

TEST_CASE("listeners: clients on this host reach what the server has on its loopback", "[proxy]") {
    const Base base(event_base_new(), event_base_free);
    const uint16_t port = free_port();
    Listeners here(
        base.get(), "127.0.0.1", {}, [](int, uint16_t, const Listeners::Place&) {}, nullptr);
    ListenRecord record = record_of(AF_INET, "127.0.0.1", port);
    here.listen(record);
    here.end_turn();
    REQUIRE(here.states().size() == 1);
    CHECK(here.states()[0].open);
    record.defer_accept_s = 30;
    here.change(record);
    here.unlisten(record);
    here.end_turn();
    CHECK(here.states().empty());
}

namespace {

/// Listens at a port, and counts the clients that it takes.
struct Counting {
    int taken = 0;
    Listeners listeners;

    Counting(event_base* base, const std::string& address, uint16_t port)
        : listeners(
              base, address, {},
              [this](int fd, uint16_t, const Listeners::Place&) {
                  close(fd);
                  ++taken;
              },
              nullptr) {
        listeners.listen(record_of(AF_INET, "0.0.0.0", port));
        listeners.end_turn();
    }
};

}  // namespace

TEST_CASE("listeners: a port rests while there are no descriptors, says so, and serves who waited",
          "[proxy]") {
    const Base base(event_base_new(), event_base_free);
    const uint16_t port = free_port();
    Counting counting(base.get(), "127.0.0.1", port);
    Listeners& here = counting.listeners;
    const int& taken = counting.taken;
    const int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_in to{AF_INET, htons(port), {htonl(INADDR_LOOPBACK)}, {}};
    int turns = 0;
    {
        const crane::test::NoDescriptors none;
        REQUIRE(connect(client, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) == 0);
        const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(450);
        for (; std::chrono::steady_clock::now() < end; ++turns) event_base_loop(base.get(), EVLOOP_ONCE);
        CHECK(turns < 50);  // it tries ten times a second
        CHECK(taken == 0);
        while (here.states()[0].error.empty()) event_base_loop(base.get(), EVLOOP_ONCE);
        CHECK(here.states()[0].error.find("ulimit -n") != std::string::npos);
    }
    while (taken == 0) event_base_loop(base.get(), EVLOOP_ONCE);
    CHECK(here.states()[0].error.empty());
    close(client);
}

// It stayed closed for ever: the client that was accepted next took the timer of the tries with it.
TEST_CASE("listeners: an address that found no descriptor is opened when there are some again", "[proxy]") {
    if (!has_ipv6()) return;
    const Base base(event_base_new(), event_base_free);
    const uint16_t port = free_port();
    Counting counting(base.get(), "::", port);
    Listeners& here = counting.listeners;
    const int& taken = counting.taken;
    CHECK(here.sockets() == 1);
    const int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_in to{AF_INET, htons(port), {htonl(INADDR_LOOPBACK)}, {}};
    {
        const crane::test::NoDescriptors none;
        here.listen(record_of(AF_INET6, "::", port));
        here.end_turn();
        CHECK(here.states()[0].error.find("cannot listen on") != std::string::npos);
        REQUIRE(connect(client, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) == 0);
        while (here.states()[0].error.find("cannot accept") == std::string::npos)
            event_base_loop(base.get(), EVLOOP_ONCE);
    }
    while (taken == 0) event_base_loop(base.get(), EVLOOP_ONCE);
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (here.sockets() == 1 && std::chrono::steady_clock::now() < end)
        event_base_loop(base.get(), EVLOOP_NONBLOCK);
    CHECK(here.sockets() == 2);
    CHECK(is_served("::1", port));
    CHECK(here.states()[0].error.empty());
    close(client);
}

TEST_CASE("listeners: a server that changes its mind over and over opens nothing in between", "[proxy]") {
    const Base base(event_base_new(), event_base_free);
    Listeners here(
        base.get(), "127.0.0.1", {}, [](int, uint16_t, const Listeners::Place&) {}, nullptr);
    const ListenRecord kept = record_of(AF_INET, "0.0.0.0", free_port());
    const ListenRecord other = record_of(AF_INET, "0.0.0.0", free_port());
    const auto before = open_descriptors();
    here.listen(kept);
    for (int i = 0; i < 100'000; ++i) {
        here.listen(other);
        here.unlisten(other);
    }
    CHECK(open_descriptors() == before);
    here.end_turn();
    CHECK(open_descriptors() == before + 1);
    REQUIRE(here.states().size() == 1);
    CHECK(here.states()[0].open);
    CHECK(is_served("127.0.0.1", kept.port));
    // Closed and opened again within a turn: its clients have not noticed.
    here.unlisten(kept);
    here.listen(kept);
    here.end_turn();
    CHECK(is_served("127.0.0.1", kept.port));
    here.unlisten(kept);
    here.end_turn();
    CHECK(here.states().empty());
    CHECK(open_descriptors() == before);
}

TEST_CASE("listeners: datagrams have a port of their own beside the one of the same number", "[proxy]") {
    const Base base(event_base_new(), event_base_free);
    const uint16_t port = free_port();
    int readable = 0;
    Listeners here(
        base.get(), "127.0.0.1", {}, [](int, uint16_t, const Listeners::Place&) {},
        [&](int fd, uint16_t which) {
            char byte;
            CHECK(which == port);
            CHECK(recv(fd, &byte, 1, 0) == 1);
            ++readable;
        });
    crane::timebubble::ListenRecord udp = record_of(AF_INET, "0.0.0.0", port);
    udp.protocol = IPPROTO_UDP;
    here.listen(record_of(AF_INET, "0.0.0.0", port));
    here.listen(udp);
    here.end_turn();
    REQUIRE(here.states().size() == 2);
    CHECK(is_served("127.0.0.1", port));
    const uint8_t local[16] = {127, 0, 0, 1}, other[16] = {127, 0, 0, 2};
    CHECK(here.datagram_socket(port, AF_INET, local) >= 0);
    CHECK(here.datagram_socket(port, AF_INET, other) == -1);
    CHECK(here.datagram_socket(port, AF_INET6, local) == -1);
    const int client = socket(AF_INET, SOCK_DGRAM, 0);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(sendto(client, "x", 1, 0, reinterpret_cast<sockaddr*>(&to), sizeof(to)) == 1);
    event_base_loop(base.get(), EVLOOP_ONCE);
    CHECK(readable == 1);
    close(client);
    here.unlisten(udp);
    here.end_turn();
    CHECK(here.datagram_socket(port, AF_INET, local) == -1);
    CHECK(is_served("127.0.0.1", port));
}

TEST_CASE("listeners: a port for datagrams that is sent from in the turn that opens it is open", "[proxy]") {
    const Base base(event_base_new(), event_base_free);
    Listeners here(
        base.get(), "127.0.0.1", {}, [](int, uint16_t, const Listeners::Place&) {}, [](int, uint16_t) {});
    const uint16_t port = free_port();
    crane::timebubble::ListenRecord udp = record_of(AF_INET, "0.0.0.0", port);
    udp.protocol = IPPROTO_UDP;
    const uint8_t local[16] = {127, 0, 0, 1};
    here.listen(udp);
    CHECK(here.datagram_socket(port, AF_INET, local) >= 0);
    here.unlisten(udp);
    here.end_turn();
    CHECK(here.datagram_socket(port, AF_INET, local) == -1);
    CHECK(here.states().empty());
    here.listen(udp);
    here.unlisten(udp);
    CHECK(here.datagram_socket(port, AF_INET, local) == -1);
    here.end_turn();
    CHECK(here.states().empty());
}
