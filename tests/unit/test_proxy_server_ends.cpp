#include <catch2/catch.hpp>

#include "proxy/report_words.hpp"
#include "proxy/server_ends.hpp"

using crane::proxy::decode_report;
using crane::proxy::encode_report;
using crane::proxy::ReportHead;
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

TEST_CASE("server ends: one that could not be started is the same nowhere else, and no end that others miss",
          "[proxy]") {
    ServerEnds ends;
    const ServerEnd unstarted{2, ServerEnd::kUnstarted};
    ends.heard(1, unstarted);
    ends.heard(2, unstarted);
    CHECK(!ends.majority(2, {1, 2, 3}));
    CHECK(ends.same(unstarted, {1, 2, 3}) == 2);
    CHECK(ends.same({2, 30}, {1, 2, 3}) == 0);
}

TEST_CASE("server ends: a report says whether the server could be started", "[proxy]") {
    for (const bool unstarted : {false, true}) {
        const std::string report = encode_report({7, {}, 5, unstarted}, nullptr);
        std::string_view rest = report;
        ReportHead head;
        REQUIRE(decode_report(rest, head));
        CHECK(head.ended == 5);
        CHECK(head.unstarted == unstarted);
        CHECK(rest.empty());
    }
}
