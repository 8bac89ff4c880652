// Connections of the server to the outside, as craned has them: who makes them, when, how often, and what a
// change of primary, a replay, an image and the next server make of it.
#include <sys/socket.h>
#include <catch2/catch.hpp>
#include <cstring>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "proxy/egress.hpp"
#include "proxy/impossible_output.hpp"
#include "proxy/live_server.hpp"
#include "timebubble/egress.hpp"

using namespace crane::proxy;
using namespace crane::timebubble;

namespace {

std::string bytes_of(const auto& value) {
    return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

struct Remote final : Endpoint {
    void set_user(EndpointUser* now) override { user = now; }
    void allow_input(bool yes) override { allowed = yes; }
    void send(std::string_view bytes) override { got.append(bytes); }
    void probe(const ProbeRecord&) override {}
    void finish() override { end = "finished"; }
    void close() override { end = "closed"; }
    void reset() override { end = "reset"; }

    EndpointUser* user = nullptr;
    bool allowed = false;
    std::string got, end;
};

/// One replica: what it proposes is decided where the test says so.
struct Replica {
    explicit Replica(std::vector<EgressRule> allowed = {})
        : account(1 << 20),
          egress(std::move(allowed), 1 << 30, batcher, account,
                 {[this](uint64_t id, const EgressRecord&) { dialed.push_back(id); },
                  [this](uint64_t id, const std::string& name) { asked[id] = name; },
                  [this](uint64_t id) { given_up.push_back(id); },
                  [this](const std::string& what) { told.push_back(what); }}) {}

    void say(OutputKind kind, uint64_t id, std::string_view payload = {}, uint16_t flags = 0) {
        OutputHeader header{};
        header.kind = kind;
        header.flags = flags;
        header.connection = id;
        account.on_output(header, payload);
        egress.on_output(header, payload);
    }
    void asks_for(uint64_t id, uint8_t last = 9) {
        say(OutputKind::kConnect, id, bytes_of(EgressRecord{AF_INET, 5432, {10, 0, 0, last}}));
    }
    Remote& connects(uint64_t id) {
        remotes.push_back(std::make_unique<Remote>());
        REQUIRE(
            egress.connected(id, remotes.back().get(), ConnectedPayload{0, AF_INET, 4000, {10, 0, 0, 1}}));
        return *remotes.back();
    }
    /// All that is proposed, decided here and at the others; "kind id" each.
    std::vector<std::string> decide(std::vector<Replica*> others = {}) {
        std::vector<std::string> out;
        while (!batcher.empty()) {
            const std::string batch = batcher.take(1, 1);
            BatchDecoder decoder;
            REQUIRE(decoder.open(reinterpret_cast<const uint8_t*>(batch.data()), batch.size()));
            for (Call call; decoder.next(call);) {
                out.push_back(std::to_string(static_cast<int>(call.kind)) + " " +
                              std::to_string(egress_number(call.connection)));
                others.push_back(this);
                for (Replica* one : others) {
                    one->account.decided(call);
                    one->egress.on_decided(call);
                }
                others.pop_back();
            }
        }
        return out;
    }
    void lead() { egress.lead(account.table().open); }
    uint64_t count(const char* what) const { return egress.json().at(what).get<uint64_t>(); }

    Batcher batcher;
    DomainAccount account;
    std::vector<uint64_t> dialed, given_up;
    std::map<uint64_t, std::string> asked;
    std::vector<std::string> told;
    std::vector<std::unique_ptr<Remote>> remotes;
    Egress egress;
};

constexpr uint64_t kFirst = egress_id(1, 1), kSecond = egress_id(1, 2);
using Ids = std::vector<uint64_t>;
using Words = std::vector<std::string>;

}  // namespace

TEST_CASE("egress: the primary alone connects, and what comes of it goes into the log", "[egress]") {
    Replica primary, backup;
    primary.lead();
    primary.asks_for(kFirst);
    backup.asks_for(kFirst);
    CHECK(primary.dialed == Ids{kFirst});
    CHECK(backup.dialed.empty());
    Remote& remote = primary.connects(kFirst);
    remote.user->on_input("hello");
    CHECK(primary.decide({&backup}) == Words{"13 1", "6 1", "3 1"});
    CHECK(backup.account.connections() == 1);
    for (Replica* one : {&primary, &backup}) one->say(OutputKind::kSend, kFirst, "query");
    CHECK(remote.got == "query");
    CHECK(primary.count("open") == 1);
    for (Replica* one : {&primary, &backup}) one->say(OutputKind::kClose, kFirst);
    CHECK(remote.end == "closed");
    CHECK(primary.count("open") == 0);
    for (Replica* one : {&primary, &backup}) CHECK(one->account.connections() == 0);
}

TEST_CASE("egress: a failure is decided, and leaves nothing behind", "[egress]") {
    Replica primary, backup;
    primary.lead();
    primary.asks_for(kFirst);
    primary.egress.failed(kFirst, ECONNREFUSED);
    CHECK(primary.decide({&backup}) == Words{"13 1"});
    backup.asks_for(kFirst);  // its domain is behind
    CHECK(primary.account.connections() == 0);
    CHECK(primary.egress.kept().asked.empty());
    CHECK(backup.egress.kept().asked.empty());
    CHECK(primary.count("failed") == 1);
}

TEST_CASE("egress: one that leads no more ends its connections, and what it has begun", "[egress]") {
    Replica first, second;
    first.lead();
    for (Replica* one : {&first, &second}) {
        one->asks_for(kFirst);
        one->asks_for(kSecond);
    }
    Remote& remote = first.connects(kFirst);
    first.decide({&second});
    first.egress.stop();
    CHECK(remote.end == "reset");
    CHECK(first.given_up == Ids{kSecond});
}

TEST_CASE("egress: after a change of primary each outstanding connection is made once", "[egress]") {
    Replica first, second;
    first.lead();
    for (Replica* one : {&first, &second}) {
        one->asks_for(kFirst);
        one->asks_for(kSecond);
    }
    first.connects(kFirst);
    first.decide({&second});
    second.lead();
    CHECK(second.dialed == Ids{kSecond});
    CHECK(second.decide({&first}) == Words{"5 1"});
    second.say(OutputKind::kSend, kFirst, "for nobody");
    CHECK(second.account.table().open.empty());
    // Nor does it send, or connect again, for what its own domain says later.
    second.lead();
    CHECK(second.decide().empty());
    CHECK(second.given_up == Ids{kSecond});
}

TEST_CASE("egress: a replay connects and sends nothing", "[egress]") {
    Replica primary, replays;
    primary.lead();
    primary.asks_for(kFirst);
    primary.connects(kFirst);
    primary.asks_for(kSecond);
    primary.egress.failed(kSecond, ETIMEDOUT);
    primary.decide({&replays});
    replays.lead();  // its own domain is at the beginning
    replays.asks_for(kFirst);
    replays.asks_for(kSecond);
    replays.say(OutputKind::kSend, kFirst, "query");
    CHECK(replays.dialed.empty());
    CHECK(replays.count("open") == 0);
}

TEST_CASE("egress: a server that closes while it is connected hears no more, and nothing is kept",
          "[egress]") {
    Replica primary, backup;
    primary.lead();
    primary.asks_for(kFirst);
    backup.asks_for(kFirst);
    SECTION("before it is there") {
        for (Replica* one : {&primary, &backup}) one->say(OutputKind::kClose, kFirst, {}, 1);
        CHECK(primary.given_up == Ids{kFirst});
        Remote late;
        CHECK_FALSE(primary.egress.connected(kFirst, &late, ConnectedPayload{}));
    }
    SECTION("before that is decided") {
        Remote& remote = primary.connects(kFirst);
        for (Replica* one : {&primary, &backup}) one->say(OutputKind::kClose, kFirst, {}, 1);
        CHECK(remote.end == "reset");
        primary.decide({&backup});
        // The domain says so again where it is admitted.
        for (Replica* one : {&primary, &backup}) one->say(OutputKind::kClose, kFirst, {}, 1);
    }
    for (Replica* one : {&primary, &backup}) {
        CHECK(one->account.connections() == 0);
        CHECK(one->egress.kept().asked.empty());
    }
}

TEST_CASE("egress: the remote end's reset is decided, and its input is bounded by the domain's room",
          "[egress]") {
    Replica primary;
    primary.lead();
    primary.asks_for(kFirst);
    Remote& remote = primary.connects(kFirst);
    const uint64_t room = remote.user->input_room();
    CHECK(room > 0);
    CHECK(room <= 1 << 20);
    remote.user->on_input(std::string(room, 'x'));
    CHECK(remote.user->input_room() == 0);
    primary.decide();
    remote.allowed = false;
    primary.say(OutputKind::kConsumed, kFirst, bytes_of(room));
    CHECK(remote.allowed);
    remote.user->on_gone();
    CHECK(primary.decide() == Words{"5 1"});
    CHECK(primary.count("open") == 0);
}

TEST_CASE("egress: what the server sends beyond its window ends the domain", "[egress]") {
    Replica primary;
    primary.lead();
    primary.asks_for(kFirst);
    primary.connects(kFirst);
    const std::string most(kMaxOutputPayload, 'x');
    bool refused = false;
    for (int i = 0; i < 64 && !refused; ++i) {
        try {
            primary.say(OutputKind::kSend, kFirst, most);
        } catch (const ImpossibleOutput&) {
            refused = true;
        }
    }
    CHECK(refused);
    Replica other;
    other.asks_for(kFirst);
    CHECK_THROWS_AS(other.asks_for(kFirst), ImpossibleOutput);
}

TEST_CASE("egress: where it is not allowed to, it does not connect, and says so once for each address",
          "[egress]") {
    Replica primary({*parse_egress_rule("10.0.0.8/32:5432")});
    primary.lead();
    primary.asks_for(kFirst, 9);
    primary.asks_for(kSecond, 9);
    primary.asks_for(egress_id(1, 3), 8);
    CHECK(primary.dialed == Ids{egress_id(1, 3)});
    REQUIRE(primary.told.size() == 1);
    CHECK(primary.told[0].find("10.0.0.9:5432") != std::string::npos);
    CHECK(primary.count("refused") == 2);
    CHECK(primary.decide() == Words{"13 1", "13 2"});
}

TEST_CASE("egress: names are looked up by the primary, and again by the next one", "[egress]") {
    Replica first, second;
    first.lead();
    for (Replica* one : {&first, &second}) one->say(OutputKind::kResolve, kFirst, "db.example");
    CHECK(first.asked.at(kFirst) == "db.example");
    CHECK(second.asked.empty());
    second.lead();
    CHECK(second.asked.at(kFirst) == "db.example");
    second.egress.resolved(kFirst, bytes_of(ResolvedPayload{0, 0}));
    CHECK(second.decide({&first}) == Words{"14 1"});
    CHECK(first.egress.kept().asked.empty());
}

TEST_CASE("egress: the next server's connections are its own", "[egress]") {
    Replica primary;
    primary.lead();
    primary.asks_for(kFirst);
    primary.asks_for(kSecond);
    Remote& remote = primary.connects(kFirst);
    primary.decide();
    primary.egress.close_all();
    CHECK(remote.end == "closed");
    CHECK(primary.given_up == Ids{kSecond});
    primary.account.forget_connections();
    primary.egress.began_server(2);
    primary.asks_for(egress_id(1, 3));  // what the old one still says
    CHECK(primary.dialed == Ids{kFirst, kSecond});
    primary.asks_for(egress_id(2, 1));
    CHECK(primary.dialed.back() == egress_id(2, 1));
}

TEST_CASE("egress: a restored replica knows what was asked for", "[egress]") {
    Replica before, after;
    before.asks_for(kFirst);
    before.say(OutputKind::kResolve, kSecond, "db.example");
    LiveServer live;
    live.egress = before.egress.kept();
    after.egress.restore(live_server_from(to_json(live)).egress);
    after.lead();
    CHECK(after.dialed == Ids{kFirst});
    CHECK(after.asked.at(kSecond) == "db.example");
    after.asks_for(egress_id(1, 3));
    CHECK(after.dialed.size() == 2);
}

TEST_CASE("egress: rules name addresses, networks and ports", "[egress]") {
    const uint8_t four[16] = {10, 1, 2, 3}, six[16] = {0xfd, 0, 0, 1};
    const auto covers = [](const char* text, uint16_t family, const uint8_t* to, uint16_t port) {
        const auto rule = parse_egress_rule(text);
        REQUIRE(rule);
        return rule->covers(family, to, port);
    };
    CHECK(covers("10.1.2.3", AF_INET, four, 1));
    CHECK(covers("10.0.0.0/8:5432", AF_INET, four, 5432));
    CHECK_FALSE(covers("10.0.0.0/8:5432", AF_INET, four, 5433));
    CHECK(covers("10.1.2.2/31", AF_INET, four, 1));
    CHECK_FALSE(covers("10.1.2.0/31", AF_INET, four, 1));
    CHECK(covers("0.0.0.0/0", AF_INET, four, 1));
    CHECK(covers("fd00::/16", AF_INET6, six, 1));
    CHECK(covers("[fd00::/8]:443", AF_INET6, six, 443));
    CHECK_FALSE(covers("[fd00::/8]:443", AF_INET6, six, 80));
    CHECK_FALSE(covers("0.0.0.0/0", AF_INET6, six, 1));
    for (const char* wrong : {"", "10.0.0", "10.0.0.0/33", "10.0.0.0/8:", "10.0.0.0/8:0", "10.0.0.1:70000",
                              "[10.0.0.1]:80", "[fd00::1", "db.example", "fd00::/129", "10.0.0.0/ 8"})
        CHECK_FALSE(parse_egress_rule(wrong));
    CHECK(egress_allows({}, AF_INET, four, 1));
}
