// Clients' datagrams: who proposes them, who answers, what a replay leaves out, and the bounds.
#include <string.h>
#include <sys/socket.h>
#include <catch2/catch.hpp>

#include <nlohmann/json.hpp>
#include <vector>

#include "proxy/datagrams.hpp"
#include "timebubble/limits.hpp"
#include "timebubble/transport.hpp"

using namespace crane;
using namespace crane::proxy;
using timebubble::Call;
using timebubble::CallKind;
using timebubble::DatagramPayload;
using timebubble::DatagramRecord;

namespace {

std::string datagram(uint16_t peer_port, std::string_view bytes, uint64_t receiver = 0) {
    DatagramPayload call{53, AF_INET, peer_port, 0, receiver, {10, 0, 0, 9}, {10, 0, 0, 1}};
    std::string out(reinterpret_cast<const char*>(&call), sizeof(call));
    return out.append(bytes);
}

std::string answer(uint16_t peer_port, std::string_view bytes, uint16_t own_port = 53) {
    DatagramRecord record{own_port, AF_INET, peer_port, 0, {10, 0, 0, 9}};
    std::string out(reinterpret_cast<const char*>(&record), sizeof(record));
    return out.append(bytes);
}

/// One replica; what it proposes is decided when the test says so.
struct Replica {
    explicit Replica(uint64_t life)
        : life(life),
          datagrams(life, batcher,
                    {[this] { return leads; },
                     [this](std::string payload) {
                         if (linked) relayed.push_back(std::move(payload));
                         return linked;
                     },
                     [this](const DatagramPayload& client, std::string_view bytes) {
                         sent.push_back(std::to_string(client.peer_port) + " " + std::string(bytes));
                         from.push_back(client.port);
                         return true;
                     },
                     [this](const std::string& what) { told.push_back(what); }}) {}

    uint64_t count(const char* what) const { return datagrams.json().at(what).get<uint64_t>(); }
    void decide(uint64_t index, std::string_view payload) {
        datagrams.on_decided(index, Call{CallKind::kDatagram, 0, payload});
    }

    uint64_t life;
    Batcher batcher;
    bool leads = false, linked = true;
    std::vector<std::string> relayed, sent, told;
    std::vector<uint16_t> from;
    Datagrams datagrams;
};

}  // namespace

TEST_CASE(
    "datagrams: the primary proposes what comes to any replica, with the name of the one that it came to",
    "[datagrams]") {
    Replica primary(1), backup(2);
    primary.leads = true;
    backup.datagrams.received(datagram(4000, "q"));
    REQUIRE(backup.relayed.size() == 1);
    primary.datagrams.relayed(backup.relayed[0]);
    primary.datagrams.received(datagram(4001, "q"));
    CHECK(primary.count("proposed") == 2);
    CHECK(primary.batcher.calls() == 2);
    const std::string batch = primary.batcher.take(1, 1);
    timebubble::BatchDecoder decoder;
    REQUIRE(decoder.open(reinterpret_cast<const uint8_t*>(batch.data()), batch.size()));
    Call call;
    std::vector<uint64_t> receivers;
    while (decoder.next(call)) {
        DatagramPayload from;
        memcpy(&from, call.payload.data(), sizeof(from));
        receivers.push_back(from.receiver);
    }
    CHECK(receivers == std::vector<uint64_t>{2, 1});
}

TEST_CASE("datagrams: a client is answered by the replica that it has sent to, and by no other",
          "[datagrams]") {
    Replica one(1), two(2);
    for (Replica* replica : {&one, &two}) {
        replica->decide(7, datagram(4000, "q", 2));
        replica->datagrams.on_output(answer(4000, "a"), 7, true);
    }
    CHECK(one.sent.empty());
    CHECK(two.sent == std::vector<std::string>{"4000 a"});
    // It turns to another one.
    for (Replica* replica : {&one, &two}) {
        replica->decide(8, datagram(4000, "q", 1));
        replica->datagrams.on_output(answer(4000, "b"), 8, true);
    }
    CHECK(one.sent == std::vector<std::string>{"4000 b"});
    CHECK(two.sent.size() == 1);
    CHECK(one.told.empty());
}

TEST_CASE("datagrams: a client is answered from another port than it has sent to, too", "[datagrams]") {
    Replica one(1), two(2);
    for (Replica* replica : {&one, &two}) {
        replica->decide(7, datagram(4000, "q", 2));
        replica->datagrams.on_output(answer(4000, "block", 50000), 7, true);
        replica->datagrams.on_output(answer(4000, "late", 50000), 6, true);
        replica->datagrams.on_output(answer(4001, "nobody's", 50000), 7, true);
    }
    CHECK(one.sent.empty());
    CHECK(two.sent == std::vector<std::string>{"4000 block"});
    CHECK(two.from == std::vector<uint16_t>{50000});
    CHECK(two.count("unasked") == 1);
}

