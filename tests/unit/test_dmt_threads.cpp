// The scheduler under kernel threads: what they do does not depend on how long each really takes.
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "test_amount.hpp"
#include "test_dmt_program.hpp"

using namespace crane::dmt;
using testing::Dice;
using testing::FiberDomain;
using testing::RandomProgram;

namespace {

/// Real time passes, without giving the core away or with.
void delay(Dice& dice) {
    const uint64_t choice = dice.below(60);
    if (choice == 0) {
        std::this_thread::sleep_for(std::chrono::microseconds(dice.below(60)));
    } else if (choice < 10) {
        std::this_thread::yield();
    } else {
        for (uint64_t i = dice.below(300); i > 0; --i) asm volatile("" ::: "memory");
    }
}

class ThreadDomain {
  public:
    ThreadDomain(Policy policy, uint32_t quantum, uint64_t delays) : state_(new State()), delays_(delays) {
        Scheduler::format(*state_, policy, quantum, static_cast<uint32_t>(delays % 3) * 100);
        state_->check_clock = ~uint64_t{0};
        scheduler = Scheduler(state_.get(), {this, call_input, park, unpark});
    }
    Scheduler scheduler;
    std::function<void()> when_quiescent;
    State& state() { return *state_; }

    SlotId spawn(std::function<void(SlotId)> body) {
        const bool first = state_->used == 0;
        const SlotId slot = scheduler.create(0, first);
        const std::lock_guard lock(mutex_);
        threads_.emplace_back([this, slot, body = std::move(body)] {
            dice() = Dice{delays_ * 1000 + slot};
            scheduler.start(slot);
            body(slot);
            scheduler.get_turn(slot);
            scheduler.finish(slot);
        });
        return slot;
    }
    /// Waits for the end of all threads, those that they start too.
    void join() {
        for (size_t i = 0;; ++i) {
            std::unique_lock lock(mutex_);
            if (i == threads_.size()) return;
            std::thread thread = std::move(threads_[i]);
            lock.unlock();
            thread.join();
        }
    }
    static void compute() { delay(dice()); }

  private:
    static Dice& dice() {
        thread_local Dice own{0};
        return own;
    }
    static void call_input(void* context, bool quiescent) {
        if (quiescent) static_cast<ThreadDomain*>(context)->when_quiescent();
    }
    static void park(void* context, Slot& slot) {
        delay(dice());
        for (uint32_t i = static_cast<ThreadDomain*>(context)->state_->spin; i > 0; --i) {
            if (slot.wake == kGranted) return;
        }
        while (slot.wake != kGranted) {
            uint32_t expected = kNotGranted;
            if (slot.wake.compare_exchange_strong(expected, kAsleep) || expected == kAsleep)
                slot.wake.wait(kAsleep);
        }
    }
    static void unpark(void*, Slot& slot) { slot.wake.notify_all(); }

    std::unique_ptr<State> state_;
    uint64_t delays_;
    std::mutex mutex_;
    std::vector<std::thread> threads_;
};

struct Outcome {
    uint64_t clock, hash, now_ns, seen;
    bool operator==(const Outcome&) const = default;
};

/// Nobody else will come: time passes to the next deadline, or all waits end.
template <class Domain>
std::function<void()> driver(Domain& domain, RandomProgram& program) {
    return [&] {
        const uint64_t deadline = domain.scheduler.earliest_deadline_ns();
        if (deadline != kNoDeadline) {
            domain.scheduler.advance_time(deadline);
        } else {
            program.wake_all();
        }
    };
}

Outcome with_threads(uint64_t seed, Policy policy, uint32_t quantum, uint64_t delays, uint64_t disturb) {
    ThreadDomain domain(policy, quantum, delays);
    domain.state().disturb = disturb;
    RandomProgram program({domain.scheduler,
                           [&](auto body) { return domain.spawn(std::move(body)); },
                           ThreadDomain::compute,
                           {}},
                          seed, 60);
    domain.when_quiescent = driver(domain, program);
    domain.spawn([&](SlotId me) { program.main(me); });
    domain.join();
    const State& s = domain.state();
    return {s.clock, s.hash, s.now_ns, program.seen()};
}

Outcome with_fibers(uint64_t seed, Policy policy, uint32_t quantum, uint64_t interleaving) {
    FiberDomain domain(policy, quantum, interleaving);
    RandomProgram program({domain.scheduler,
                           [&](auto body) { return domain.spawn(std::move(body)); },
                           [&] { domain.compute(); },
                           {}},
                          seed, 60);
    const auto quiescent = driver(domain, program);
    domain.input = [&](bool) { quiescent(); };
    domain.spawn([&](SlotId me) { program.main(me); });
    domain.run();
    const State& s = domain.state();
    return {s.clock, s.hash, s.now_ns, program.seen()};
}

}  // namespace

TEST_CASE("scheduler: kernel threads with random delays make the schedule that stepping makes", "[dmt]") {
    uint64_t last_hash = 0;
    for (uint64_t seed = 1; seed <= crane::test::rounds(6, 24); ++seed) {
        const Policy policy = seed % 2 ? Policy::kSerial : Policy::kParallel;
        const uint32_t quantum = seed % 3 ? 1 : 5;
        const Outcome expected = with_fibers(seed, policy, quantum, 1);
        CAPTURE(seed, quantum, seed % 2);
        CHECK(with_threads(seed, policy, quantum, 2 * seed, 0) == expected);
        CHECK(with_threads(seed, policy, quantum, 2 * seed + 1, 0x1234'5678 + seed) == expected);
        CHECK(expected.clock > 60);
        CHECK(expected.hash != last_hash);  // it is not the same program every time
        last_hash = expected.hash;
    }
}

TEST_CASE("scheduler: every interleaving of a parallel program is one schedule", "[dmt]") {
    for (uint64_t seed = 1; seed <= crane::test::rounds(24, 200); ++seed) {
        const uint32_t quantum = 1 + seed % 4;
        const Outcome expected = with_fibers(seed, Policy::kParallel, quantum, 1);
        for (uint64_t interleaving = 2; interleaving <= 5; ++interleaving) {
            CAPTURE(seed, interleaving);
            REQUIRE(with_fibers(seed, Policy::kParallel, quantum, interleaving) == expected);
        }
    }
}

TEST_CASE("scheduler: under serial, what threads share without a lock is never torn", "[dmt]") {
    ThreadDomain domain(Policy::kSerial, 1, 3);
    uint64_t counter = 0;
    constexpr uint64_t kRounds = 200;
    const auto body = [&](SlotId me) {
        for (uint64_t i = 0; i < kRounds; ++i) {
            domain.scheduler.get_turn(me);
            domain.scheduler.put_turn(me, 1);
            const uint64_t read = counter;  // outside any operation
            ThreadDomain::compute();
            counter = read + 1;
        }
    };
    domain.spawn([&](SlotId me) {
        domain.scheduler.get_turn(me);
        for (int i = 0; i < 3; ++i) domain.spawn(body);
        domain.scheduler.put_turn(me, 1);
        body(me);
    });
    domain.join();
    CHECK(counter == 4 * kRounds);
    CHECK(domain.state().used == 0);
}
