// Clients whose replica's own server stands still: who goes on by the primary's copy, and who is told at once
// that it does not.
#include <catch2/catch.hpp>
#include <set>
#include <string>

#include "proxy/attached_clients.hpp"
#include "proxy/ingress.hpp"

using namespace crane::proxy;
using namespace crane::timebubble;

namespace {

constexpr uint32_t kSelf = 2;

struct Client final : Endpoint {
    void set_user(EndpointUser* now) override { user = now; }
    void allow_input(bool yes) override { allowed = yes; }
    void send(std::string_view bytes) override { heard.append(bytes); }
    void probe(const ProbeRecord&) override {}
    void finish() override { finished = true; }
    void close() override { closed = true; }
    void reset() override { was_reset = true; }

    EndpointUser* user = nullptr;
    bool allowed = false, finished = false, closed = false, was_reset = false;
    std::string heard;
};

struct Primary final : ToPrimary {
    void open(uint64_t id, const ConnectPayload&, bool) override { named = id; }
    void resume(uint64_t id, bool copy, uint64_t) override { named = id, copied = copy; }
    void listed() override {}
    uint64_t room(uint64_t, uint64_t credit) const override { return credit; }
    void input(uint64_t, uint64_t, std::string_view) override {}
    void input_end(uint64_t, uint64_t) override {}
    void taken(uint64_t, uint64_t total) override { told = total; }
    void gone(uint64_t) override {}
    void credit_back(uint64_t, uint64_t) override {}

    uint64_t named = 0, told = 0;
    bool copied = false;
};

OutputHeader header_of(OutputKind kind, uint64_t connection, size_t bytes) {
    return {static_cast<uint32_t>(bytes), kind, 0, connection, 1, 1};
}

/// One client, which has had "hello" of its own server's.
struct Scene {
    Primary primary;
    Client client;
    AttachedClients clients{kSelf, true, [] { return false; }};
    uint64_t id = 0;

    Scene() {
        clients.set_primary(&primary);
        clients.welcome(1);
        clients.attach(&client, {}, 100);
        id = primary.named;
        clients.accepted(id, 0);
        clients.credit(id, kFirstCreditBytes);
        clients.on_decided({CallKind::kConnect, id, {}});
        own("hello");
    }
    void own(std::string_view bytes) {
        clients.on_output(header_of(OutputKind::kSend, id, bytes.size()), bytes);
    }
    /// Its server stands still: is the client cut off?
    bool is_cut_off() {
        for (uint32_t look = 0; look < AttachedClients::kUnservedLooks; ++look)
            clients.look_for_unserved(true);
        return client.was_reset;
    }
};

/// A client that has come while the own server is behind: the primary has taken it, and it is not decided.
struct CopiedScene {
    Primary primary;
    Client client;
    AttachedClients clients{kSelf, true, [] { return true; }};

    CopiedScene() {
        clients.set_primary(&primary);
        clients.welcome(1);
        clients.attach(&client, {}, 100);
        clients.accepted(primary.named, 0);
    }
};

struct Backup final : FromPrimary {
    void welcome(uint64_t) override {}
    void accepted(uint64_t, uint64_t) override {}
    void credit(uint64_t, uint64_t) override {}
    void copied(uint64_t, uint64_t offset, std::string_view bytes) override { mark = offset + bytes.size(); }
    void copied_end(uint64_t, uint64_t offset) override { end = offset; }
    void copied_close(uint64_t id, uint64_t offset, bool) override {
        if (closed.insert(id).second && closed.size() == 1) close = offset;
    }
    static constexpr uint64_t kNever = ~uint64_t{0};
    std::set<uint64_t> closed;
    uint64_t mark = kNever, end = kNever, close = kNever;
};

/// The primary, of one connection of another replica's that has had 5 bytes.
struct PrimaryScene {
    Batcher batcher;
    DomainAccount account{1 << 20};
    Backup backup;
    Ingress ingress{{1, 1 << 20, 10}, batcher, account, [this](uint32_t) { return &backup; }};
    uint64_t id = connection_id(kSelf, 1);

    PrimaryScene() {
        ConnectPayload addresses{};
        const std::string_view bytes(reinterpret_cast<const char*>(&addresses), sizeof(addresses));
        account.decided({CallKind::kConnect, id, bytes});
        put_out(OutputKind::kSend, "hello");
    }
    void put_out(OutputKind kind, std::string_view bytes) {
        const OutputHeader header = header_of(kind, id, bytes.size());
        account.on_output(header, bytes);
        ingress.on_output(header, bytes);
    }
    void lead() {
        ingress.lead(account.table(), 0);
        ingress.resume(kSelf, id, true, 5);
        ingress.listed(kSelf);
    }
};

}  // namespace

TEST_CASE("copies: whom the primary serves goes on while the own server stands still", "[proxy]") {
    Scene scene;
    scene.clients.want_copies(true);
    CHECK(scene.primary.copied);
    scene.clients.copied(scene.id, 5, {});
    CHECK_FALSE(scene.is_cut_off());
    scene.clients.copied(scene.id, 5, " there");
    CHECK(scene.client.heard == "hello there");
    CHECK_FALSE(scene.is_cut_off());
}

