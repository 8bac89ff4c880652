// The gate: a schedule that is told to stand at a place has done all before it and nothing behind it.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "test_dmt_fibers.hpp"

using namespace crane::dmt;
using crane::Place;
using testing::Dice;
using testing::FiberDomain;

namespace {

constexpr uint32_t kOp = 7;
constexpr uint64_t kKeys = 3;

struct Effect {
    Place at;
    SlotId who;
    char what;
    bool operator==(const Effect&) const = default;
};

/// Some threads that operate, wait, wake each other and take steps.
struct Run {
    FiberDomain domain;
    std::vector<Effect> effects;
    uint64_t programs;

    Run(Policy policy, uint64_t seed, uint64_t interleaving)
        : domain(policy, 1 + seed % 4, interleaving), programs(seed) {}

    void note(SlotId me, char what) { effects.push_back({domain.scheduler.place(), me, what}); }

    void body(SlotId me) {
        Dice dice{programs * 1000 + me};
        Scheduler& s = domain.scheduler;
        for (int i = 0; i < 40; ++i) {
            const uint64_t key = 1 + dice.below(kKeys);
            switch (dice.below(4)) {
                case 0:
                    s.get_turn(me);
                    note(me, 'o');
                    s.put_turn(me, kOp);
                    break;
                case 1:
                    s.get_turn(me);
                    note(me, 'w');
                    s.signal(key, 1);
                    s.put_turn(me, kOp);
                    break;
                case 2:
                    s.get_turn(me);
                    note(me, 'a');
                    s.wait(me, kOp, key, 0, domain.state().now_ns + 1000 + dice.below(500), false);
                    note(me, 'b');
                    s.put_turn(me, kOp);
                    break;
                default:
                    if (domain.state().policy == Policy::kParallel) break;
                    const uint32_t before = s.begin_step();
                    note(me, 's');
                    s.end_step(before);
            }
            domain.compute();
        }
    }
    void run(Place told) {
        domain.gate.steps = told.steps;
        domain.gate.clock = told.clock;
        domain.input = [this](bool quiescent) {
            if (quiescent) domain.scheduler.advance_time(domain.scheduler.earliest_deadline_ns());
        };
        domain.spawn([this](SlotId me) {
            domain.scheduler.get_turn(me);
            for (int i = 0; i < 3; ++i) domain.spawn([this](SlotId other) { body(other); });
            domain.scheduler.put_turn(me, kOp);
            body(me);
        });
        domain.run();
    }
};

}  // namespace

TEST_CASE("gate: everything before the place is done, and nothing behind it", "[dmt]") {
    const Policy policy = GENERATE(Policy::kSerial, Policy::kParallel);
    const uint64_t seed = GENERATE(range(1, 9));
    Run whole(policy, seed, 1);
    whole.run({});
    REQUIRE(whole.effects.size() > 60);
    REQUIRE(whole.domain.gate.at_clock == whole.domain.state().clock);
    for (size_t cut = 1; cut < whole.effects.size(); cut += 7) {
        const Place told = whole.effects[cut].at;
        Run held(policy, seed, 100 + cut);
        held.run(told);
        CAPTURE(seed, cut, told.clock, told.steps);
        REQUIRE(held.domain.gate.stopped == 1);
        CHECK(held.domain.scheduler.place() == told);
        CHECK(Place{held.domain.gate.at_clock, held.domain.gate.at_steps} == told);
        // A step shows its place with itself counted.
        const size_t done = whole.effects[cut].what == 's' ? cut + 1 : cut;
        REQUIRE(held.effects.size() <= done);
        std::vector<Effect> before;
        for (const Effect& effect : whole.effects)
            if (effect.at < told || (effect.what == 's' && effect.at == told)) before.push_back(effect);
        CHECK(held.effects == before);
    }
}

TEST_CASE("gate: between operations nothing is said to be under way", "[dmt]") {
    FiberDomain domain(Policy::kSerial, 1);
    Scheduler& s = domain.scheduler;
    std::string seen;
    const auto look = [&] { seen += domain.gate.working ? '1' : '0'; };
    domain.spawn([&](SlotId me) {
        look();
        s.get_turn(me);
        look();
        domain.spawn([&](SlotId other) {
            look();
            s.get_turn(other);
            s.signal(5, 1);
            look();
            const uint32_t before = s.begin_step();  // within an operation
            s.end_step(before);
            look();
            s.put_turn(other, kOp);
            look();
        });
        s.wait(me, kOp, 5, 0, kNoDeadline, false);
        look();
        s.put_turn(me, kOp);
        look();
        const uint32_t before = s.begin_step();
        look();
        s.end_step(before);
        look();
    });
    domain.run();
    CHECK(seen ==
          "01"
          "0110"
          "1010");
}
