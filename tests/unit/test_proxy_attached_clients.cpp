// What a replica holds of its clients' input while the log's news does not reach it.
#include <algorithm>
#include <catch2/catch.hpp>
#include <memory>
#include <vector>

#include "proxy/attached_clients.hpp"

using namespace crane::proxy;
using namespace crane::timebubble;

namespace {

/// Takes whatever is said, at once.
struct HungryPrimary final : ToPrimary {
    void open(uint64_t id, const ConnectPayload&, bool) override { opened.push_back(id); }
    void resume(uint64_t, bool, uint64_t) override {}
    void listed() override {}
    uint64_t room(uint64_t, uint64_t) const override { return kLargestCreditBytes; }
    void input(uint64_t, uint64_t, std::string_view bytes) override { heard += bytes.size(); }
    void input_end(uint64_t, uint64_t) override {}
    void taken(uint64_t, uint64_t) override {}
    void gone(uint64_t) override {}
    void credit_back(uint64_t, uint64_t) override {}
    std::vector<uint64_t> opened;
    uint64_t heard = 0;
};

struct Uploader final : Endpoint {
    void set_user(EndpointUser* now) override { user = now; }
    void allow_input(bool yes) override { allowed = yes; }
    void send(std::string_view) override {}
    void probe(const ProbeRecord&) override {}
    void finish() override {}
    void close() override {}
    void reset() override {}

    /// As much as the replica reads. Returns how much that is, up to `most`.
    uint64_t say(uint64_t most) {
        uint64_t said = 0;
        while (allowed && said < most) {
            const uint64_t now = std::min<uint64_t>(user->input_room(), most - said);
            if (now == 0) break;
            user->on_input(std::string(now, 'x'));
            said += now;
        }
        return said;
    }

    EndpointUser* user = nullptr;
    bool allowed = false;
};

struct Attached {
    HungryPrimary primary;
    std::vector<std::unique_ptr<Uploader>> uploaders;  // outlive those who let go of them
    AttachedClients clients;

    Attached(size_t count, uint64_t held_limit)
        : clients(
              2, true, [] { return false; }, held_limit) {
        clients.set_primary(&primary);
        clients.welcome(1);
        for (size_t i = 0; i < count; ++i) {
            uploaders.push_back(std::make_unique<Uploader>());
            clients.attach(uploaders.back().get(), ConnectPayload{}, UINT64_MAX);
        }
        REQUIRE(primary.opened.size() == count);
        for (const uint64_t id : primary.opened) {
            clients.accepted(id, 0);
            clients.credit(id, kFirstCreditBytes);
        }
    }
    void decide(uint64_t id, uint64_t bytes) {
        const std::string payload(bytes, 'x');
        Call call{};
        call.kind = CallKind::kSend;
        call.connection = id;
        call.payload = payload;
        clients.on_decided(call);
    }
};

constexpr uint64_t kUpload = 100 << 20;

}  // namespace

TEST_CASE("attached clients: an upload that is decided elsewhere is not held here without end", "[memory]") {
    Attached attached(1, UINT64_MAX);
    Uploader& client = *attached.uploaders[0];
    const uint64_t said = client.say(kUpload);
    CHECK(said == AttachedClients::kMostHeldBytes);
    CHECK(attached.clients.held_bytes() == said);
    CHECK(attached.primary.heard == said);
    CHECK_FALSE(client.allowed);

    attached.decide(attached.primary.opened[0], 100'000);
    CHECK(client.allowed);
    CHECK(client.say(kUpload) == 100'000);
    attached.decide(attached.primary.opened[0], said);
    CHECK(client.say(kUpload) == said);
}

TEST_CASE("attached clients: many that upload are held to a bound together, and none stands still for others",
          "[memory]") {
    constexpr uint64_t kLimit = 8 << 20;
    constexpr size_t kClients = 100;
    Attached attached(kClients, kLimit);
    for (const auto& client : attached.uploaders) CHECK(client->say(kUpload) >= kFirstCreditBytes);
    CHECK(attached.clients.held_bytes() <= kLimit + kLargestCreditBytes + kClients * kFirstCreditBytes);
    // News of one is enough for that one, whatever the others hold.
    attached.decide(attached.primary.opened.back(), kFirstCreditBytes);
    CHECK(attached.uploaders.back()->say(kUpload) == kFirstCreditBytes);
}
