// The table of virtual sockets: places and their use again, what connected ends carry, what a full table
// says.
#include <sys/epoll.h>
#include <catch2/catch.hpp>

#include <deque>
#include <map>
#include <set>

#include "interpose/core/blocking.hpp"
#include "interpose/core/epolls.hpp"
#include "interpose/core/socket_table.hpp"
#include "proxy/domain_account.hpp"
#include "test_amount.hpp"
#include "test_interpose_sockets.hpp"

using namespace crane::interpose;
using namespace crane::interpose::testing;
using crane::timebubble::CallKind;
using crane::timebubble::OutputKind;

namespace {

std::vector<Said> of_kind(const std::vector<Said>& all, OutputKind kind) {
    std::vector<Said> some;
    for (const Said& one : all) {
        if (one.kind == kind) some.push_back(one);
    }
    return some;
}

/// Two ends of a connection inside the domain.
struct Pair {
    uint32_t near, far;
    explicit Pair(Clients& clients) {
        near = new_socket(AF_INET, true);
        REQUIRE(connect_to(near, ipv4("127.0.0.1", Clients::kPort)) == -EINPROGRESS);
        far = socket_accept(clients.listener());
        REQUIRE(far != kNone);
    }
};

}  // namespace

TEST_CASE("socket table: the place freed last is used first, with a new generation", "[interpose]") {
    PlainDomain domain;
    std::vector<uint32_t> all;
    for (int i = 0; i < 4; ++i) all.push_back(new_socket(AF_INET, false));
    CHECK(all == std::vector<uint32_t>{0, 1, 2, 3});
    const uint32_t before = socket_at(1).generation;
    socket_at(1).local.port = 77;
    release_socket(1);
    release_socket(3);
    CHECK(new_socket(AF_INET, false) == 3);
    CHECK(new_socket(AF_INET6, true) == 1);
    CHECK(socket_at(1).generation == before + 1);
    CHECK(socket_at(1).local.port == 0);
    CHECK(socket_at(1).local.family == AF_INET6);
    CHECK(new_socket(AF_INET, false) == 4);
}

TEST_CASE("socket table: a full one refuses clients with a reset, and has room again after", "[interpose]") {
    PlainDomain domain;
    Clients clients(domain, 5000);
    while (new_socket(AF_INET, false) != kNone) {
    }
    CHECK(domain.state().socket_high == kMaxSockets);
    domain.said();
    Clients::connect(domain, 1);
    const auto refused = domain.said();
    REQUIRE(refused.size() == 1);
    CHECK(refused[0].kind == OutputKind::kClose);
    CHECK(refused[0].flags == 1);
    CHECK(find_connection(1) == kNone);
    CHECK(domain.state().clients == 0);
    release_socket(4321);
    Clients::connect(domain, 2);
    CHECK(find_connection(2) == 4321);
    CHECK(domain.state().clients == 1);
}

TEST_CASE("socket table: connections are found by number while they live", "[interpose]") {
    const uint64_t seed = GENERATE(1, 2);
    PlainDomain domain;
    Dice dice{seed};
    Clients clients(domain);
    std::map<uint64_t, uint32_t> model;
    uint64_t next = 1;
    for (int step = 0; step < 5000; ++step) {
        if (model.empty() || dice.below(5) < 3) {
            const uint64_t number = next++ << dice.below(20);
            if (model.count(number)) continue;
            model[number] = clients.connect_and_accept(number);
        } else {
            auto some = model.lower_bound(dice.below(next));
            if (some == model.end()) some = model.begin();
            release_socket(some->second);
            model.erase(some);
        }
        domain.said();
        if (step % 50) continue;
        std::set<uint32_t> places;
        for (const auto& [number, socket] : model) {
            REQUIRE(find_connection(number) == socket);
            places.insert(socket);
        }
        REQUIRE(places.size() == model.size());
        REQUIRE(domain.state().clients == model.size());
        REQUIRE(find_connection(next << 40) == kNone);
    }
}

