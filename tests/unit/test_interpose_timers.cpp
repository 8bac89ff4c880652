// timerfd's table, against a plain list of moments.
#include <catch2/catch.hpp>
#include <map>

#include "interpose/core/timers.hpp"
#include "test_amount.hpp"
#include "test_interpose_domain.hpp"

using namespace crane::interpose;
using namespace crane::interpose::testing;

namespace {

itimerspec in_ns(uint64_t value, uint64_t interval = 0) {
    return {to_timespec(interval), to_timespec(value)};
}

void set_absolute(uint32_t timer, uint64_t at_ns, uint64_t interval_ns = 0) {
    const itimerspec value = in_ns(at_ns, interval_ns);
    REQUIRE(timer_set(timer, TFD_TIMER_ABSTIME, &value, nullptr) == 0);
}

uint64_t left_ns(uint32_t timer) {
    itimerspec value;
    timer_get(timer, &value);
    return to_ns(value.it_value);
}

/// When each timer falls due, one moment an expiration; a periodic one has its next moments ahead of time.
struct Model {
    std::multimap<uint64_t, uint32_t> due;
    std::map<uint32_t, uint64_t> last, interval;

    void clear(uint32_t timer) {
        std::erase_if(due, [&](const auto& entry) { return entry.second == timer; });
        interval[timer] = 0;
    }
    void set(uint32_t timer, uint64_t at, uint64_t every) {
        clear(timer);
        due.insert({at, timer});
        last[timer] = at;
        interval[timer] = every;
    }
    void pass(uint64_t now) {
        for (auto& [timer, at] : last) {
            while (interval[timer] != 0 && at <= now) due.insert({at += interval[timer], timer});
        }
    }
    uint64_t take(uint32_t timer, uint64_t now) {
        return std::erase_if(due,
                             [&](const auto& entry) { return entry.second == timer && entry.first <= now; });
    }
    uint64_t next(uint32_t timer) const {
        for (const auto& [at, whose] : due) {
            if (whose == timer) return at;
        }
        return 0;
    }
};

}  // namespace

TEST_CASE("timers: random settings agree with a list of moments", "[interpose]") {
    const uint64_t seed = GENERATE(1, 2, 3);
    CAPTURE(seed);
    PlainDomain domain;
    Dice dice{seed};
    Model model;
    std::vector<uint32_t> timers;
    for (int i = 0; i < 6; ++i) timers.push_back(new_timer(CLOCK_REALTIME, true));
    uint64_t taken = 0;
    const uint64_t steps = crane::test::rounds(5000, 100'000);
    for (uint64_t step = 0; step < steps; ++step) {
        const uint32_t timer = timers[dice.below(timers.size())];
        switch (dice.below(8)) {
            case 0: {
                const uint64_t at = domain.now_ns() + 1 + dice.below(1'000'000);
                const uint64_t every = dice.below(2) ? 1000 + dice.below(200'000) : 0;
                set_absolute(timer, at, every);
                model.set(timer, at, every);
                break;
            }
            case 1:
                if (dice.below(4)) break;
                set_absolute(timer, 0);
                model.clear(timer);
                break;
            case 2:
            case 3:
                domain.pass_time(dice.below(300'000));
                model.pass(domain.now_ns());
                break;
            default: {
                const uint64_t expected = model.take(timer, domain.now_ns());
                REQUIRE(timer_due(timer) == (expected > 0));
                REQUIRE(timer_take(timer) == expected);
                taken += expected;
            }
        }
        if (!timer_due(timer)) REQUIRE(timer_deadline(timer) == model.next(timer));
    }
    CHECK(taken > steps / 20);
}

TEST_CASE("timers: the lowest free place is taken, and a full table says so", "[interpose]") {
    PlainDomain domain;
    for (uint32_t i = 0; i < kMaxTimers; ++i) REQUIRE(new_timer(CLOCK_MONOTONIC, false) == i);
    CHECK(new_timer(CLOCK_MONOTONIC, false) == kNone);
    release_timer(77);
    release_timer(12);
    CHECK(new_timer(CLOCK_REALTIME, true) == 12);
    CHECK(new_timer(CLOCK_REALTIME, true) == 77);
    CHECK(new_timer(CLOCK_REALTIME, true) == kNone);
}

TEST_CASE("timers: a place used again keeps nothing of the timer before", "[interpose]") {
    PlainDomain domain;
    const uint32_t timer = new_timer(CLOCK_REALTIME, true);
    set_absolute(timer, domain.now_ns() + 5, 7);
    ++domain.state().timers[timer].references;
    release_timer(timer);
    CHECK(timer_deadline(timer) != 0);  // one descriptor is left
    release_timer(timer);
    REQUIRE(new_timer(CLOCK_REALTIME, true) == timer);
    domain.pass_time(1000);
    CHECK_FALSE(timer_due(timer));
    CHECK(timer_take(timer) == 0);
    CHECK(left_ns(timer) == 0);
}

TEST_CASE("timers: what is left is told as the kernel tells it", "[interpose]") {
    PlainDomain domain;
    const uint32_t timer = new_timer(CLOCK_MONOTONIC, true);
    itimerspec value = in_ns(1'000'000, 250'000), old = in_ns(9, 9);
    REQUIRE(timer_set(timer, 0, &value, &old) == 0);
    CHECK(to_ns(old.it_value) == 0);
    CHECK(left_ns(timer) <= 1'000'000);
    CHECK(left_ns(timer) > 999'000);
    domain.pass_time(1'100'000);
    CHECK(timer_take(timer) == 1);
    CHECK(left_ns(timer) <= 250'000);
    // Over and over due, not read: what is left until the next round.
    domain.pass_time(3 * 250'000);
    CHECK(left_ns(timer) > 0);
    CHECK(left_ns(timer) <= 250'000);
    value = in_ns(5, 0);
    value.it_value.tv_nsec = 1'000'000'000;
    CHECK(timer_set(timer, 0, &value, nullptr) == -EINVAL);
    value = in_ns(0, 123);
    REQUIRE(timer_set(timer, 0, &value, &old) == 0);
    CHECK(to_ns(old.it_interval) == 250'000);
    CHECK(timer_deadline(timer) == 0);
}

TEST_CASE("timers: an absolute monotonic time is meant on the cluster's clock", "[interpose]") {
    PlainDomain domain;
    const uint32_t timer = new_timer(CLOCK_MONOTONIC, true);
    const uint64_t monotonic = domain.now_ns() - domain.state().monotonic_offset_ns;
    CHECK(monotonic == kUptimeAtStartNs);
    set_absolute(timer, monotonic + 500);
    CHECK(timer_deadline(timer) == domain.now_ns() + 500);
    set_absolute(timer, 1);  // long past: due at once
    CHECK(timer_due(timer));
}
