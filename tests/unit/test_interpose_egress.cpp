// Connections of the server to the outside, as the domain has them: what it puts out, what the program sees
// meanwhile, what is decided and comes too late, and the bounds.
#include <netdb.h>
#include <sys/epoll.h>
#include <catch2/catch.hpp>

#include "interpose/core/egress.hpp"
#include "interpose/core/socket_table.hpp"
#include "test_interpose_sockets.hpp"

using namespace crane::interpose;
using namespace crane::interpose::testing;
using namespace crane::timebubble;

namespace {

void let_out() {
    runtime.view.control->egress = static_cast<uint32_t>(EgressPolicy::kPrimary);
}

ConnectedPayload outcome(int error) {
    return {error, AF_INET, 50'000, {10, 0, 0, 1}};
}

std::string_view view_of(const auto& value) {
    return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

/// A connection under way, and its number.
struct Outward {
    explicit Outward(PlainDomain& domain) : socket(new_socket(AF_INET, true)) {
        domain.said();
        REQUIRE(connect_to(socket, ipv4("10.1.2.3", 5432)) == -EINPROGRESS);
        const auto said = domain.said();
        REQUIRE(said.size() == 1);
        CHECK(said[0].kind == OutputKind::kConnect);
        std::memcpy(&record, said[0].payload.data(), sizeof(record));
        id = said[0].connection;
    }
    uint32_t socket;
    uint64_t id = 0;
    EgressRecord record{};
};

}  // namespace

TEST_CASE("egress: by default nothing goes out, and each address is named once", "[egress]") {
    PlainDomain domain;
    const uint32_t socket = new_socket(AF_INET, true), six = new_socket(AF_INET6, true);
    CHECK(connect_to(socket, ipv4("10.1.2.3", 5432)) == -ENETUNREACH);
    CHECK(connect_to(socket, ipv4("10.1.2.3", 5432)) == -ENETUNREACH);
    CHECK(connect_to(six, ipv6("fd00::9", 443)) == -ENETUNREACH);
    const auto said = domain.said();
    REQUIRE(said.size() == 2);
    CHECK(said[0].kind == OutputKind::kMessage);
    CHECK(said[0].payload.find("connect to 10.1.2.3:5432)") != std::string::npos);
    CHECK(said[1].payload.find("connect to [fd00::9]:443)") != std::string::npos);
}

TEST_CASE("egress: a connection is there when it is decided, with the primary's address", "[egress]") {
    PlainDomain domain;
    let_out();
    Outward out(domain);
    CHECK(is_of_generation(out.id, 1));
    CHECK(out.record.port == 5432);
    CHECK(socket_events(out.socket) == 0);
    CHECK(connect_to(out.socket, ipv4("10.1.2.3", 5432)) == -EALREADY);
    CHECK(send(out.socket, "early") == -EAGAIN);
    domain.call(CallKind::kConnected, out.id, view_of(outcome(0)));
    CHECK(socket_events(out.socket) == (EPOLLOUT | EPOLLWRNORM));
    CHECK(egress_take_error(out.socket) == 0);
    CHECK(socket_at(out.socket).local.port == 50'000);
    CHECK(connect_to(out.socket, ipv4("10.1.2.3", 5432)) == 0);
    CHECK(connect_to(out.socket, ipv4("10.1.2.3", 5432)) == -EISCONN);
    CHECK(send(out.socket, "query") == 5);
    const auto said = domain.said();
    REQUIRE(said.size() == 1);
    CHECK(said[0].connection == out.id);
    CHECK(said[0].payload == "query");
    domain.call(CallKind::kSend, out.id, "answer");
    CHECK(receive(out.socket, 100) == "answer");
    domain.call(CallKind::kReset, out.id);
    CHECK((socket_events(out.socket) & EPOLLERR) != 0);
}

TEST_CASE("egress: why it failed is told once, and another connect() begins anew", "[egress]") {
    PlainDomain domain;
    let_out();
    Outward out(domain);
    domain.call(CallKind::kConnected, out.id, view_of(outcome(ECONNREFUSED)));
    const uint32_t all = EPOLLIN | EPOLLOUT | EPOLLERR | EPOLLHUP | EPOLLRDHUP;
    CHECK((socket_events(out.socket) & all) == all);
    SECTION("by SO_ERROR") {
        CHECK(egress_take_error(out.socket) == ECONNREFUSED);
        CHECK(egress_take_error(out.socket) == 0);
        CHECK(connect_to(out.socket, ipv4("10.1.2.3", 5432)) == -ECONNABORTED);
    }
    SECTION("by connect()") {
        CHECK(connect_to(out.socket, ipv4("10.1.2.3", 5432)) == -ECONNREFUSED);
    }
    CHECK(domain.state().egress.open == 0);
    CHECK(connect_to(out.socket, ipv4("10.1.2.3", 5432)) == -EINPROGRESS);
    const auto said = domain.said();
    REQUIRE(said.size() == 1);
    CHECK(egress_number(said[0].connection) == egress_number(out.id) + 1);
}

TEST_CASE("egress: one under way is ended by shutdown(), and by connect() to nobody", "[egress]") {
    PlainDomain domain;
    let_out();
    Outward out(domain);
    SECTION("by shutdown()") {
        CHECK(socket_shutdown(out.socket, SHUT_WR) == 0);
        CHECK(egress_outcome(out.socket) == -ECONNRESET);
    }
    SECTION("by connect()") {
        const sockaddr nobody{AF_UNSPEC, {}};
        CHECK(socket_connect(out.socket, &nobody, sizeof(nobody)) == 0);
        CHECK(egress_take_error(out.socket) == ECONNRESET);
        CHECK(socket_at(out.socket).local.port == 0);
    }
    const auto said = domain.said();
    REQUIRE(said.size() == 1);
    CHECK(said[0].kind == OutputKind::kClose);
    CHECK(said[0].connection == out.id);
    CHECK(domain.state().egress.open == 0);
    CHECK(connect_to(out.socket, ipv4("10.1.2.3", 5432)) == -EINPROGRESS);
    domain.call(CallKind::kConnected, out.id, view_of(outcome(0)));  // too late
    CHECK(socket_at(out.socket).state == SocketState::kConnecting);
}

TEST_CASE("egress: one that is closed while it is decided is ended, at its admission", "[egress]") {
    PlainDomain domain;
    let_out();
    Outward out(domain);
    release_socket(out.socket);
    auto said = domain.said();
    REQUIRE(said.size() == 1);
    CHECK(said[0].kind == OutputKind::kClose);
    CHECK(domain.state().egress.open == 0);
    CHECK(domain.state().clients == 0);
    domain.call(CallKind::kConnected, out.id, view_of(outcome(0)));
    said = domain.said();
    REQUIRE(said.size() == 1);
    CHECK(said[0].kind == OutputKind::kClose);
    CHECK(said[0].connection == out.id);
    domain.call(CallKind::kConnected, out.id + 1, view_of(outcome(ETIMEDOUT)));
    CHECK(domain.said().empty());
}

TEST_CASE("egress: the next server's connections have other numbers", "[egress]") {
    PlainDomain domain;
    let_out();
    domain.call(CallKind::kStart, 0, view_of(StartPayload{7, 0, 0, 0}));
    Outward out(domain);
    CHECK(is_of_generation(out.id, 7));
    CHECK_FALSE(is_of_generation(out.id, 1));
}

TEST_CASE("egress: so many at once and no more, until one has gone", "[egress]") {
    PlainDomain domain;
    let_out();
    std::vector<uint32_t> sockets;
    for (uint32_t i = 0; i < kMaxEgress; ++i) {
        sockets.push_back(new_socket(AF_INET, true));
        REQUIRE(connect_to(sockets.back(), ipv4("10.1.2.3", 80)) == -EINPROGRESS);
    }
    const uint32_t one_more = new_socket(AF_INET, true);
    CHECK(connect_to(one_more, ipv4("10.1.2.3", 80)) == -EADDRNOTAVAIL);
    release_socket(sockets[5]);
    CHECK(connect_to(one_more, ipv4("10.1.2.3", 80)) == -EINPROGRESS);
}

TEST_CASE("egress: a name is asked for once, and answered by decision", "[egress]") {
    PlainDomain domain;
    let_out();
    const uint32_t question = ask_for_name("db.example");
    REQUIRE(question != kNone);
    const auto said = domain.said();
    REQUIRE(said.size() == 1);
    CHECK(said[0].kind == OutputKind::kResolve);
    CHECK(said[0].payload == "db.example");
    const ResolvedPayload head{0, 1};
    const ResolvedAddress address{AF_INET, 0, {10, 0, 0, 7}};
    const std::string answer = std::string(view_of(head)) + std::string(view_of(address));
    domain.call(CallKind::kResolved, said[0].connection + 1, answer);  // of another one
    CHECK_FALSE(domain.state().egress.questions[question].answered);
    domain.call(CallKind::kResolved, said[0].connection, answer);
    REQUIRE(domain.state().egress.questions[question].answered);
    ResolvedAddress out[kMaxResolved];
    uint32_t count = 0;
    CHECK(take_answer(question, out, count) == 0);
    REQUIRE(count == 1);
    CHECK(out[0].bytes[3] == 7);

    std::vector<uint32_t> all;
    for (uint32_t i = 0; i < kMaxQuestions; ++i) all.push_back(ask_for_name("x"));
    CHECK(all.back() != kNone);
    CHECK(ask_for_name("one too many") == kNone);
    CHECK(ask_for_name(std::string(kMaxNameBytes + 1, 'x').c_str()) == kNone);
}
