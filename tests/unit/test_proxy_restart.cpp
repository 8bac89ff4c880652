// When a server that has ended is started again, and what craned's own tables keep of it.
#include <sys/wait.h>
#include <catch2/catch.hpp>

#include "proxy/attached_clients.hpp"
#include "proxy/batcher.hpp"
#include "proxy/connection_table.hpp"
#include "proxy/domain_account.hpp"
#include "proxy/loss_history.hpp"
#include "proxy/replica.hpp"
#include "proxy/restart_policy.hpp"

using namespace crane::proxy;
using namespace crane::timebubble;

namespace {

constexpr uint64_t kSecond = 1'000'000'000;

template <typename Payload>
std::string_view bytes_of(const Payload& payload) {
    return {reinterpret_cast<const char*>(&payload), sizeof(payload)};
}

struct Client final : Endpoint {
    void set_user(EndpointUser*) override {}
    void allow_input(bool) override {}
    void send(std::string_view) override {}
    void probe(const ProbeRecord&) override {}
    void finish() override {}
    void close() override { closed = true; }
    void reset() override { was_reset = true; }
    bool closed = false, was_reset = false;
};

struct Primary final : ToPrimary {
    void open(uint64_t id, const ConnectPayload&, bool) override { opened.push_back(id); }
    void resume(uint64_t, bool, uint64_t) override {}
    void listed() override {}
    uint64_t room(uint64_t, uint64_t) const override { return 0; }
    void input(uint64_t, uint64_t, std::string_view) override {}
    void input_end(uint64_t, uint64_t) override {}
    void taken(uint64_t, uint64_t) override {}
    void gone(uint64_t id) override { left.push_back(id); }
    void credit_back(uint64_t, uint64_t) override {}
    std::vector<uint64_t> opened, left;
};

/// The pauses before the first starts of a server that lives for so long each time.
std::vector<uint64_t> pauses_ms(uint64_t life_ns, size_t count) {
    RestartPolicy policy(Restart::kAlways);
    std::vector<uint64_t> pauses;
    uint64_t now = kSecond;
    policy.listened();
    while (pauses.size() < count) {
        policy.started(now);
        now += life_ns;
        policy.ended(now, 0);
        pauses.push_back(policy.left_ns(now) / 1'000'000);
        now += policy.left_ns(now);
        REQUIRE(policy.due(now));
    }
    return pauses;
}

}  // namespace

