// A server that computes for ever: what its replicas agree on before it is ended.
#include <catch2/catch.hpp>

#include "proxy/standstill.hpp"

using namespace crane::proxy;
using crane::Place;
using Verdict = Standstill::Verdict;

namespace {

constexpr uint64_t kSecondNs = 1'000'000'000;
constexpr uint64_t kLimitNs = 60 * kSecondNs;
constexpr Place kPlace{1000, 7};

/// The leader, replica 1 of three, whose server computes.
struct Leader {
    uint64_t io_bytes = 5;
    Standstill standstill{kLimitNs};
    Standstill::Look look{kSecondNs, 1,     {kPlace, true, false},          {2, 3},
                          3,         false, [this] { return cpu_seconds; }, [this] { return io_bytes; }};
    double cpu_seconds = 0;

    Verdict after(uint64_t seconds, double cpu) {
        look.now_ns += seconds * kSecondNs;
        cpu_seconds += cpu;
        return standstill.lead(look);
    }
    Verdict ask() {
        REQUIRE(after(0, 0) == Verdict::kNothing);
        REQUIRE(after(30, 20) == Verdict::kNothing);
        REQUIRE(after(29, 20) == Verdict::kNothing);
        return after(1, 1);
    }
    void answer(uint32_t replica, Place at, bool between = true, bool stopped = false,
                uint64_t generation = 1) {
        const auto bytes = encode(StandAnswer{generation, {at, between, stopped}});
        const auto answer = decode_stand_answer(bytes);
        REQUIRE(answer);
        standstill.answered(replica, *answer);
    }
};

}  // namespace

TEST_CASE("standstill: the end is proposed when all stand at the same place", "[proxy]") {
    Leader leader;
    REQUIRE(leader.ask() == Verdict::kAsk);
    CHECK(leader.standstill.asks());
    const auto word = decode_stand_word(encode(leader.standstill.word()));
    REQUIRE(word);
    CHECK(word->place == kPlace);
    CHECK(word->generation == 1);
    leader.answer(2, kPlace);
    CHECK(leader.after(1, 1) == Verdict::kAsk);  // nothing is known of replica 3
    leader.answer(3, {990, 7});
    CHECK(leader.after(1, 1) == Verdict::kAsk);  // it comes there, too
    leader.answer(3, kPlace);
    CHECK(leader.after(1, 1) == Verdict::kEnd);
    CHECK(leader.standstill.place() == kPlace);
}

TEST_CASE("standstill: one that is far behind is waited for as long as the server was", "[proxy]") {
    Leader leader;
    REQUIRE(leader.ask() == Verdict::kAsk);
    leader.answer(2, kPlace);
    leader.answer(3, {10, 0});
    CHECK(leader.after(59, 59) == Verdict::kAsk);
    CHECK(leader.after(1, 1) == Verdict::kEnd);
}

TEST_CASE("standstill: no end without a majority", "[proxy]") {
    Leader leader;
    leader.look.others = {};
    REQUIRE(leader.ask() == Verdict::kAsk);
    CHECK(leader.after(600, 600) == Verdict::kAsk);
    leader.look.others = {2};
    leader.answer(2, kPlace, false);  // in the middle of an operation
    CHECK(leader.after(1, 1) == Verdict::kAsk);
    leader.answer(2, kPlace);
    CHECK(leader.after(1, 1) == Verdict::kEnd);
}

TEST_CASE("standstill: who goes on anywhere goes on everywhere", "[proxy]") {
    Leader leader;
    REQUIRE(leader.ask() == Verdict::kAsk);
    SECTION("another replica has gone on before it heard") {
        leader.answer(2, {1001, 7});
    }
    SECTION("another one's has come to its gate") {
        leader.answer(3, kPlace, true, true);
    }
    SECTION("the leader's own has come to its gate") {
        leader.look.own.stopped = true;
    }
    SECTION("the leader's own has gone on") {
        leader.look.own.at = {1000, 8};
    }
    CHECK(leader.after(1, 1) == Verdict::kGoOn);
    CHECK_FALSE(leader.standstill.asks());
    CHECK(leader.standstill.word().place == Place{});
    CHECK(leader.after(1, 1) == Verdict::kNothing);
}

