// Clients' TCP connections: who is noticed to have gone.
#include <event2/event.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <memory>

#include "base/clock.hpp"
#include "proxy/client_connection.hpp"

using namespace crane::proxy;

namespace {

struct Listener final : EndpointUser {
    uint64_t input_room() const override { return 0; }
    void on_input(std::string_view) override {}
    void on_input_end() override { ended = true; }
    void on_taken(size_t) override {}
    void on_gone() override { gone = true; }
    bool ended = false;
    bool gone = false;
};

/// A client's end and ours of a connection over loopback.
struct Pair {
    int client = -1;
    int ours = -1;
    Pair() {
        const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        sockaddr_in address{AF_INET, 0, {htonl(INADDR_LOOPBACK)}, {}};
        socklen_t length = sizeof(address);
        REQUIRE(bind(listener, reinterpret_cast<sockaddr*>(&address), length) == 0);
        REQUIRE(listen(listener, 1) == 0);
        REQUIRE(getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) == 0);
        client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        REQUIRE(connect(client, reinterpret_cast<sockaddr*>(&address), length) == 0);
        ours = accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
        REQUIRE(ours >= 0);
        close(listener);
    }
    void reset() const {
        const linger abort{1, 0};
        REQUIRE(setsockopt(client, SOL_SOCKET, SO_LINGER, &abort, sizeof(abort)) == 0);
        close(client);
    }
};

}  // namespace

TEST_CASE("clients: one that is not read and resets its connection is let go of", "[proxy]") {
    const std::unique_ptr<event_base, decltype(&event_base_free)> base(event_base_new(), event_base_free);
    ClientPool pool(base.get(), KeepAlive{}, 1 << 20);
    Listener resets, stays, half_closes;
    const Pair one, two, three;
    pool.adopt(one.ours, {})->set_user(&resets);
    pool.adopt(two.ours, {})->set_user(&stays);
    pool.adopt(three.ours, {})->set_user(&half_closes);
    uint64_t now_ns = crane::monotonic_ns();
    const auto turn = [&] {
        event_base_loop(base.get(), EVLOOP_NONBLOCK);
        pool.reap(now_ns += 2'000'000'000);
        pool.end_turn();
    };
    turn();
    REQUIRE(pool.size() == 3);
    REQUIRE(send(one.client, "unread", 6, MSG_NOSIGNAL) == 6);
    REQUIRE(send(three.client, "unread", 6, MSG_NOSIGNAL) == 6);
    shutdown(three.client, SHUT_WR);
    one.reset();
    turn();
    CHECK(resets.gone);
    CHECK_FALSE(stays.gone);
    CHECK_FALSE(half_closes.gone);  // it may read yet
    CHECK(pool.size() == 2);
    pool.fail_all();
    pool.end_turn();
    close(two.client);
    close(three.client);
}