TEST_CASE("sockets: a client's bytes and end come as they were sent", "[interpose]") {
    PlainDomain domain;
    Clients clients(domain);
    const uint32_t socket = clients.connect_and_accept(5);
    char one;
    const iovec piece{&one, 1};
    CHECK(socket_receive(socket, &piece, 1, false) == -EAGAIN);
    domain.call(CallKind::kSend, 5, "hello ");
    domain.call(CallKind::kSend, 5, "world");
    CHECK(receive(socket, 100, true) == "hello world");
    CHECK(receive(socket, 3) == "hel");
    CHECK(socket_receive(socket, &piece, 1, false, true) == 1);  // MSG_TRUNC throws away
    CHECK((socket_events(socket) & (EPOLLIN | EPOLLRDHUP)) == EPOLLIN);
    domain.call(CallKind::kShutdown, 5);
    CHECK((socket_events(socket) & EPOLLRDHUP) != 0);
    CHECK(receive(socket, 100) == "o world");
    CHECK(socket_receive(socket, &piece, 1, false) == 0);
    CHECK(socket_receive(socket, &piece, 1, false) == 0);
    CHECK(send(socket, "still") == 5);  // half closed
}

TEST_CASE("sockets: a bad address costs no byte", "[interpose]") {
    PlainDomain domain;
    Clients clients(domain);
    const uint32_t socket = clients.connect_and_accept(5);
    domain.call(CallKind::kSend, 5, "precious");
    domain.said();
    const BadAddresses bad;
    char good[4];
    const iovec vector[2] = {{good, sizeof(good)}, {nullptr, 10}};
    CHECK(socket_receive(socket, vector + 1, 1, false) == -EFAULT);
    CHECK(socket_send(socket, vector, 2) == -EFAULT);
    CHECK(domain.said().empty());
    CHECK(socket_receive(socket, vector, 2, false) == 4);
    CHECK(receive(socket, 100) == "ious");
}

TEST_CASE("sockets: what came before a reset can be read, and the reset is said once", "[interpose]") {
    PlainDomain domain;
    Clients clients(domain);
    const uint32_t socket = clients.connect_and_accept(5);
    domain.call(CallKind::kSend, 5, "unread");
    domain.call(CallKind::kReset, 5);
    CHECK((socket_events(socket) & (EPOLLERR | EPOLLHUP)) == (EPOLLERR | EPOLLHUP));
    char one;
    const iovec piece{&one, 1};
    CHECK(receive(socket, 100) == "unread");
    CHECK(socket_receive(socket, &piece, 1, false) == -ECONNRESET);
    CHECK(socket_receive(socket, &piece, 1, false) == 0);
    CHECK(send(socket, "x") == -EPIPE);
    domain.call(CallKind::kSend, 5, "late");
    CHECK(socket_receive(socket, &piece, 1, false) == 0);
    CHECK(domain.state().input_pool.common_used[0] == 0);
}

TEST_CASE("sockets: what a reset leaves unread takes nothing of the common stock", "[interpose]") {
    static constexpr uint64_t kOwn = crane::timebubble::kOwnChunks * crane::timebubble::kInputChunkBytes;
    const uint64_t bytes = kOwn + GENERATE(0u, 1u);
    PlainDomain domain;
    Clients clients(domain);
    const uint32_t socket = clients.connect_and_accept(5);
    domain.call(CallKind::kSend, 5, std::string(bytes, 'x'));
    domain.call(CallKind::kReset, 5);
    CHECK(domain.state().input_pool.common_used[0] == 0);
    CHECK(receive(socket, 2 * kOwn).size() == (bytes > kOwn ? 0 : kOwn));
}

