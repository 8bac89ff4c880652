#include <catch2/catch.hpp>

#include "proxy/tool/time_words.hpp"

using namespace crane::proxy;

TEST_CASE("time words: spans have two of their unit at least, and a clock that was set back none", "[tool]") {
    CHECK(span_text(-5) == "0 s");
    CHECK(span_text(119) == "119 s");
    CHECK(span_text(120) == "2 min");
    CHECK(span_text(2 * 3600) == "2 h");
    CHECK(span_text(5 * 86400 + 1) == "5 d");
}

TEST_CASE("time words: a time is told in UTC, and one that no calendar has is not", "[tool]") {
    CHECK(utc_text(0) == "1970-01-01 00:00:00 UTC");
    CHECK(utc_text(1'700'000'000) == "2023-11-14 22:13:20 UTC");
    CHECK(utc_text(INT64_MAX) == "?");
}
