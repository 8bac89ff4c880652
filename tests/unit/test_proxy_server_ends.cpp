#include <catch2/catch.hpp>

#include "proxy/server_ends.hpp"

using crane::proxy::ServerEnd;
using crane::proxy::ServerEnds;

TEST_CASE("server ends: only one server at one place makes a majority", "[proxy]") {
    ServerEnds ends;
    ends.heard(1, {2, 30});
    CHECK(!ends.majority(2, {1, 2, 3}));
    ends.heard(2, {2, 31});
    CHECK(!ends.majority(2, {1, 2, 3}));
    ends.heard(2, {1, 30});
    CHECK(!ends.majority(2, {1, 2, 3}));
    ends.heard(2, {2, 30});
    CHECK(ends.majority(2, {1, 2, 3}) == 30);
    CHECK(!ends.majority(1, {1, 2, 3}));
    CHECK(!ends.majority(2, {1, 2, 3, 4}));
    CHECK(!ends.majority(2, {1, 3, 4}));
    CHECK(ends.same({2, 30}, {1, 2, 3}) == 2);
    CHECK(ends.same({2, 31}, {1, 2, 3}) == 0);
    ends.heard(1, {});  // made anew, it runs
    CHECK(!ends.majority(2, {1, 2, 3}));
}

TEST_CASE("server ends: what the leader knows takes the place of what was known", "[proxy]") {
    ServerEnds leader, backup;
    leader.heard(2, {1, 9});
    backup.heard(3, {1, 9});
    REQUIRE(backup.follow(3, leader.word(1, {1, 9})));
    CHECK(backup.same({1, 9}, {1}) == 1);
    CHECK(backup.same({1, 9}, {2}) == 1);
    CHECK(backup.same({1, 9}, {3}) == 0);
    CHECK(backup.word(3, {}) == leader.word(1, {1, 9}));
    CHECK(leader.word(1, {}) != leader.word(1, {1, 9}));
    CHECK_FALSE(backup.follow(3, "short"));
    CHECK_FALSE(backup.follow(3, std::string(65 * 24, 'x')));
    CHECK(backup.majority(1, {1, 2, 3}) == 9);
    REQUIRE(backup.follow(3, ""));
    CHECK(backup.same({1, 9}, {1, 2, 3}) == 0);
    // Made anew, it runs, whatever the leader has heard before.
    REQUIRE(backup.follow(2, leader.word(1, {1, 9})));
    CHECK(backup.same({1, 9}, {1, 2, 3}) == 1);
    CHECK(!backup.majority(1, {1, 2, 3}));
}
