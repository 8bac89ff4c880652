// Connections that many open at once: how much of one turn of the event loop they get.
#include <arpa/inet.h>
#include <event2/event.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <vector>

#include "paxos/link/connection.hpp"
#include "paxos/link/incoming_peers.hpp"
#include "test_free_port.hpp"

using namespace crane::paxos;

TEST_CASE(
    "paxos incoming: one turn of the loop takes a bounded number of connections, the next ones the rest") {
    constexpr size_t kComing = 48;  // fewer than may wait
    event_base* base = event_base_new();
    size_t taken = 0;
    IncomingEvents events;
    events.make_stream = [&](int fd) {
        ++taken;
        return make_plain_stream(fd);
    };
    events.not_a_member = [](ReplicaId) { return std::string("a test"); };
    events.on_frame = [](ReplicaId, FrameType, std::string_view) { return true; };
    events.on_greeted = events.on_lost = [](ReplicaId) {};
    {
        IncomingPeers peers(base, Identity{"unit", 1}, Versions{}, 60'000, events);
        const uint16_t port = crane::testing::free_port();
        peers.listen({1, "127.0.0.1", port});
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        address.sin_port = htons(port);
        std::vector<int> clients;
        for (size_t i = 0; i < kComing; ++i) {
            clients.push_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
            REQUIRE(connect(clients.back(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
        }
        for (size_t turn = 0; turn < kComing && taken < kComing; ++turn) {
            const size_t before = taken;
            event_base_loop(base, EVLOOP_ONCE);
            CHECK(taken - before <= 16);
        }
        CHECK(taken == kComing);
        for (const int client : clients) close(client);
    }
    event_base_free(base);
}
