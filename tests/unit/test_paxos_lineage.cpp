// Old and second copies of databases, as those who remember more of them see them.
#include <catch2/catch.hpp>

#include "paxos/core/lineage.hpp"

using namespace crane::paxos;

namespace {

Message said(const Origin& origin, View promised) {
    Message message;
    message.from = 2;
    message.to = 1;
    message.origin = origin;
    message.view = message.promised = promised;
    return message;
}

Message acknowledged(const Origin& origin, View view, uint64_t index) {
    Message ack = said(origin, view);
    ack.type = MessageType::kAck;
    ack.ok = true;
    ack.index = index;
    return ack;
}

Copy hear(Lineages& lineages, const Message& message) {
    return lineages.hear(message, false);
}

constexpr View kFirstView = make_view(1, 1), kSecondView = make_view(2, 3);

}  // namespace

TEST_CASE("paxos lineage: a start with what was promised and acknowledged is the next one") {
    Lineages lineages;
    REQUIRE(hear(lineages, acknowledged({7, 1, 100, 0, 0, false}, kFirstView, 50)) == Copy::kCurrent);
    REQUIRE(hear(lineages, acknowledged({7, 2, 101, kFirstView, 50, false}, kFirstView, 60)) ==
            Copy::kCurrent);
    // A higher promise, and a log that its leader has cut.
    REQUIRE(hear(lineages, said({7, 3, 102, kSecondView, 40, false}, kSecondView)) == Copy::kCurrent);
    // What the process before has left in the network.
    REQUIRE(hear(lineages, acknowledged({7, 2, 101, kFirstView, 50, false}, kFirstView, 61)) == Copy::kOlder);
    REQUIRE(hear(lineages, said({7, 3, 102, kSecondView, 40, false}, kSecondView)) == Copy::kCurrent);
}

TEST_CASE("paxos lineage: a database put back from a copy is noticed") {
    Lineages lineages;
    REQUIRE(hear(lineages, acknowledged({7, 4, 100, 0, 0, false}, kFirstView, 50)) == Copy::kCurrent);
    // The copy was made during the same run: its next start has the number that the true one's would have.
    CHECK(hear(lineages, said({7, 5, 101, kFirstView, 49, false}, kFirstView)) == Copy::kOlder);
    CHECK(hear(lineages, said({7, 5, 101, 0, 80, false}, 0)) == Copy::kOlder);
    // It was made before.
    CHECK(hear(lineages, said({7, 3, 102, kSecondView, 90, false}, kSecondView)) == Copy::kOlder);
    // A promise alone, to a candidate that never led.
    REQUIRE(hear(lineages, said({7, 4, 100, 0, 0, false}, kSecondView)) == Copy::kCurrent);
    CHECK(hear(lineages, said({7, 5, 103, kFirstView, 50, false}, kFirstView)) == Copy::kOlder);
    CHECK(hear(lineages, said({7, 5, 104, kSecondView, 10, false}, kSecondView)) == Copy::kCurrent);
}

TEST_CASE("paxos lineage: two processes from copies of one database are noticed") {
    Lineages lineages;
    REQUIRE(hear(lineages, said({7, 4, 100, 0, 0, false}, kFirstView)) == Copy::kCurrent);
    CHECK(hear(lineages, said({7, 4, 200, 0, 0, false}, kFirstView)) == Copy::kSecond);
    CHECK(hear(lineages, said({7, 4, 100, 0, 0, false}, kFirstView)) == Copy::kCurrent);
}

TEST_CASE("paxos lineage: of two processes the decided one is believed, though it was heard later") {
    Lineages lineages;
    REQUIRE(hear(lineages, said({7, 4, 200, 0, 0, false}, kFirstView)) == Copy::kCurrent);
    CHECK(lineages.hear(said({7, 4, 100, 0, 0, false}, kFirstView), true) == Copy::kCurrent);
    CHECK(hear(lineages, said({7, 4, 200, 0, 0, false}, kFirstView)) == Copy::kSecond);
}

TEST_CASE("paxos lineage: what the start before says late is not held against the next one") {
    Lineages lineages;
    REQUIRE(lineages.hear(acknowledged({7, 1, 100, 0, 0, false}, kFirstView, 50), true) == Copy::kCurrent);
    REQUIRE(hear(lineages, acknowledged({7, 2, 101, kFirstView, 50, false}, kSecondView, 60)) ==
            Copy::kCurrent);
    CHECK(lineages.hear(acknowledged({7, 1, 100, 0, 0, false}, kFirstView, 49), true) == Copy::kCurrent);
    CHECK(hear(lineages, said({7, 2, 101, kFirstView, 50, false}, kSecondView)) == Copy::kCurrent);
}

TEST_CASE("paxos lineage: nothing is concluded from another database, for messages may be late") {
    Lineages lineages;
    REQUIRE(hear(lineages, acknowledged({8, 1, 101, 0, 0, true}, kFirstView, 50)) == Copy::kCurrent);
    CHECK(hear(lineages, acknowledged({7, 1, 100, 0, 0, true}, kFirstView, 60)) == Copy::kCurrent);
    CHECK(hear(lineages, said({8, 1, 101, 0, 0, true}, kFirstView)) == Copy::kCurrent);
    CHECK(hear(lineages, said({8, 2, 102, kFirstView, 50, true}, kFirstView)) == Copy::kCurrent);
}

TEST_CASE("paxos lineage: a storage that counts no starts is believed") {
    Lineages lineages;
    CHECK(hear(lineages, said({}, kSecondView)) == Copy::kCurrent);
    CHECK(hear(lineages, said({}, kFirstView)) == Copy::kCurrent);
}
