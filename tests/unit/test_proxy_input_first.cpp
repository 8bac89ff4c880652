#include <catch2/catch.hpp>

#include "proxy/input_first.hpp"

using crane::proxy::InputFirst;

namespace {
constexpr uint64_t kMs = 1'000'000, kStartNs = 5000 * kMs;
}

TEST_CASE("input first: who is not late looks no more than before", "[proxy]") {
    InputFirst first;
    for (uint64_t late : {uint64_t{0}, kMs, InputFirst::kLateNs - 1})
        CHECK_FALSE(first.holds(kStartNs, late, 0));
}

TEST_CASE("input first: it looks until a look brings nothing more", "[proxy]") {
    InputFirst first;
    const uint64_t late = 100 * kMs;
    CHECK(first.holds(kStartNs, late, 0));
    CHECK(first.holds(kStartNs + 1000, late, 32));  // as many as one look of the kernel's takes
    CHECK(first.holds(kStartNs + 2000, late, 64));
    CHECK(first.holds(kStartNs + 3000, late, 64));
    CHECK_FALSE(first.holds(kStartNs + 4000, late, 64));
    CHECK_FALSE(first.holds(kStartNs + 5000, late, 64));  // as long as the log cannot take it
    first.proposed();
    CHECK_FALSE(first.holds(kStartNs + 6000, kMs, 0));
    CHECK(first.holds(kStartNs + 7000, late, 0));  // late once more
}

TEST_CASE("input first: those who come by other replicas are waited for after a long time", "[proxy]") {
    InputFirst first;
    CHECK(first.holds(kStartNs, 6000 * kMs, 1));
    for (uint64_t now = kStartNs; now < kStartNs + InputFirst::kForOthersNs; now += kMs / 2)
        CHECK(first.holds(now, 6000 * kMs, 1));
    CHECK_FALSE(first.holds(kStartNs + InputFirst::kForOthersNs, 6000 * kMs, 1));
}

TEST_CASE("input first: looking has an end, whatever comes", "[proxy]") {
    InputFirst first;
    uint64_t calls = 0;
    CHECK(first.holds(kStartNs, 100 * kMs, calls));
    for (uint64_t now = kStartNs; now < kStartNs + InputFirst::kMostNs; now += kMs)
        CHECK(first.holds(now, 100 * kMs, ++calls));
    CHECK_FALSE(first.holds(kStartNs + InputFirst::kMostNs, 100 * kMs, ++calls));
}

TEST_CASE("input first: a standstill behind one in which nothing was proposed is looked at anew", "[proxy]") {
    InputFirst first;
    const uint64_t late = 100 * kMs;
    for (int look = 0; look < 3; ++look) first.holds(kStartNs, late, 0);
    REQUIRE_FALSE(first.holds(kStartNs, late, 0));  // the server computes: there is nothing to propose
    const uint64_t later = kStartNs + 3000 * kMs;
    CHECK(first.holds(later, late + 3000 * kMs, 0));
    CHECK(first.holds(later + kMs, late + 3000 * kMs, 32));
}

TEST_CASE("input first: looks that take long have an end, too", "[proxy]") {
    InputFirst first;
    uint64_t now = kStartNs, calls = 0;
    int looks = 0;
    while (first.holds(now += 2 * InputFirst::kLateNs, 1000 * kMs, ++calls)) REQUIRE(++looks < 20);
}
