// What a server in an attacker's hands may cost the replica it runs on, and the primary's clients' table.
#include <catch2/catch.hpp>
#include <string>

#include "proxy/attached_clients.hpp"
#include "proxy/impossible_output.hpp"
#include "proxy/ingress.hpp"
#include "proxy/live_server.hpp"

using namespace crane::proxy;
using namespace crane::timebubble;

namespace {

constexpr uint32_t kSelf = 1;

struct Deaf final : Endpoint {
    void set_user(EndpointUser*) override {}
    void allow_input(bool) override {}
    void send(std::string_view bytes) override { sent += bytes.size(); }
    void probe(const ProbeRecord&) override {}
    void finish() override {}
    void close() override {}
    void reset() override {}
    uint64_t sent = 0;
};

struct Silent final : ToPrimary {
    void open(uint64_t id, const ConnectPayload&, bool) override { opened = id; }
    void resume(uint64_t, bool, uint64_t) override {}
    void listed() override {}
    uint64_t room(uint64_t, uint64_t) const override { return 0; }
    void input(uint64_t, uint64_t, std::string_view) override {}
    void input_end(uint64_t, uint64_t) override {}
    void taken(uint64_t, uint64_t) override {}
    void gone(uint64_t) override {}
    void credit_back(uint64_t, uint64_t) override {}
    uint64_t opened = 0;
};

struct Backup final : FromPrimary {
    void welcome(uint64_t) override { ++welcomes; }
    void accepted(uint64_t, uint64_t) override {}
    void credit(uint64_t, uint64_t) override {}
    void copied(uint64_t, uint64_t, std::string_view) override {}
    void copied_end(uint64_t, uint64_t) override {}
    void copied_close(uint64_t, uint64_t, bool) override {}
    int welcomes = 0;
};

OutputHeader header_of(OutputKind kind, uint64_t connection, size_t bytes, uint16_t flags = 0) {
    return {static_cast<uint32_t>(bytes), kind, flags, connection, 1, 1};
}

}  // namespace

TEST_CASE("impossible output: nothing goes to a client beyond its window", "[proxy]") {
    Silent primary;
    Deaf endpoint;
    AttachedClients clients(kSelf, true, [] { return false; });
    clients.set_primary(&primary);
    clients.welcome(1);
    clients.attach(&endpoint, {}, 100);
    const uint64_t id = primary.opened;
    REQUIRE(id != 0);
    clients.on_decided({CallKind::kConnect, id, {}});
    const auto send = [&](uint64_t to, size_t bytes) {
        clients.on_output(header_of(OutputKind::kSend, to, bytes), std::string(bytes, 'x'));
    };
    send(id, kFirstWindowBytes - 10);
    send(id, 10);
    CHECK(endpoint.sent == kFirstWindowBytes);
    const uint64_t end = kFirstWindowBytes + 100;
    clients.on_decided({CallKind::kWindow, id, {reinterpret_cast<const char*>(&end), sizeof(end)}});
    send(id, 100);
    CHECK_THROWS_AS(send(id, 1), ImpossibleOutput);
    CHECK(endpoint.sent == end);
    // A client of another replica, or of nobody: it goes no further than the output log.
    CHECK_NOTHROW(send(id + 1, 200'000));
}

TEST_CASE("impossible output: what is copied to others is bounded by the window, too", "[proxy]") {
    Batcher batcher;
    DomainAccount account(1 << 20);
    Backup backup;
    Ingress ingress({kSelf, 1 << 20, 10}, batcher, account, [&](uint32_t) { return &backup; });
    ConnectPayload addresses{};
    const uint64_t id = connection_id(2, 1);
    account.decided({CallKind::kConnect, id, {reinterpret_cast<const char*>(&addresses), sizeof(addresses)}});
    ingress.lead(account.table(), 0);
    const std::string window(kFirstWindowBytes, 'x');
    CHECK_NOTHROW(ingress.on_output(header_of(OutputKind::kSend, id, window.size()), window));
    CHECK_THROWS_AS(ingress.on_output(header_of(OutputKind::kSend, id, 1), "x"), ImpossibleOutput);
}

TEST_CASE("impossible output: no server listens on more sockets than the shim gives it", "[proxy]") {
    ServerPorts ports;
    ListenRecord record{};
    const auto say = [&](OutputKind kind, uint16_t flags = 0) {
        ports.on_output(header_of(kind, 0, sizeof(record), flags),
                        {reinterpret_cast<const char*>(&record), sizeof(record)});
    };
    for (uint32_t i = 0; i < kMaxListeners; ++i) {
        record.port = static_cast<uint16_t>(i + 1);
        say(OutputKind::kListen);
    }
    CHECK_THROWS_AS(say(OutputKind::kListen), ImpossibleOutput);
    CHECK(ports.records().size() == kMaxListeners);
    CHECK_NOTHROW(say(OutputKind::kListen, kListenChanged));
    say(OutputKind::kUnlisten);
    CHECK_NOTHROW(say(OutputKind::kListen));
}

TEST_CASE("ingress: clients that it has no room for are named again when it has", "[memory]") {
    constexpr uint64_t kMany = 65536;
    Batcher batcher;
    DomainAccount account(1 << 20);
    Backup backup;
    Ingress ingress({kSelf, 1 << 20, 10}, batcher, account,
                    [&](uint32_t replica) -> FromPrimary* { return replica == 2 ? &backup : nullptr; });
    ingress.on_link(2, true, 0);
    ingress.lead({}, 0);
    ingress.settle();
    REQUIRE(backup.welcomes == 1);
    ConnectPayload addresses{};
    addresses.listen_port = 80;
    for (uint64_t i = 1; i <= kMany + 5; ++i) ingress.open(2, connection_id(2, i), addresses, false);
    CHECK(ingress.size() == kMany);
    ingress.tick(1);
    CHECK(backup.welcomes == 1);
    for (uint64_t i = 1; i <= kMany / 4; ++i) ingress.gone(2, connection_id(2, i));
    ingress.tick(2);
    CHECK(backup.welcomes == 2);
    ingress.tick(3);
    CHECK(backup.welcomes == 2);
    for (uint64_t i = kMany + 1; i <= kMany + 5; ++i) ingress.open(2, connection_id(2, i), addresses, false);
    CHECK(ingress.size() == kMany - kMany / 4 + 5);
}