TEST_CASE("copies: the primary has the time of some looks to begin", "[proxy]") {
    Scene scene;
    scene.clients.want_copies(true);
    scene.clients.look_for_unserved(true);
    scene.clients.look_for_unserved(true);
    SECTION("it does") {
        scene.clients.copied(scene.id, 5, {});
        scene.clients.look_for_unserved(true);
        CHECK_FALSE(scene.client.was_reset);
    }
    SECTION("it does not") {
        scene.clients.look_for_unserved(true);
        CHECK(scene.client.was_reset);
    }
    SECTION("the server goes on, and stands still again") {
        scene.clients.look_for_unserved(false);
        scene.clients.look_for_unserved(true);
        CHECK_FALSE(scene.client.was_reset);
    }
}

TEST_CASE("copies: whom the primary has no place for yet waits", "[proxy]") {
    Client later;  // outlives those who let go of it
    Scene scene;
    scene.clients.want_copies(true);
    scene.clients.copied(scene.id, 5, {});
    scene.clients.attach(&later, {}, 100);
    CHECK_FALSE(scene.is_cut_off());
    CHECK_FALSE(later.was_reset);
}

TEST_CASE("copies: whom an earlier primary had taken, and a later one does not know, is cut off", "[proxy]") {
    CopiedScene scene;
    scene.clients.copied(scene.primary.named, 0, {});
    scene.clients.welcome(2);  // which has reset it meanwhile, and says so in the log alone
    for (uint32_t look = 0; look < AttachedClients::kUnservedLooks; ++look)
        scene.clients.look_for_unserved(true);
    CHECK(scene.client.was_reset);
}

TEST_CASE("copies: who has missed a part of the answer is cut off", "[proxy]") {
    Scene scene;
    scene.clients.want_copies(true);
    scene.clients.copied(scene.id, 7, " there");
    CHECK(scene.client.heard == "hello");
    CHECK(scene.is_cut_off());
}

TEST_CASE("copies: an end behind what was missed is missed, too", "[proxy]") {
    Scene scene;
    scene.clients.want_copies(true);
    scene.clients.copied(scene.id, 7, {});
    SECTION("of the output") {
        scene.clients.copied_end(scene.id, 7);
    }
    SECTION("of the connection") {
        scene.clients.copied_close(scene.id, 7, false);
    }
    scene.own("??");  // the own server comes so far, and no further
    CHECK_FALSE((scene.client.finished || scene.client.closed));
    CHECK(scene.is_cut_off());
}

TEST_CASE("copies: whose input nobody takes is cut off", "[proxy]") {
    Scene scene;
    scene.clients.want_copies(true);
    scene.clients.copied(scene.id, 5, {});
    scene.clients.credit(scene.id, 2 * AttachedClients::kMostHeldBytes);
    scene.client.user->on_input(std::string(AttachedClients::kMostHeldBytes, 'x'));
    CHECK_FALSE(scene.client.allowed);
    CHECK(scene.is_cut_off());
}

TEST_CASE("copies: a client that was not decided yet tells the next primary what it has taken", "[proxy]") {
    Primary second;
    CopiedScene scene;
    scene.clients.copied(scene.primary.named, 0, std::string(kFirstWindowBytes, 'x'));
    scene.client.user->on_taken(kFirstWindowBytes);
    CHECK(scene.primary.told == kFirstWindowBytes);
    scene.clients.set_primary(&second);
    scene.clients.welcome(1);
    CHECK(second.told == 0);
    scene.clients.accepted(second.named, 0);
    CHECK(second.told == kFirstWindowBytes);
}

TEST_CASE("copies: an end of the output before the copy begins is told with its beginning", "[proxy]") {
    PrimaryScene scene;
    SECTION("by the primary that saw it") {
        scene.lead();
        scene.ingress.resume(kSelf, scene.id, false, 5);
        scene.put_out(OutputKind::kShutdown, {});
        CHECK(scene.backup.end == Backup::kNever);
        scene.ingress.resume(kSelf, scene.id, true, 5);
    }
    SECTION("by a later primary") {
        scene.put_out(OutputKind::kShutdown, {});
        scene.lead();
    }
    CHECK(scene.backup.mark == 5);
    CHECK(scene.backup.end == 5);
}

TEST_CASE("copies: the end of the server is the end of whoever has the copy", "[proxy]") {
    PrimaryScene scene;
    scene.lead();
    CHECK(scene.backup.close == Backup::kNever);
    scene.ingress.server_ended();
    CHECK(scene.backup.close == 5);
    CHECK(scene.ingress.size() == 0);
}

TEST_CASE("copies: the end of the server is the end of those who wait for a place of it, too", "[proxy]") {
    PrimaryScene scene;
    ListenRecord one{};
    one.places = 1;
    scene.put_out(OutputKind::kListen, {reinterpret_cast<const char*>(&one), sizeof(one)});
    scene.lead();
    const uint64_t waits = connection_id(kSelf, 2);
    scene.ingress.open(kSelf, waits, {}, true);
    CHECK(scene.ingress.held_back() == 1);
    scene.ingress.server_ended();
    CHECK(scene.backup.closed == std::set<uint64_t>{scene.id, waits});
}