TEST_CASE("sockets: with resets, too, the primary's account never shows less than the domain holds",
          "[interpose]") {
    constexpr size_t kConnections = 40;
    constexpr uint64_t kStock = 100 * crane::timebubble::kInputChunkBytes;
    const uint64_t seed = GENERATE(1u, 2u, 3u);
    CAPTURE(seed);
    Dice dice{seed};
    PlainDomain domain(seed);
    Clients clients(domain, kConnections);
    crane::proxy::DomainAccount account(kStock);
    std::vector<uint32_t> sockets(kConnections, kNone);
    uint64_t last = 0, most = 0;
    std::vector<uint64_t> numbers(kConnections);
    const auto tell = [&] {
        for (const Said& one : domain.said())
            account.on_output(
                {static_cast<uint32_t>(one.payload.size()), one.kind, one.flags, one.connection, 0, 0},
                one.payload);
    };
    const auto decide = [&](CallKind kind, uint64_t number, std::string_view payload = {}) {
        account.decided({kind, number, payload});
        domain.call(kind, number, payload);
        tell();
    };
    for (int step = 0; step < 6000; ++step) {
        const size_t who = dice.below(kConnections);
        uint32_t& socket = sockets[who];
        if (socket == kNone) {
            numbers[who] = ++last;
            decide(CallKind::kConnect, last, bytes_of(Clients::from(40'000)));
            socket = socket_accept(clients.listener());
            REQUIRE(socket != kNone);
        } else if (dice.below(12) == 0) {
            account.proposed_reset(numbers[who]);
            decide(CallKind::kReset, numbers[who]);
        } else if (dice.below(12) == 0) {
            release_socket(std::exchange(socket, kNone));
        } else if (dice.below(3) == 0) {
            receive(socket, 1 + dice.below(20'000));
        } else if (!crane::interpose::domain().sockets[socket].reset) {
            const uint64_t room = account.input_room(numbers[who]), wanted = dice.below(30'000);
            decide(CallKind::kSend, numbers[who], std::string(std::min(room, wanted), 'x'));
            REQUIRE_FALSE(crane::interpose::domain().sockets[socket].reset);  // it had room for it
        }
        tell();
        const uint64_t used = domain.state().input_pool.common_used[0] * crane::timebubble::kInputChunkBytes;
        REQUIRE(used <= account.input_bytes());
        most = std::max(most, used);
    }
    CHECK(most > kStock / 2);
}

TEST_CASE("sockets: output ends at the window and goes on where it was opened", "[interpose]") {
    PlainDomain domain;
    Clients clients(domain);
    const uint32_t socket = clients.connect_and_accept(5);
    domain.said();
    const std::string much(100'000, 'm');
    CHECK(send(socket, much) == crane::timebubble::kFirstWindowBytes);
    CHECK(send(socket, much) == -EAGAIN);
    CHECK(socket_room(socket) == 0);
    CHECK((socket_events(socket) & EPOLLOUT) == 0);
    domain.call(CallKind::kWindow, 5, bytes_of(uint64_t{1}));  // a window never shrinks
    CHECK(socket_room(socket) == 0);
    domain.call(CallKind::kWindow, 5, bytes_of(uint64_t{65'546}));
    CHECK(send(socket, much) == 10);
    uint64_t bytes = 0;
    for (const Said& one : of_kind(domain.said(), OutputKind::kSend)) bytes += one.payload.size();
    CHECK(bytes == 65'546);
}

TEST_CASE("sockets: closing says so, with a reset where input was left unread", "[interpose]") {
    const bool unread = GENERATE(false, true);
    PlainDomain domain;
    Clients clients(domain);
    const uint32_t socket = clients.connect_and_accept(5);
    if (unread) domain.call(CallKind::kSend, 5, "x");
    domain.said();
    release_socket(socket);
    const auto closes = of_kind(domain.said(), OutputKind::kClose);
    REQUIRE(closes.size() == 1);
    CHECK(closes[0].flags == (unread ? 1 : 0));
    domain.call(CallKind::kSend, 5, "for nobody");
    CHECK(domain.state().input_pool.free == domain.state().input_pool.high);
}

TEST_CASE("sockets: a random talk inside the domain agrees with two deques", "[interpose]") {
    const uint64_t seed = GENERATE(1u, 2u, 3u);
    CAPTURE(seed);
    PlainDomain domain;
    Dice dice{seed};
    Clients clients(domain);
    const Pair pair(clients);
    std::deque<char> model[2];  // unread at each end
    const uint32_t ends[2] = {pair.near, pair.far};
    uint64_t full = 0;
    const uint64_t steps = crane::test::rounds(3000, 50'000);
    for (uint64_t step = 0; step < steps; ++step) {
        const size_t me = dice.below(2);
        if (dice.below(7) < 4) {
            std::string bytes(dice.below(9) ? dice.below(5000) : 200'000, '\0');
            for (char& one : bytes) one = static_cast<char>(dice.roll() >> 30);
            const size_t room = kPairBufferBytes - model[1 - me].size();
            const long sent = send(ends[me], bytes);
            if (bytes.empty()) {
                REQUIRE(sent == 0);
            } else if (room == 0) {
                REQUIRE(sent == -EAGAIN);
                ++full;
            } else {
                REQUIRE(sent == static_cast<long>(std::min(room, bytes.size())));
                model[1 - me].insert(model[1 - me].end(), bytes.begin(), bytes.begin() + sent);
            }
        } else {
            const std::string got = receive(ends[me], 1 + dice.below(dice.below(9) ? 9000 : 600'000));
            REQUIRE(got.size() <= model[me].size());
            REQUIRE(std::equal(got.begin(), got.end(), model[me].begin()));
            REQUIRE(got.empty() == model[me].empty());
            model[me].erase(model[me].begin(), model[me].begin() + static_cast<long>(got.size()));
        }
        REQUIRE(socket_at(ends[me]).input.unread() == model[me].size());
        REQUIRE(((socket_events(ends[me]) & EPOLLOUT) != 0) == (model[1 - me].size() < kPairBufferBytes));
    }
    CHECK(full > 0);
}

TEST_CASE("sockets: an end inside the domain that goes leaves its bytes, or resets", "[interpose]") {
    PlainDomain domain;
    Clients clients(domain);
    const Pair pair(clients);
    REQUIRE(send(pair.near, "last words") == 10);
    char one;
    const iovec piece{&one, 1};
    SECTION("closed when all was read") {
        release_socket(pair.near);
        CHECK(receive(pair.far, 100) == "last words");
        CHECK(socket_receive(pair.far, &piece, 1, false) == 0);
        CHECK((socket_events(pair.far) & EPOLLERR) == 0);
        CHECK(send(pair.far, "x") == 1);  // what comes back of it is told next
        CHECK((socket_events(pair.far) & (EPOLLERR | EPOLLHUP)) == (EPOLLERR | EPOLLHUP));
        CHECK(socket_receive(pair.far, &piece, 1, false) == 0);
        CHECK(send(pair.far, "x") == -EPIPE);
        CHECK((socket_events(pair.far) & EPOLLERR) == 0);
    }
    SECTION("shut both ways") {
        REQUIRE(socket_shutdown(pair.near, SHUT_RDWR) == 0);
        CHECK(send(pair.far, "x") == 1);
        CHECK(send(pair.far, "x") == -EPIPE);
        CHECK(socket_receive(pair.near, &piece, 1, false) == -ECONNRESET);
        CHECK(socket_receive(pair.near, &piece, 1, false) == 0);
    }
    SECTION("closed with unread input") {
        REQUIRE(send(pair.far, "answer") == 6);
        release_socket(pair.near);
        CHECK(receive(pair.far, 100) == "last words");
        CHECK(socket_receive(pair.far, &piece, 1, false) == -ECONNRESET);
    }
    SECTION("shut for writing alone") {
        REQUIRE(socket_shutdown(pair.near, SHUT_WR) == 0);
        CHECK(send(pair.near, "x") == -EPIPE);
        CHECK(receive(pair.far, 100) == "last words");
        CHECK(socket_receive(pair.far, &piece, 1, false) == 0);
        REQUIRE(send(pair.far, "answer") == 6);
        CHECK(receive(pair.near, 100) == "answer");
    }
}

TEST_CASE("sockets: who sleeps in a call keeps the socket that another thread closes", "[interpose]") {
    PlainDomain domain;
    Clients clients(domain);
    const uint32_t socket = clients.connect_and_accept(5);
    std::string got;
    const auto reader = domain.thread([&] {
        Operation turn(Op::kReceive, socket_key(socket));
        SocketHold hold;
        while (socket_at(socket).input.unread() == 0) {
            wait_on_socket(turn, hold, socket, socket_key(socket), crane::dmt::kNoDeadline);
        }
        got = receive(socket, 100);
    });
    domain.settle();
    REQUIRE(domain.waits(reader));
    release_socket(socket);
    CHECK(new_socket(AF_INET, false) != socket);  // its place is not free yet
    domain.said();
    domain.call(CallKind::kSend, 5, "for the sleeper");
    domain.settle();
    CHECK(got == "for the sleeper");
    CHECK(of_kind(domain.said(), OutputKind::kClose).size() == 1);
    CHECK(new_socket(AF_INET, false) == socket);
}
