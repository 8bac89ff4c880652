// Where a serial domain's threads are kept, from what they did and how busy the cores were.
#include <catch2/catch.hpp>

#include "proxy/placement.hpp"

using crane::proxy::Placement;

namespace {

constexpr uint64_t kSecond = 1'000'000'000;
constexpr uint64_t kLook = kSecond / 2;

/// A machine with two cores, looked at every half second.
struct Machine {
    Placement placement;
    uint64_t now_ns = kSecond;

    /// One look: the domain ran for `share` of the time, and waited `crowd` times as long as it ran.
    int look(double share, double crowd, double idle_0, double idle_1, uint64_t handovers = 10'000) {
        now_ns += kLook;
        const double ran = share * kLook;
        return placement.observe(
            now_ns, {kLook, static_cast<uint64_t>(ran), static_cast<uint64_t>(ran * crowd), handovers},
            {{0, idle_0}, {1, idle_1}});
    }
};

}  // namespace

TEST_CASE("placement: only who hands over a lot is looked at") {
    Placement placement;
    CHECK_FALSE(placement.matters(kSecond, 5000));  // since when, nobody knows
    CHECK(placement.matters(2 * kSecond, 6500));
    CHECK_FALSE(placement.matters(3 * kSecond, 6600));
    CHECK_FALSE(placement.matters(4 * kSecond, 100));  // another server
    CHECK(placement.matters(5 * kSecond, 2100));
    placement.forget();
    CHECK_FALSE(placement.matters(6 * kSecond, 9000));
}

TEST_CASE("placement: a domain that is alone is kept on the idlest core") {
    Machine machine;
    CHECK(machine.look(0.9, 0.4, 0.3, 0.8) == 1);
    for (int i = 0; i < 20; ++i) CHECK(machine.look(0.9, 0.8, 0.9, 0.1) == 1);
}

TEST_CASE("placement: one that mostly waits, or has one core alone, is left to the system") {
    Machine machine;
    CHECK(machine.look(0.01, 0.1, 0.9, 0.9) == Placement::kAnywhere);
    CHECK(machine.look(0.2, 0.1, 0.9, 0.9) == Placement::kAnywhere);
    CHECK(machine.placement.observe(9 * kSecond, {kLook, kLook, 0, 9999}, {{3, 0.5}}) ==
          Placement::kAnywhere);
    CHECK(machine.look(0.9, 0.4, 0.9, 0.3) == 0);
    CHECK(machine.look(0.6, 0.4, 0.9, 0.3) == 0);
    CHECK(machine.look(0.6, 0.4, 0.9, 0.3) == 0);
    CHECK(machine.look(0.05, 0.4, 0.9, 0.3) == Placement::kAnywhere);
    CHECK(machine.look(0.9, 0.4, 0.9, 0.3) == 0);  // at once
    CHECK(machine.placement.rest());
    CHECK(machine.placement.core() == Placement::kAnywhere);
    CHECK_FALSE(machine.placement.rest());
}

TEST_CASE("placement: one that waits between its hand-overs stays on a core where they come cheaper") {
    Machine machine;
    // Spread it never runs enough to look busy; on one core it does as much for less, and then more.
    CHECK(machine.look(0.65, 0.2, 0.3, 0.4, 5000) == 1);
    CHECK(machine.look(0.6, 0.4, 0.7, 0.1, 5000) == 1);
    CHECK(machine.look(0.5, 0.4, 0.7, 0.1, 5000) == 1);
    for (int i = 0; i < 40; ++i) CHECK(machine.look(0.85, 0.5, 0.8, 0.1, 10'000) == 1);
    CHECK(machine.look(0.2, 0.5, 0.8, 0.6, 2000) == 1);
}

TEST_CASE("placement: after a try that made nothing cheaper the system places it, and the next comes later") {
    Machine machine;
    std::vector<uint64_t> tried_ns;
    int kept_looks = 0;
    for (int i = 0; i < 400; ++i) {
        const bool kept = machine.placement.core() != Placement::kAnywhere;
        kept_looks += kept;
        // Its core sleeps while it waits for its disk: each hand-over costs what it did, or there are fewer.
        const int core = machine.look(0.6, 0.2, 0.5, 0.5, kept ? (i % 2 ? 4000 : 5000) : 5000);
        if (!kept && core != Placement::kAnywhere) tried_ns.push_back(machine.now_ns);
    }
    REQUIRE(tried_ns.size() >= 5);
    CHECK(tried_ns[3] - tried_ns[2] > tried_ns[2] - tried_ns[1]);
    CHECK(kept_looks <= static_cast<int>(2 * tried_ns.size()));
    CHECK(tried_ns.size() <= 10);  // of 200 s
}

TEST_CASE("placement: one that has to wait for others moves to an idle core") {
    Machine machine;
    CHECK(machine.look(0.9, 0.4, 0.9, 0.8) == 0);
    CHECK(machine.look(0.4, 1.8, 0.0, 0.9) == 1);
    CHECK(machine.look(0.9, 0.5, 0.0, 0.2) == 1);
}

TEST_CASE(
    "placement: where every core is wanted by others the system places it, and tries come later and later") {
    Machine machine;
    std::vector<uint64_t> tried_ns;
    for (int i = 0; i < 600; ++i) {
        const int before = machine.placement.core();
        const bool kept = before != Placement::kAnywhere;
        // Alone it seems to fit; kept on a core, it waits for the others there.
        const int core = machine.look(kept ? 0.3 : 0.8, kept ? 3 : 0.9, 0.1, 0.1);
        if (!kept && core != Placement::kAnywhere) tried_ns.push_back(machine.now_ns);
        if (kept) CHECK(core == Placement::kAnywhere);
    }
    REQUIRE(tried_ns.size() >= 6);
    for (size_t i = 2; i < 5; ++i) CHECK(tried_ns[i] - tried_ns[i - 1] > tried_ns[i - 1] - tried_ns[i - 2]);
    CHECK(tried_ns.size() <= 12);  // of 300 s
}

TEST_CASE("placement: what was worth while for long is tried again soon") {
    Machine machine;
    CHECK(machine.look(0.9, 0.4, 0.9, 0.3) == 0);
    CHECK(machine.look(0.3, 3, 0.1, 0.1) == Placement::kAnywhere);
    CHECK(machine.look(0.9, 0.4, 0.9, 0.3) == Placement::kAnywhere);
    for (int i = 0; i < 30; ++i) machine.look(0.9, 0.4, 0.9, 0.3);
    CHECK(machine.placement.core() == 0);
    CHECK(machine.look(0.3, 3, 0.1, 0.1) == Placement::kAnywhere);
    for (int i = 0; i < 4; ++i) machine.look(0.9, 0.4, 0.9, 0.3);
    CHECK(machine.placement.core() == 0);
}