TEST_CASE(
    "datagrams: what was answered before this life, or is of no concern while it serves nobody, is not sent",
    "[datagrams]") {
    Replica now(3);
    now.decide(5, datagram(4000, "old", 2));  // to its life before
    now.datagrams.on_output(answer(4000, "old"), 5, true);
    now.decide(900, datagram(4000, "new", 3));  // decided while the replay is at entry 6
    now.datagrams.on_output(answer(4000, "older"), 6, true);
    CHECK(now.sent.empty());
    now.decide(901, datagram(4000, "more", 3));
    now.datagrams.on_output(answer(4000, "fresh"), 900, true);
    CHECK(now.sent == std::vector<std::string>{"4000 fresh"});
    now.datagrams.on_output(answer(4000, "fenced"), 901, false);
    CHECK(now.sent.size() == 1);
}

TEST_CASE("datagrams: who has sent none gets none, and that is said once in a while", "[datagrams]") {
    Replica replica(1);
    for (int i = 0; i < 100; ++i) replica.datagrams.on_output(answer(4000, "x"), 9, true);
    CHECK(replica.sent.empty());
    CHECK(replica.count("unasked") == 100);
    CHECK(replica.told.size() == 3);  // the first, the tenth, the hundredth
}

TEST_CASE("datagrams: without a primary, or with too many queued, they are dropped and counted",
          "[datagrams]") {
    Replica replica(1);
    replica.linked = false;
    replica.datagrams.received(datagram(4000, "q"));
    CHECK(replica.count("dropped") == 1);
    replica.leads = true;
    const std::string bytes(timebubble::kMaxDatagramBytes, 'x');
    for (int i = 0; i < 200; ++i) replica.datagrams.received(datagram(4000, bytes));
    CHECK(replica.batcher.bytes() <= Datagrams::kMostQueuedBytes);
    CHECK(replica.count("dropped") + replica.count("proposed") == 201);
    CHECK(replica.count("proposed") > 50);
}

TEST_CASE("datagrams: of more clients than are remembered the latest are", "[datagrams]") {
    Replica replica(1);
    uint64_t index = 0;
    for (uint32_t i = 0; i < 3 * Datagrams::kRemembered; ++i) {
        std::string payload = datagram(static_cast<uint16_t>(i), "q", 1);
        payload[offsetof(DatagramPayload, peer) + 3] = static_cast<char>(i >> 16);
        replica.decide(++index, payload);
    }
    std::string last = answer(static_cast<uint16_t>(3 * Datagrams::kRemembered - 1), "a");
    last[offsetof(DatagramRecord, peer) + 3] = static_cast<char>((3 * Datagrams::kRemembered - 1) >> 16);
    replica.datagrams.on_output(last, index, true);
    CHECK(replica.sent.size() == 1);
    std::string first = answer(1, "a");
    first[offsetof(DatagramRecord, peer) + 3] = 0;
    replica.datagrams.on_output(first, index, true);
    CHECK(replica.count("unasked") == 1);
}

TEST_CASE("datagrams: what no replica has made is not proposed", "[datagrams]") {
    Replica replica(1);
    replica.leads = true;
    replica.datagrams.relayed("short");
    std::string strange = datagram(4000, "q");
    strange[offsetof(DatagramPayload, family)] = 77;
    replica.datagrams.relayed(strange);
    replica.datagrams.relayed(datagram(4000, std::string(timebubble::kMaxDatagramBytes + 1, 'x')));
    CHECK(replica.batcher.calls() == 0);
    replica.decide(1, "short");
    replica.datagrams.on_output("short", 1, true);
    CHECK(replica.sent.empty());
}

TEST_CASE(
    "datagrams: what the server says to others goes out where it is let, and their answers are no clients'",
    "[datagrams][egress]") {
    Batcher batcher;
    std::vector<std::string> out, sent;
    bool allowed = true;
    Datagrams datagrams(7, batcher,
                        {[] { return true; }, [](const std::string&) { return false; },
                         [&](const DatagramPayload&, std::string_view bytes) {
                             sent.emplace_back(bytes);
                             return true;
                         },
                         [](const std::string&) {},
                         [&](const DatagramRecord& to, std::string_view bytes) {
                             if (allowed)
                                 out.push_back(std::to_string(to.peer_port) + " " + std::string(bytes));
                             return allowed;
                         }});
    datagrams.on_output(answer(5000, "question"), 1, true);
    CHECK(out == std::vector<std::string>{"5000 question"});
    CHECK(datagrams.json().at("unasked") == 0);
    datagrams.answered(datagram(5000, "answer", 7));
    const std::string batch = batcher.take(1, 1);
    timebubble::BatchDecoder decoder;
    REQUIRE(decoder.open(reinterpret_cast<const uint8_t*>(batch.data()), batch.size()));
    for (Call call; decoder.next(call);) datagrams.on_decided(2, call);
    datagrams.on_output(answer(5000, "again"), 2, true);
    CHECK(out.back() == "5000 again");
    CHECK(sent.empty());
    allowed = false;
    datagrams.on_output(answer(5000, "refused"), 3, true);
    CHECK(datagrams.json().at("unasked") == 1);
}
