// Whose turn it is to take a checkpoint of the running server.
#include <catch2/catch.hpp>

#include "proxy/image_rounds.hpp"

using crane::proxy::ImageRounds;
using Voters = std::vector<ImageRounds::Voter>;

namespace {

constexpr uint64_t kSecond = 1'000'000'000;

}  // namespace

TEST_CASE("image rounds: backups take one after the other, and the primary none", "[checkpoint]") {
    ImageRounds rounds(1, {1000, 0});
    Voters voters{{1, true, 0}, {2, true, 0}, {3, true, 0}};
    CHECK(rounds.next(0, 50, voters) == 0);
    rounds.logged(999);
    CHECK(rounds.next(0, 50, voters) == 0);
    rounds.logged(1);
    CHECK(rounds.next(0, 50, voters) == 2);
    CHECK(rounds.next(kSecond, 60, voters) == 0);  // it is at it
    voters[1].held = 55;
    CHECK(rounds.next(2 * kSecond, 60, voters) == 3);
    voters[2].held = 61;
    CHECK(rounds.next(3 * kSecond, 70, voters) == 0);
    CHECK_FALSE(rounds.open());
    CHECK(rounds.next(4 * kSecond, 70, voters) == 0);
}

TEST_CASE("image rounds: the primary itself only where backups are not enough", "[checkpoint]") {
    ImageRounds rounds(1, {1000, 0});
    Voters voters{{1, true, 0}, {2, true, 0}, {3, false, 0}};
    rounds.ask();
    CHECK(rounds.next(0, 50, voters) == 2);
    voters[1].held = 50;
    CHECK(rounds.next(1, 50, voters) == 1);
    voters[0].held = 50;
    CHECK(rounds.next(2, 50, voters) == 0);
    CHECK_FALSE(rounds.open());

    ImageRounds alone(1, {1000, 0});
    alone.ask();
    CHECK(alone.next(0, 7, {{1, true, 0}}) == 1);
    CHECK(alone.next(1, 9, {{1, true, 8}}) == 0);
    CHECK_FALSE(alone.open());
}

TEST_CASE("image rounds: one that fails or goes is waited for no longer, and asked once", "[checkpoint]") {
    ImageRounds rounds(1, {1000, 0});
    Voters voters{{1, false, 0}, {2, true, 0}, {3, true, 0}};
    rounds.ask();
    CHECK(rounds.next(0, 50, voters) == 2);
    voters[1].able = false;
    CHECK(rounds.next(kSecond, 50, voters) == 3);
    voters[1].able = true;
    CHECK(rounds.next(2 * kSecond, 50, voters) == 0);
    CHECK(rounds.next(300 * kSecond, 50, voters) == 0);  // nobody is left
    CHECK_FALSE(rounds.open());
    rounds.logged(1000);  // the next round asks all again
    CHECK(rounds.next(301 * kSecond, 90, voters) == 2);
}

TEST_CASE("image rounds: one that says that it is at it is waited for, but not for ever", "[checkpoint]") {
    ImageRounds rounds(1, {1000, 0});
    const Voters voters{{1, false, 0}, {2, true, 0}, {3, true, 0}};
    rounds.ask();
    CHECK(rounds.next(0, 50, voters) == 2);
    uint64_t now = 0;
    for (; now < 600 * kSecond; now += 5 * kSecond) {
        rounds.at_it(now, 2);
        rounds.at_it(now, 3);  // which nobody has asked
        CHECK(rounds.next(now, 50, voters) == 0);
    }
    CHECK(rounds.next(now + 100 * kSecond, 50, voters) == 0);
    now += 130 * kSecond;
    CHECK(rounds.next(now, 50, voters) == 3);  // it has fallen silent
    while (rounds.open() && now < 10'000 * kSecond) {
        rounds.at_it(now += 5 * kSecond, 3);
        rounds.next(now, 50, voters);
    }
    CHECK(now > 3600 * kSecond);
    CHECK(now < 4500 * kSecond);
}

TEST_CASE("image rounds: a majority that holds one already is not asked", "[checkpoint]") {
    ImageRounds rounds(2, {1000, 0});
    const Voters voters{{1, true, 50}, {2, true, 0}, {3, true, 50}};
    rounds.ask();
    CHECK(rounds.next(0, 50, voters) == 0);
    CHECK_FALSE(rounds.open());
    rounds.ask();
    CHECK(rounds.next(0, 51, voters) == 1);
    rounds.stop();  // another leads
    CHECK(rounds.next(0, 52, voters) == 0);
}

