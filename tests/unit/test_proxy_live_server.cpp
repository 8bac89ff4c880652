// What craned knows of a server that runs comes back out of a checkpoint as it was.
#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <nlohmann/json.hpp>

#include "proxy/live_server.hpp"

using namespace crane::proxy;
using namespace crane::timebubble;

namespace {

std::string_view bytes_of(const auto& value) {
    return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

ListenRecord listener(uint16_t port, uint8_t last_of_address, uint32_t places) {
    ListenRecord one{};
    one.family = AF_INET;
    one.port = port;
    one.address[3] = last_of_address;
    one.places = places;
    return one;
}

void say(ServerPorts& ports, OutputKind kind, const ListenRecord& record, uint16_t flags = 0) {
    OutputHeader header{};
    header.kind = kind;
    header.flags = flags;
    ports.on_output(header, bytes_of(record));
}

Call call(CallKind kind, uint64_t connection, std::string_view payload) {
    Call one{};
    one.kind = kind;
    one.connection = connection;
    one.payload = payload;
    return one;
}

/// Three clients: one that waits, one that was served in part, one that was reset and that the server still
/// has.
DomainAccount some_account() {
    DomainAccount account(1 << 20);
    const auto connect = [&](uint64_t id) {
        ConnectPayload payload{};
        payload.listen_port = 80;
        account.decided(call(CallKind::kConnect, id, bytes_of(payload)));
    };
    ListenRecord record = listener(80, 1, 2);
    OutputHeader header{};
    header.kind = OutputKind::kListen;
    account.on_output(header, bytes_of(record));
    for (const uint64_t id : {5, 6, 7}) connect(id);
    const std::string input(100'000, 'x');
    account.decided(call(CallKind::kSend, 6, input));
    account.decided(call(CallKind::kSend, 7, input));
    header.kind = OutputKind::kAccept;
    header.connection = 6;
    account.on_output(header, "");
    header.connection = 7;
    account.on_output(header, "");
    const uint64_t consumed = 50'000;
    header.kind = OutputKind::kConsumed;
    header.connection = 6;
    account.on_output(header, bytes_of(consumed));
    account.decided(call(CallKind::kReset, 7, {}));
    header.kind = OutputKind::kSend;
    account.on_output(header, std::string(777, 'y'));
    const uint64_t window_end = 100'000;
    account.decided(call(CallKind::kWindow, 6, bytes_of(window_end)));
    account.decided(call(CallKind::kShutdown, 6, {}));
    return account;
}

}  // namespace

TEST_CASE("live server: its ports are those that it listens on now", "[checkpoint]") {
    ServerPorts ports;
    say(ports, OutputKind::kListen, listener(80, 1, 10));
    say(ports, OutputKind::kListen, listener(80, 2, 20));
    say(ports, OutputKind::kListen, listener(443, 1, 5));
    REQUIRE(ports.records().size() == 3);
    CHECK(ports.records()[0].places == 20);  // of all listeners of the port
    say(ports, OutputKind::kUnlisten, listener(80, 1, 10));
    REQUIRE(ports.records().size() == 2);
    CHECK(ports.records()[0].address[3] == 2);
    CHECK(ports.records()[0].places == 10);
    ListenRecord changed = listener(443, 1, 5);
    changed.defer_accept_s = 3;
    say(ports, OutputKind::kListen, changed, kListenChanged);
    REQUIRE(ports.records().size() == 2);
    CHECK(ports.records()[1].defer_accept_s == 3);
    say(ports, OutputKind::kUnlisten, listener(8080, 1, 0));  // it never listened there
    CHECK(ports.records().size() == 2);
    ports.on_output({}, "too short");
    CHECK(ports.records().size() == 2);
}

TEST_CASE("live server: an account that was kept has the same room for everybody", "[checkpoint]") {
    const DomainAccount before = some_account();
    DomainAccount after(1 << 20);
    after.restore(before.kept(), before.open());
    CHECK(after.connections() == 3);
    CHECK(after.input_bytes() == before.input_bytes());
    CHECK(after.input_bytes() > 0);
    for (const uint64_t id : {5, 6, 7, 8}) {
        CAPTURE(id);
        CHECK(after.input_room(id) == before.input_room(id));
    }
    CHECK(after.place_for_client(80) == before.place_for_client(80));
    const ConnectionTable::Map known = after.open();
    CHECK(known.size() == 2);  // one was reset
    for (const auto& [id, state] : before.open()) {
        REQUIRE(known.count(id) == 1);
        CHECK(known.at(id).input == state.input);
        CHECK(known.at(id).sent == state.sent);
        CHECK(known.at(id).window_end == state.window_end);
        CHECK(known.at(id).input_ended == state.input_ended);
    }
    CHECK(known.at(6).sent == 777);
    CHECK(known.at(6).window_end == 100'000);
    CHECK(known.at(6).input_ended);
    // The one that waits takes one of two places.
    ConnectPayload payload{};
    payload.listen_port = 80;
    after.decided(call(CallKind::kConnect, 9, bytes_of(payload)));
    CHECK_FALSE(after.place_for_client(80));
    size_t open = 0;
    after.each_open([&](uint64_t) { ++open; });
    CHECK(open == 3);  // all but the one that was reset
}

TEST_CASE("live server: all of it comes back out of its text, and equal ones have equal texts",
          "[checkpoint]") {
    LiveServer server;
    server.timestamp_ns = 1'700'000'000'000'000'001;
    server.words = {3, 2, 7, 99, 12345, ~uint64_t{0}, 17};
    server.listeners = {listener(80, 1, 10), listener(443, 2, 4096)};
    server.open[uint64_t{3} << 48 | 1] = {1000, 2000, 300000, true};
    server.open[6] = {1, 2, 3, false};
    server.account = some_account().kept();
    const std::string text = to_json(server).dump();
    const LiveServer back = live_server_from(nlohmann::json::parse(text));
    CHECK(to_json(back).dump() == text);
    CHECK(back.timestamp_ns == server.timestamp_ns);
    CHECK(back.words.files_since_ns == ~uint64_t{0});
    CHECK(back.words.input_rings == 17);
    nlohmann::json earlier = nlohmann::json::parse(text);
    for (auto& [key, value] : earlier.items())
        if (value.is_array() && value.size() == 7 && value[0] == 3) value.erase(6);
    CHECK(live_server_from(earlier).words.input_rings == DomainWords::kUnknownRings);
    REQUIRE(back.listeners.size() == 2);
    CHECK(std::memcmp(&back.listeners[1], &server.listeners[1], sizeof(ListenRecord)) == 0);
    REQUIRE(back.open.count(uint64_t{3} << 48 | 1) == 1);
    const ConnectionState& one = back.open.at(uint64_t{3} << 48 | 1);
    CHECK((one.input == 1000 && one.sent == 2000 && one.window_end == 300000 && one.input_ended));
    CHECK(back.account.connections.size() == 3);
}

TEST_CASE("live server: what is missing or of another kind is an error", "[checkpoint]") {
    const nlohmann::json good = to_json(LiveServer{});
    for (const auto& [key, value] : good.items()) {
        CAPTURE(key);
        nlohmann::json odd = good;
        odd.erase(key);
        if (key == "egress") {  // an earlier version had none
            CHECK_NOTHROW(live_server_from(odd));
        } else {
            CHECK_THROWS_AS(live_server_from(odd), nlohmann::json::exception);
        }
        odd[key] = nlohmann::json::array({"odd"});
        CHECK_THROWS_AS(live_server_from(odd), nlohmann::json::exception);
    }
}