TEST_CASE("standstill: what another server's replica says does not count", "[proxy]") {
    Leader leader;
    REQUIRE(leader.ask() == Verdict::kAsk);
    leader.answer(2, kPlace, true, false, 2);
    leader.answer(3, {5000, 0}, true, false, 2);
    CHECK(leader.after(60, 60) == Verdict::kAsk);
}

TEST_CASE("standstill: a server that was stopped from outside does not compute", "[proxy]") {
    Leader leader;
    CHECK(leader.after(0, 0) == Verdict::kNothing);
    CHECK(leader.after(31, 5) == Verdict::kNothing);
    CHECK(leader.after(600, 0) == Verdict::kNothing);
    CHECK(leader.after(1, 1) == Verdict::kAsk);  // it was continued, and computes
}

TEST_CASE("standstill: the operator ends one that does not compute, too", "[proxy]") {
    Leader leader;
    leader.look.forced = true;
    CHECK(leader.after(0, 0) == Verdict::kNothing);
    CHECK(leader.after(31, 0) == Verdict::kNothing);
    CHECK(leader.after(60, 0) == Verdict::kAsk);
    leader.answer(2, kPlace, true);
    leader.answer(3, kPlace, true);
    CHECK(leader.after(1, 0) == Verdict::kEnd);
}

TEST_CASE("standstill: one that reads files, waits or is let alone is not asked", "[proxy]") {
    Leader leader;
    SECTION("steps") {
        for (int second = 0; second < 200; ++second) {
            ++leader.look.own.at.steps;
            REQUIRE(leader.after(1, 1) == Verdict::kNothing);
        }
    }
    SECTION("files that it reads or writes in a way that nobody counts") {
        for (int second = 0; second < 200; ++second) {
            ++leader.io_bytes;
            REQUIRE(leader.after(1, 1) == Verdict::kNothing);
        }
    }
    SECTION("an operation that does not end") {
        leader.look.own.between = false;
        for (int second = 0; second < 200; ++second) REQUIRE(leader.after(1, 1) == Verdict::kNothing);
    }
    SECTION("the operator does not want it") {
        leader.standstill.set_limit(0);
        for (int second = 0; second < 200; ++second) REQUIRE(leader.after(1, 1) == Verdict::kNothing);
    }
}

TEST_CASE("standstill: at the operator's will all go on to where the furthest stopped", "[proxy]") {
    Leader leader;
    leader.look.forced = true;
    CHECK(leader.after(0, 0) == Verdict::kNothing);
    for (int second = 0; second < 59; ++second) {
        leader.look.own.at.steps += 5;
        REQUIRE(leader.after(1, 1) == Verdict::kNothing);
    }
    leader.look.own.at.steps += 5;
    REQUIRE(leader.after(1, 1) == Verdict::kAsk);
    const Place first = leader.look.own.at;
    CHECK(leader.standstill.place() == first);
    leader.look.own.stopped = true;
    leader.answer(2, {first.clock, first.steps - 30}, true, true);
    leader.answer(3, {first.clock, first.steps + 17}, true, true);
    REQUIRE(leader.after(1, 1) == Verdict::kAsk);
    const Place furthest = leader.standstill.place();
    CHECK(furthest == Place{first.clock, first.steps + 17});
    leader.answer(2, furthest, true, true);
    CHECK(leader.after(1, 1) == Verdict::kAsk);  // its own is not there yet
    leader.look.own.at = furthest;
    CHECK(leader.after(1, 1) == Verdict::kEnd);
    leader.answer(3, {furthest.clock + 1, furthest.steps}, true, true);
    CHECK(leader.after(1, 1) == Verdict::kGoOn);
}

TEST_CASE("standstill: words of another size are refused", "[proxy]") {
    CHECK_FALSE(decode_stand_word("short"));
    CHECK_FALSE(decode_stand_answer(std::string(25, 'x')));
}
