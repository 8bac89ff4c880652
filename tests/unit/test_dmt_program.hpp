// A program drawn from a seed, for domains of fibers and of kernel threads: its threads operate, compute,
// wait for messages, send them, set deadlines, read the clock, start others and end.
//
// What a thread does next depends on what it has seen, so that a difference anywhere shows in the schedule's
// hash.
#pragma once

#include <array>
#include <functional>

#include "test_dmt_fibers.hpp"

namespace crane::dmt::testing {

class RandomProgram {
  public:
    /// What differs between fibers and kernel threads.
    struct World {
        Scheduler& scheduler;
        std::function<SlotId(std::function<void(SlotId)>)> spawn;
        std::function<void()> compute;
        std::function<void(SlotId)> discard;  ///< empty: not possible
    };

    RandomProgram(World world, uint64_t seed, uint32_t steps)
        : world_(std::move(world)), seed_(seed), steps_(steps) {}

    static constexpr uint32_t kBoxes = 6, kMostThreads = 10, kMostStarted = 30;

    /// The first thread's body.
    void main(SlotId me) {
        Scheduler& s = world_.scheduler;
        s.get_turn(me);
        for (uint64_t n = 1 + seed_ % 4; n > 0; --n) start_thread();
        s.put_turn(me, 1);
        thread(me, mix(seed_, 0));
    }
    /// A message from outside. Caller has the turn, or nobody runs.
    void deliver(uint32_t box, uint64_t value) {
        Box& b = boxes_[box % kBoxes];
        ++b.count;
        b.value = mix(b.value, value);
        world_.scheduler.signal(key(box % kBoxes), 1);
        world_.scheduler.signal_set(uint64_t{1} << (box % kBoxes));
    }
    void wake_all() {
        for (uint32_t i = 0; i < kBoxes; ++i) world_.scheduler.signal(key(i), ~uint32_t{0});
    }
    /// Of everything that threads saw, in order.
    uint64_t seen() const { return seen_; }

  private:
    struct Box {
        uint64_t count, value;
    };
    static uint64_t key(uint32_t box) { return 100 + box; }

    void start_thread() {
        if (world_.scheduler.state().used >= kMostThreads || threads_started_ == kMostStarted) return;
        const uint64_t seed = mix(seed_, ++threads_started_);
        world_.spawn([this, seed](SlotId me) { thread(me, seed); });
    }
    void see(Dice& dice, uint64_t value) {
        seen_ = mix(seen_, value);
        dice.state = mix(dice.state, value);
    }
    void thread(SlotId me, uint64_t seed) {
        Dice dice{seed};
        for (uint32_t step = 0; step < steps_; ++step) {
            for (uint64_t n = dice.below(4); n > 0; --n) world_.compute();
            if (dice.below(4) == 0) {
                dice.state = mix(dice.state, world_.scheduler.read_clock(me));
            }
            world_.scheduler.get_turn(me);
            const bool goes_on = operate(me, dice);
            if (!goes_on) return;
        }
        world_.scheduler.get_turn(me);
    }
    /// One operation, turn in hand. False: the thread ends, with the turn.
    bool operate(SlotId me, Dice& dice) {
        Scheduler& s = world_.scheduler;
        const auto box = static_cast<uint32_t>(dice.below(kBoxes));
        const auto operation = static_cast<uint32_t>(2 + dice.below(20));
        switch (dice.below(16)) {
            case 0:
            case 1:
            case 2:
            case 3:
            case 4:
                receive(me, dice, box);
                break;
            case 5:
            case 6:
                ++boxes_[box].count;
                s.signal(key(box), 1 + static_cast<uint32_t>(dice.below(3)));
                break;
            case 7:
                see(dice,
                    s.requeue(key(box), key((box + 1) % kBoxes), 1, static_cast<uint32_t>(dice.below(4))));
                break;
            case 8:
                see(dice, s.interrupt(static_cast<SlotId>(dice.below(s.state().high_water))));
                break;
            case 9:
                s.yield(me);
                break;
            case 10:
                start_thread();
                break;
            case 11:
                if (s.state().used > 2 && dice.below(3) == 0) return false;
                break;
            case 12:
                discard_another(me, dice);
                break;
            case 13:
                work_beside(me, dice);
                break;
            default:
                see(dice, s.read_clock(me));
        }
        s.put_turn(me, operation);
        return true;
    }
    void receive(SlotId me, Dice& dice, uint32_t box) {
        Scheduler& s = world_.scheduler;
        const uint64_t mask = dice.below(2) ? 0 : dice.below(1 << kBoxes);
        const bool interruptible = dice.below(2);
        for (int round = 0; boxes_[box].count == 0 && round < 3; ++round) {
            uint64_t deadline = kNoDeadline;
            if (dice.below(2)) deadline = s.read_clock(me) + dice.below(100'000);
            see(dice, static_cast<uint64_t>(s.wait(me, 2, key(box), mask, deadline, interruptible)));
        }
        if (boxes_[box].count == 0) return;
        --boxes_[box].count;
        see(dice, boxes_[box].value);
    }
    void work_beside(SlotId me, Dice& dice) {
        if (world_.scheduler.state().policy != Policy::kSerial) return;
        struct Work {
            World& world;
            uint64_t length;
        } work{world_, dice.below(30)};
        world_.scheduler.beside(
            me, 3,
            [](void* what) {
                auto& w = *static_cast<Work*>(what);
                for (uint64_t n = w.length; n > 0; --n) w.world.compute();
            },
            &work);
    }
    void discard_another(SlotId me, Dice& dice) {
        const auto victim = static_cast<SlotId>(dice.below(world_.scheduler.state().high_water));
        if (!world_.discard || victim == me || dice.below(4) || world_.scheduler.state().used <= 2) return;
        world_.discard(victim);
    }

    World world_;
    uint64_t seed_;
    uint32_t steps_;
    uint64_t threads_started_ = 0, seen_ = 0;
    std::array<Box, kBoxes> boxes_{};
};

}  // namespace crane::dmt::testing
