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
    ack.type = MessageType::Ack;
    ack.ok = true;
    ack.index = index;
    return ack;
}

Copy hear(Lineages& lineages, const Message& message) {
    return lineages.hear(message, false);
}

constexpr View first_view = make_view(1, 1), second_view = make_view(2, 3);

}  // namespace

TEST_CASE("paxos lineage: a start with what was promised and acknowledged is the next one") {
    Lineages lineages;
    REQUIRE(hear(lineages, acknowledged({7, 1, 100, 0, 0, false}, first_view, 50)) == Copy::Current);
    REQUIRE(hear(lineages, acknowledged({7, 2, 101, first_view, 50, false}, first_view, 60)) ==
            Copy::Current);
    // A higher promise, and a log that its leader has cut.
    REQUIRE(hear(lineages, said({7, 3, 102, second_view, 40, false}, second_view)) == Copy::Current);
    // What the process before has left in the network.
    REQUIRE(hear(lineages, acknowledged({7, 2, 101, first_view, 50, false}, first_view, 61)) == Copy::Older);
    REQUIRE(hear(lineages, said({7, 3, 102, second_view, 40, false}, second_view)) == Copy::Current);
}

TEST_CASE("paxos lineage: a database put back from a copy is noticed") {
    Lineages lineages;
    REQUIRE(hear(lineages, acknowledged({7, 4, 100, 0, 0, false}, first_view, 50)) == Copy::Current);
    // The copy was made during the same run: its next start has the number that the true one's would have.
    CHECK(hear(lineages, said({7, 5, 101, first_view, 49, false}, first_view)) == Copy::Older);
    CHECK(hear(lineages, said({7, 5, 101, 0, 80, false}, 0)) == Copy::Older);
    // It was made before.
    CHECK(hear(lineages, said({7, 3, 102, second_view, 90, false}, second_view)) == Copy::Older);
    // A promise alone, to a candidate that never led.
    REQUIRE(hear(lineages, said({7, 4, 100, 0, 0, false}, second_view)) == Copy::Current);
    CHECK(hear(lineages, said({7, 5, 103, first_view, 50, false}, first_view)) == Copy::Older);
    CHECK(hear(lineages, said({7, 5, 104, second_view, 10, false}, second_view)) == Copy::Current);
}

TEST_CASE("paxos lineage: two processes from copies of one database are noticed") {
    Lineages lineages;
    REQUIRE(hear(lineages, said({7, 4, 100, 0, 0, false}, first_view)) == Copy::Current);
    CHECK(hear(lineages, said({7, 4, 200, 0, 0, false}, first_view)) == Copy::Second);
    CHECK(hear(lineages, said({7, 4, 100, 0, 0, false}, first_view)) == Copy::Current);
}

TEST_CASE("paxos lineage: of two processes the decided one is believed, though it was heard later") {
    Lineages lineages;
    REQUIRE(hear(lineages, said({7, 4, 200, 0, 0, false}, first_view)) == Copy::Current);
    CHECK(lineages.hear(said({7, 4, 100, 0, 0, false}, first_view), true) == Copy::Current);
    CHECK(hear(lineages, said({7, 4, 200, 0, 0, false}, first_view)) == Copy::Second);
}

TEST_CASE("paxos lineage: what the start before says late is not held against the next one") {
    Lineages lineages;
    REQUIRE(lineages.hear(acknowledged({7, 1, 100, 0, 0, false}, first_view, 50), true) == Copy::Current);
    REQUIRE(hear(lineages, acknowledged({7, 2, 101, first_view, 50, false}, second_view, 60)) ==
            Copy::Current);
    CHECK(lineages.hear(acknowledged({7, 1, 100, 0, 0, false}, first_view, 49), true) == Copy::Current);
    CHECK(hear(lineages, said({7, 2, 101, first_view, 50, false}, second_view)) == Copy::Current);
}

TEST_CASE("paxos lineage: nothing is concluded from another database, for messages may be late") {
    Lineages lineages;
    REQUIRE(hear(lineages, acknowledged({8, 1, 101, 0, 0, true}, first_view, 50)) == Copy::Current);
    CHECK(hear(lineages, acknowledged({7, 1, 100, 0, 0, true}, first_view, 60)) == Copy::Current);
    CHECK(hear(lineages, said({8, 1, 101, 0, 0, true}, first_view)) == Copy::Current);
    CHECK(hear(lineages, said({8, 2, 102, first_view, 50, true}, first_view)) == Copy::Current);
}

TEST_CASE("paxos lineage: a storage that counts no starts is believed") {
    Lineages lineages;
    CHECK(hear(lineages, said({}, second_view)) == Copy::Current);
    CHECK(hear(lineages, said({}, first_view)) == Copy::Current);
}