TEST_CASE("image rounds: there is a pause between two, unless one is asked for", "[checkpoint]") {
    ImageRounds rounds(1, {1000, 60 * kSecond});
    const Voters voters{{1, true, 0}, {2, true, 0}};
    rounds.logged(1000);
    CHECK(rounds.next(kSecond, 50, voters) == 2);
    rounds.stop();
    rounds.logged(5000);
    CHECK(rounds.next(60 * kSecond, 60, voters) == 0);
    CHECK(rounds.next(61 * kSecond, 60, voters) == 2);
    rounds.stop();
    rounds.ask();
    CHECK(rounds.next(62 * kSecond, 60, voters) == 2);

    ImageRounds only_asked(1, {0, 0});
    only_asked.logged(5000);
    CHECK(only_asked.next(kSecond, 50, voters) == 0);
    only_asked.ask();
    CHECK(only_asked.next(kSecond, 50, voters) == 2);
}

TEST_CASE("image rounds: who says that it cannot is not waited for", "[checkpoint]") {
    ImageRounds rounds(1, {1000, 0});
    const Voters voters{{1, true, 0}, {2, true, 0}, {3, true, 0}};
    rounds.ask();
    CHECK(rounds.wanted());
    CHECK(rounds.next(0, 50, voters) == 2);
    rounds.failed(3);  // it was not asked
    CHECK(rounds.next(1, 50, voters) == 0);
    rounds.failed(2);
    CHECK(rounds.next(2, 50, voters) == 3);
    rounds.failed(3);
    CHECK(rounds.next(3, 50, voters) == 1);
    rounds.failed(1);
    CHECK(rounds.next(4, 50, voters) == 0);
    CHECK_FALSE(rounds.wanted());
}

TEST_CASE("image rounds: a log that grows fast does not wait for the pause to end", "[checkpoint]") {
    ImageRounds rounds(1, {1000, 60 * kSecond});
    Voters voters{{1, true, 0}, {2, true, 0}, {3, true, 0}};
    rounds.logged(1000);
    CHECK(rounds.next(kSecond, 50, voters) == 2);
    voters[1].held = voters[2].held = 55;
    CHECK(rounds.next(2 * kSecond, 60, voters) == 0);
    CHECK_FALSE(rounds.open());
    rounds.logged(7999);
    CHECK(rounds.next(3 * kSecond, 60, voters) == 0);
    rounds.logged(1);
    CHECK(rounds.next(4 * kSecond, 60, voters) == 2);
}

TEST_CASE("image rounds: one that is asked for while another ends takes place", "[checkpoint]") {
    ImageRounds rounds(1, {1000, 0});
    Voters voters{{1, true, 0}, {2, true, 0}, {3, true, 0}};
    rounds.ask();
    CHECK(rounds.next(0, 50, voters) == 2);
    voters[1].held = voters[2].held = 55;
    rounds.ask();
    CHECK(rounds.next(kSecond, 60, voters) == 0);
    CHECK(rounds.wanted());
    CHECK(rounds.next(2 * kSecond, 60, voters) == 2);
    CHECK(rounds.first_index() == 60);
    rounds.stop();
    CHECK_FALSE(rounds.wanted());
}

TEST_CASE("image rounds: a witness fetches one as soon as somebody has taken it", "[checkpoint]") {
    constexpr bool kWitness = false;  // it takes none
    SECTION("of a backup, so that the primary need not") {
        ImageRounds rounds(1, {1000, 0});
        Voters voters{{1, true, 0}, {2, true, 0, kWitness}, {3, true, 0}};
        rounds.ask();
        CHECK(rounds.next(0, 50, voters) == 3);
        voters[2].held = 50;
        CHECK(rounds.next(1, 50, voters) == 2);
        voters[1].held = 50;
        CHECK(rounds.next(2, 50, voters) == 0);
        CHECK_FALSE(rounds.open());
    }
    SECTION("of the primary, where there is no other server") {
        ImageRounds rounds(1, {1000, 0});
        Voters voters{{1, true, 0}, {2, true, 0, kWitness}, {3, false, 0}};
        rounds.ask();
        CHECK(rounds.next(0, 50, voters) == 1);
        voters[0].held = 52;
        CHECK(rounds.next(1, 60, voters) == 2);
        voters[1].held = 52;
        CHECK(rounds.next(2, 60, voters) == 0);
        CHECK_FALSE(rounds.open());
    }
}

