// The admission rule: T(k) depends on the log and the schedule, never on when a batch arrived.
//
// A domain with the real scheduler and a random program admits a random log on three replicas, whose
// deliveries are delayed, split and bunched at random. Without bubbles the same must be seen to differ, or
// the check checks nothing.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <string>
#include <vector>

#include "test_dmt_program.hpp"
#include "timebubble/admission.hpp"
#include "timebubble/batch.hpp"

using namespace crane::timebubble;
using crane::dmt::SlotId;
using crane::dmt::State;
using crane::dmt::testing::broken_invariant;
using crane::dmt::testing::Dice;
using crane::dmt::testing::FiberDomain;
using crane::dmt::testing::RandomProgram;
using DomainPolicy = crane::dmt::Policy;

namespace {

using Log = std::vector<std::string>;  ///< encoded batches

Log random_log(uint64_t seed) {
    Dice dice{seed};
    Log log;
    uint64_t timestamp_ns = 1'000'000;
    const uint64_t most_clocks = 1 + dice.below(60);
    for (uint64_t k = 10 + dice.below(20); k > 0; --k) {
        BatchEncoder encoder;
        const uint64_t calls = dice.below(3) ? dice.below(4) : 0;  // a third are bubbles
        for (uint64_t i = 0; i < calls; ++i) {
            const uint64_t value = dice.roll();
            encoder.add(CallKind::kSend, dice.below(RandomProgram::kBoxes),
                        {reinterpret_cast<const char*>(&value), sizeof(value)});
        }
        timestamp_ns += dice.below(4) ? dice.below(3000) : dice.below(200'000);
        log.push_back(encoder.finish(timestamp_ns, dice.below(most_clocks + 1)));
    }
    return log;
}

struct Admission {
    uint64_t clock;
    uint64_t hash;
    bool quiescent;
    bool operator==(const Admission&) const = default;
};

struct Outcome {
    std::vector<Admission> admissions;  ///< T(k), and the schedule until then
    uint64_t clock, hash, now_ns, seen;
    bool operator==(const Outcome&) const = default;
};

class Replica {
  public:
    Replica(const Log& log, uint64_t seed, uint64_t delivery, bool bubbles)
        : log_(log),
          domain_(seed % 2 ? DomainPolicy::kSerial : DomainPolicy::kParallel, 1 + seed % 3, delivery),
          program_({domain_.scheduler, [this](auto body) { return domain_.spawn(std::move(body)); },
                    [this] { domain_.compute(); }, [this](SlotId victim) { domain_.discard(victim); }},
                   seed, ~uint32_t{0}),
          network_{delivery},
          style_(network_.below(4)) {
        admission_.bubbles_enabled = bubbles;
        domain_.state().check_clock = 0;
        domain_.input = [this](bool quiescent) { on_input(quiescent); };
    }

    Outcome run(bool check_state = false) {
        domain_.spawn([this](SlotId me) { program_.main(me); });
        domain_.run([&] {
            const char* broken = check_state ? broken_invariant(domain_.state()) : nullptr;
            if (broken) FAIL(broken);
        });
        const State& s = domain_.state();
        return {admissions_, s.clock, s.hash, s.now_ns, program_.seen()};
    }

  private:
    /// Only a domain without bubbles gets so far: it does not wait for a batch that is not there.
    static constexpr uint64_t kEndClock = 2000;

    /// Some more of the log may have come since the last look.
    void look_for_deliveries() {
        const uint64_t left = log_.size() - arrived_;
        switch (style_) {
            case 0:  // all at once, before anybody asks
                arrived_ += left;
                break;
            case 1:  // never before it is waited for
                break;
            case 2:  // one by one
                if (left && network_.below(30) == 0) ++arrived_;
                break;
            default:  // long silence, then many
                if (network_.below(100) == 0) arrived_ += std::min(left, 1 + network_.below(8));
        }
    }
    void wait_for_delivery() {
        if (arrived_ == log_.size()) domain_.halt();
        arrived_ += style_ == 1 ? 1 : 1 + network_.below(std::min<uint64_t>(4, log_.size() - arrived_));
    }

    void admit(bool quiescent) {
        const std::string& bytes = log_[admissions_.size()];
        State& s = domain_.state();
        BatchDecoder batch;
        if (!batch.open(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size())) domain_.halt();
        AdmissionRule(admission_).admitted(admissions_.size(), s.clock, batch.header().grant_clocks);
        admissions_.push_back({s.clock, s.hash, quiescent});
        domain_.scheduler.advance_time(batch.header().timestamp_ns);
        for (Call call; batch.next(call);) {
            uint64_t value;
            memcpy(&value, call.payload.data(), sizeof(value));
            program_.deliver(static_cast<uint32_t>(call.connection), value);
        }
    }

    /// As the shim's hook does it (interpose/core/runtime.cpp).
    void on_input(bool quiescent) {
        AdmissionRule rule(admission_);
        State& s = domain_.state();
        if (!admission_.bubbles_enabled && s.clock >= kEndClock) domain_.halt();
        for (;;) {
            look_for_deliveries();
            switch (rule.next(s.clock, quiescent, admissions_.size() < arrived_)) {
                case AdmissionStep::kAdmit:
                    admit(quiescent);
                    if (quiescent) {
                        s.check_clock = rule.check_clock(s.clock);
                        return;
                    }
                    break;
                case AdmissionStep::kWait:
                    wait_for_delivery();
                    break;
                case AdmissionStep::kRun:
                    if (rule.should_ask(s.clock)) admission_.asked = 1;
                    s.check_clock = rule.check_clock(s.clock);
                    return;
            }
        }
    }

    const Log& log_;
    FiberDomain domain_;
    RandomProgram program_;
    Dice network_;
    uint64_t style_;
    AdmissionState admission_{};
    size_t arrived_ = 0;
    std::vector<Admission> admissions_;
};

/// The rule itself, against what was recorded: T(k+1) is T(k) + N(k), or a quiescent moment before.
std::string breach_of_rule(const Log& log, const std::vector<Admission>& admissions) {
    for (size_t k = 0; k + 1 < admissions.size(); ++k) {
        BatchDecoder batch;
        batch.open(reinterpret_cast<const uint8_t*>(log[k].data()), log[k].size());
        const uint64_t due = admissions[k].clock + std::max<uint64_t>(1, batch.header().grant_clocks);
        const Admission& next = admissions[k + 1];
        if (next.quiescent ? next.clock > due : next.clock != due) return "batch " + std::to_string(k + 1);
    }
    return "";
}

}  // namespace

TEST_CASE("admission: replicas with different deliveries make the same schedule", "[timebubble]") {
    uint64_t by_grant = 0, by_quiescence = 0;
    for (uint64_t seed = 1; seed <= 300; ++seed) {
        CAPTURE(seed);
        const Log log = random_log(seed);
        const Outcome first = Replica(log, seed, 3 * seed, true).run(seed <= 20);
        REQUIRE(first.admissions.size() == log.size());
        REQUIRE(breach_of_rule(log, first.admissions) == "");
        for (const uint64_t delivery : {3 * seed + 1, 3 * seed + 2}) {
            const Outcome other = Replica(log, seed, delivery, true).run();
            REQUIRE(other.admissions == first.admissions);
            REQUIRE(other == first);
        }
        for (const Admission& admission : first.admissions)
            ++(admission.quiescent ? by_quiescence : by_grant);
    }
    // Both halves of the rule were at work.
    CHECK(by_grant > 1000);
    CHECK(by_quiescence > 1000);
}

TEST_CASE("admission: without bubbles the same replicas differ", "[timebubble]") {
    int admitted_differently = 0, scheduled_differently = 0;
    for (uint64_t seed = 1; seed <= 20; ++seed) {
        const Log log = random_log(seed);
        const Outcome first = Replica(log, seed, 3 * seed, false).run();
        for (const uint64_t delivery : {3 * seed + 1, 3 * seed + 2}) {
            const Outcome other = Replica(log, seed, delivery, false).run();
            admitted_differently += other.admissions != first.admissions;
            scheduled_differently += other.hash != first.hash && other.seen != first.seen;
        }
    }
    CHECK(admitted_differently > 10);
    CHECK(scheduled_differently > 10);
}

TEST_CASE("admission rule: each case", "[timebubble]") {
    AdmissionState state{};
    state.bubbles_enabled = 1;
    AdmissionRule rule(state);
    rule.admitted(3, 1000, 100);
    CHECK(state.admitted_index == 3);
    CHECK(state.grant_end == 1100);
    CHECK(rule.next(1000, false, true) == AdmissionStep::kRun);  // here, and not yet due
    CHECK(rule.next(1099, false, true) == AdmissionStep::kRun);
    CHECK(rule.next(1099, false, false) == AdmissionStep::kRun);
    CHECK(rule.next(1100, false, true) == AdmissionStep::kAdmit);
    CHECK(rule.next(1100, false, false) == AdmissionStep::kWait);
    CHECK(rule.next(1001, true, true) == AdmissionStep::kAdmit);
    CHECK(rule.next(1001, true, false) == AdmissionStep::kWait);
    // The leader is asked once, with a quarter of the grant left.
    CHECK(rule.check_clock(1000) == 1075);
    CHECK_FALSE(rule.should_ask(1074));
    CHECK(rule.should_ask(1075));
    state.asked = 1;
    CHECK_FALSE(rule.should_ask(1075));
    CHECK(rule.check_clock(1075) == 1100);
    rule.admitted(4, 1100, 0);  // a grant of nothing would admit for ever at one clock
    CHECK(state.grant_end == 1101);
    CHECK(state.asked == 0);
    CHECK(rule.next(1100, false, true) == AdmissionStep::kRun);

    state.bubbles_enabled = 0;
    CHECK(rule.next(1100, false, true) == AdmissionStep::kAdmit);
    CHECK(rule.next(1100, false, false) == AdmissionStep::kRun);
    CHECK(rule.next(1100, true, false) == AdmissionStep::kWait);
    CHECK(rule.check_clock(1100) == 1101);
    CHECK_FALSE(rule.should_ask(5000));
}