TEST_CASE("restart: the pause grows while servers end soon, up to a bound, and is short again later",
          "[restart]") {
    CHECK(pauses_ms(kSecond, 5) == std::vector<uint64_t>{100, 200, 400, 800, 1600});
    CHECK(pauses_ms(kSecond, 20).back() == 30'000);
    CHECK(pauses_ms(61 * kSecond, 4) == std::vector<uint64_t>{100, 100, 100, 100});
}

TEST_CASE("restart: by setting, by how the server ended, and never before it has listened", "[restart]") {
    struct Row {
        Restart when;
        int32_t status;
        bool listened, wanted;
    };
    const int crash = W_EXITCODE(0, 11), failure = W_EXITCODE(1, 0);
    for (const Row& row :
         {Row{Restart::kAlways, 0, true, true}, Row{Restart::kAlways, crash, true, true},
          Row{Restart::kAlways, failure, false, false}, Row{Restart::kOnFailure, 0, true, false},
          Row{Restart::kOnFailure, failure, true, true}, Row{Restart::kOnFailure, crash, true, true},
          Row{Restart::kNo, crash, true, false}}) {
        RestartPolicy policy(row.when);
        policy.started(0);
        if (row.listened) policy.listened();
        CHECK_FALSE(policy.wanted());  // it runs
        policy.ended(kSecond, row.status);
        CHECK(policy.wanted() == row.wanted);
        CHECK_FALSE(policy.due(kSecond));
        policy.ask();  // the operator is asked for nothing more, and waits for nothing
        CHECK(policy.due(kSecond));
        policy.started(kSecond);
        policy.ended(2 * kSecond, row.status);
        CHECK(policy.wanted() == row.wanted);
    }
}

TEST_CASE("restart: one that was decided on stands in for one that has listened", "[restart]") {
    RestartPolicy policy(Restart::kAlways);
    policy.started_again(0);  // what began this replica is a checkpoint of that start
    policy.ended(kSecond, W_EXITCODE(127, 0));
    CHECK(policy.wanted());
}

TEST_CASE("restart: an order before the end holds after it", "[restart]") {
    RestartPolicy policy(Restart::kNo);
    policy.started(0);
    policy.ask();
    CHECK_FALSE(policy.wanted());
    policy.ended(kSecond, 0);
    CHECK(policy.due(kSecond));
}

TEST_CASE("restart: a batch that begins a server is known by its first call, and nothing else is",
          "[restart]") {
    Batcher batcher;
    const std::string start = batcher.start({7, 1, 900, 3}, {}, "", 5, 100);
    BatchDecoder decoder;
    REQUIRE(decoder.open(reinterpret_cast<const uint8_t*>(start.data()), start.size()));
    CHECK(started_server(decoder).generation == 7);
    CHECK(started_server(decoder).end_clock == 900);
    CHECK(started_server(decoder).end_steps == 3);
    CHECK(decoder.header().calls == 2);
    const std::string made = batcher.start({8, 1, 0, 0}, {}, "sum /a/file\n", 5, 100);
    REQUIRE(decoder.open(reinterpret_cast<const uint8_t*>(made.data()), made.size()));
    CHECK(started_server(decoder).generation == 8);
    crane::timebubble::Call last{};
    while (decoder.next(last)) {
    }
    CHECK(last.kind == CallKind::kProgram);
    CHECK(last.payload == program_payload(8, "sum /a/file\n"));
    batcher.add(CallKind::kStop, 0);
    const std::string stop = batcher.take(6, 100);
    REQUIRE(decoder.open(reinterpret_cast<const uint8_t*>(stop.data()), stop.size()));
    CHECK(started_server(decoder).generation == 0);
    CHECK(decoder.header().timestamp_ns > 5);
    const uint64_t number = 5;  // all that a start was, once
    BatchEncoder old;
    old.add(CallKind::kStart, 0, bytes_of(number));
    const std::string of_old = old.finish(8, 1);
    REQUIRE(decoder.open(reinterpret_cast<const uint8_t*>(of_old.data()), of_old.size()));
    CHECK(started_server(decoder).generation == 5);
    CHECK(started_server(decoder).checkpoint == 0);
    BatchEncoder odd;
    odd.add(CallKind::kStart, 0, "too short");
    const std::string bytes = odd.finish(9, 1);
    REQUIRE(decoder.open(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()));
    CHECK(started_server(decoder).generation == 0);
}

TEST_CASE("restart: the next server has none of the connections, and their numbers are not used again",
          "[restart]") {
    DomainAccount account(1 << 20);
    const ConnectPayload connect{80, 2, 1, 80, {}, {}};
    const uint64_t id = (uint64_t{2} << 48) + 9;
    for (const Call& call :
         {Call{CallKind::kConnect, id, bytes_of(connect)}, Call{CallKind::kSend, id, "hello"}}) {
        account.decided(call);
    }
    ListenRecord listen{};
    listen.port = 80;
    listen.places = 1;
    account.on_output({0, OutputKind::kListen, 0, 0, 0, 0}, bytes_of(listen));
    CHECK_FALSE(account.place_for_client(80));
    const auto numbers = account.last_numbers();

    account.forget_connections();
    CHECK(account.open().empty());
    CHECK(account.last_numbers() == numbers);
    CHECK(account.connections() == 0);
    CHECK(account.input_bytes() == 0);
    CHECK(account.place_for_client(80));
    // What the old server still says of it, where it lags behind the log, changes nothing.
    account.on_output({0, OutputKind::kAccept, 0, id, 0, 0}, {});
    account.on_output({0, OutputKind::kClose, 0, id, 0, 0}, {});
    account.decided({CallKind::kConnect, id + 1, bytes_of(connect)});
    CHECK_FALSE(account.place_for_client(80));
}

TEST_CASE("restart: where a server ends last, its clients' connections end with it, and later ones do not",
          "[restart]") {
    Client old, asked_late, of_the_next;
    Primary primary;
    AttachedClients clients(2, true, [] { return false; });
    clients.set_primary(&primary);
    clients.welcome(1);
    clients.attach(&old, {}, kSecond);
    clients.attach(&asked_late, {}, kSecond);
    clients.server_replaced(2);
    clients.on_decided({CallKind::kConnect, primary.opened.at(1), {}});  // so the next server has it
    clients.attach(&of_the_next, {}, kSecond);
    clients.close_clients_before(2);
    CHECK(old.closed);
    CHECK(primary.left == std::vector<uint64_t>{primary.opened.at(0)});
    CHECK_FALSE(asked_late.closed);
    CHECK_FALSE(of_the_next.closed);
    CHECK(clients.size() == 2);
    clients.close_all();
    CHECK(asked_late.closed);
    CHECK(of_the_next.closed);
    CHECK(primary.left == primary.opened);
    CHECK_FALSE(old.was_reset);
}

TEST_CASE("loss history: only what comes at one place again and again is the server's own deed", "[proxy]") {
    LossHistory losses;
    CHECK_FALSE(losses.lost({10, 500, 9}));
    CHECK_FALSE(losses.lost({10, 500, 9}));
    CHECK(losses.lost({10, 500, 9}));
    CHECK(losses.lost({10, 500, 9}));
    CHECK_FALSE(losses.lost({10, 501, 9}));   // killed by hand a moment later
    CHECK_FALSE(losses.lost({10, 500, 29}));  // by another signal
    CHECK_FALSE(losses.lost({11, 500, 29}));
    CHECK_FALSE(losses.lost({11, 500, 29}));
    CHECK(losses.lost({11, 500, 29}));
}