TEST_CASE("image rounds: what a server has computed asks for one as well, after the pause", "[checkpoint]") {
    ImageRounds rounds(1, {1000, 60 * kSecond});
    Voters voters{{1, true, 0}, {2, true, 0}};
    rounds.computed(100);  // of what went before nothing is known
    CHECK(rounds.next(0, 50, voters) == 0);
    rounds.computed(109);
    CHECK(rounds.next(1, 50, voters) == 0);
    rounds.computed(2);  // it has begun anew
    CHECK(rounds.next(2, 50, voters) == 2);
    voters[1].held = voters[0].held = 50;
    CHECK(rounds.next(3, 50, voters) == 0);
    rounds.computed(15);
    CHECK(rounds.next(59 * kSecond, 60, voters) == 0);
    CHECK(rounds.next(63 * kSecond, 60, voters) == 2);
    rounds.stop();
    rounds.computed(1000);
    CHECK(rounds.next(200 * kSecond, 70, voters) == 0);

    ImageRounds asked(1, {0, 0});
    asked.computed(1);
    asked.computed(1000);
    CHECK(asked.next(0, 50, voters) == 0);  // only when asked
}

TEST_CASE("image rounds: after one that took long the servers have as long again", "[checkpoint]") {
    ImageRounds rounds(1, {1000, 60 * kSecond});
    Voters voters{{1, true, 0}, {2, true, 0}};
    rounds.logged(1000);
    CHECK(rounds.next(kSecond, 50, voters) == 2);
    voters[1].held = voters[0].held = 50;
    CHECK(rounds.next(101 * kSecond, 60, voters) == 0);
    CHECK_FALSE(rounds.open());
    rounds.logged(7999);
    CHECK(rounds.next(200 * kSecond, 70, voters) == 0);
    CHECK(rounds.next(201 * kSecond, 70, voters) == 2);  // as long as it took
    voters[1].held = voters[0].held = 70;
    CHECK(rounds.next(301 * kSecond, 80, voters) == 0);
    rounds.logged(8000);
    CHECK(rounds.next(302 * kSecond, 90, voters) == 2);  // the log has grown far
    voters[1].held = voters[0].held = 90;
    CHECK(rounds.next(303 * kSecond, 90, voters) == 0);
    rounds.ask();
    CHECK(rounds.next(304 * kSecond, 95, voters) == 2);
}

TEST_CASE("image rounds: as long as one lacks a checkpoint the next ones wait, within bounds",
          "[checkpoint]") {
    ImageRounds rounds(1, {1000, kSecond});
    Voters voters{{1, true, 0}, {2, true, 0}, {3, false, 0, true, true}};
    rounds.ask();
    CHECK(rounds.next(kSecond, 50, voters) == 2);
    voters[0].held = voters[1].held = 50;
    CHECK(rounds.next(2 * kSecond, 50, voters) == 0);
    rounds.logged(7999);
    CHECK(rounds.next(500 * kSecond, 60, voters) == 0);
    SECTION("of the log") {
        rounds.logged(1);
        CHECK(rounds.next(501 * kSecond, 60, voters) == 2);
    }
    SECTION("of time") {
        CHECK(rounds.next(601 * kSecond, 60, voters) == 2);
    }
    SECTION("it has one") {
        voters[2].lacks = false;
        CHECK(rounds.next(501 * kSecond, 60, voters) == 2);
    }
    SECTION("unless one is asked for") {
        rounds.ask();
        CHECK(rounds.next(501 * kSecond, 60, voters) == 2);
    }
}

TEST_CASE("image rounds: a pause that is longer than the longest stays so for one that lacks one",
          "[checkpoint]") {
    ImageRounds rounds(1, {1000, 3600 * kSecond});
    const Voters voters{{1, true, 50}, {2, true, 50}, {3, false, 0, true, true}};
    rounds.ask();
    CHECK(rounds.next(kSecond, 50, voters) == 0);  // two hold one already
    rounds.logged(1000);
    CHECK(rounds.next(700 * kSecond, 60, voters) == 0);
    CHECK(rounds.next(3601 * kSecond, 60, voters) == 2);
}
