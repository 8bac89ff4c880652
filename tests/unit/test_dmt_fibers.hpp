// A domain in one kernel thread: the real scheduler over fibers, stepped by one seed.
//
// Every interleaving that kernel threads could show is a choice of this driver: which of the fibers that may
// run goes on next. A fiber may run if it holds the turn, or if it computes without one (policy `parallel`).
// Fibers that are still parked at the end are abandoned: their bodies own nothing.
#pragma once

#include <ucontext.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "dmt_scheduler/scheduler.hpp"

namespace crane::dmt::testing {

inline uint64_t mix(uint64_t a, uint64_t b) {
    const uint64_t h = (a ^ b) * 0x9e37'79b9'7f4a'7c15ULL;
    return h ^ (h >> 29);
}

/// Small and the same everywhere: programs under test draw from it.
struct Dice {
    uint64_t state;
    uint64_t roll() { return mix(state = state * 6364136223846793005ULL + 1442695040888963407ULL, 77); }
    uint64_t below(uint64_t n) { return (roll() >> 16) % n; }
};

class FiberDomain {
  public:
    using Body = std::function<void(SlotId)>;

    FiberDomain(Policy policy, uint32_t quantum, uint64_t seed = 1)
        : FiberDomain(*new State(), policy, quantum, seed) {
        owned_.reset(state_);
    }
    /// Over zeroed memory of someone else's.
    FiberDomain(State& state, Policy policy, uint32_t quantum, uint64_t seed)
        : state_(&state), interleaving_{seed} {
        Scheduler::format(*state_, policy, quantum, 0);
        state_->check_clock = ~uint64_t{0};
        scheduler = Scheduler(state_, {this, call_input, park, unpark, nullptr, stand, &gate});
    }

    Scheduler scheduler;
    Gate gate{};
    /// Plays the source of input; the default ends the run when nothing can run any more.
    std::function<void(bool quiescent)> input = [this](bool quiescent) {
        if (quiescent) halt();
    };
    /// Told of every change of threads, before the next one goes on.
    std::function<void(SlotId)> switched = [](SlotId) {};
    uint64_t sleeps = 0;
    size_t most_able = 0;  ///< how many fibers could have run at once

    State& state() { return *state_; }

    /// A new thread. Caller has the turn, or it is the first.
    SlotId spawn(Body body, uint32_t process = 0) {
        const bool first = state_->used == 0;
        const SlotId slot = scheduler.create(process, first);
        if (slot == kNoSlot) return slot;
        auto fiber = std::make_unique<Fiber>();
        fiber->domain = this;
        fiber->slot = slot;
        fiber->generation = state_->slots[slot].generation;
        fiber->body = std::move(body);
        fiber->stack.reset(new char[kStackBytes]);
        getcontext(&fiber->context);
        fiber->context.uc_stack.ss_sp = fiber->stack.get();
        fiber->context.uc_stack.ss_size = kStackBytes;
        fiber->context.uc_link = &driver_;
        const auto address = reinterpret_cast<uint64_t>(fiber.get());
        makecontext(&fiber->context, reinterpret_cast<void (*)()>(&FiberDomain::enter), 2,
                    static_cast<uint32_t>(address >> 32), static_cast<uint32_t>(address));
        fibers_.push_back(std::move(fiber));
        return slot;
    }

    /// Steps until every fiber has ended, or halt().
    void run(const std::function<void()>& after_each_step = {}) {
        while (!halted_ && step()) {
            if (after_each_step) after_each_step();
        }
    }
    bool halted() const { return halted_; }

    /// Called in a fiber: ends the run here and now.
    void halt() {
        halted_ = true;
        for (;;) leave();
    }
    /// Called in a fiber: computing, or what goes on beside the schedule, while others may go on.
    void compute() {
        if (state_->policy == Policy::kParallel || state_->holder != current_->slot) leave();
    }
    /// Another thread's process is killed.
    void discard(SlotId victim) {
        for (auto& fiber : fibers_) {
            if (fiber->slot == victim && fiber->generation == state_->slots[victim].generation) {
                fiber->ended = true;
            }
        }
        scheduler.discard(victim);
    }

  private:
    static constexpr size_t kStackBytes = 256 * 1024;

    struct Fiber {
        FiberDomain* domain;
        SlotId slot;
        uint32_t generation;
        Body body;
        std::unique_ptr<char[]> stack;
        ucontext_t context;
        bool parked = false, ended = false;
    };

    static void enter(uint32_t high, uint32_t low) {
        auto* fiber = reinterpret_cast<Fiber*>(static_cast<uint64_t>(high) << 32 | low);
        FiberDomain* domain = fiber->domain;
        domain->scheduler.start(fiber->slot);
        fiber->body(fiber->slot);
        domain->scheduler.get_turn(fiber->slot);
        domain->scheduler.finish(fiber->slot);
        fiber->ended = true;
    }
    bool may_run(const Fiber& fiber) const {
        if (fiber.ended) return false;
        return !fiber.parked || state_->slots[fiber.slot].wake == kGranted;
    }
    /// Lets one of those that may run go on until it leaves; false: there is none.
    bool step() {
        able_.clear();
        for (auto& fiber : fibers_) {
            if (may_run(*fiber)) able_.push_back(fiber.get());
        }
        if (able_.empty()) return false;
        most_able = std::max(most_able, able_.size());
        current_ = able_[interleaving_.below(able_.size())];
        switched(current_->slot);
        swapcontext(&driver_, &current_->context);
        current_ = nullptr;
        return true;
    }
    void leave() {
        Fiber* me = current_;
        swapcontext(&me->context, &driver_);
    }
    static void call_input(void* context, bool quiescent) {
        static_cast<FiberDomain*>(context)->input(quiescent);
    }
    static void park(void* context, Slot& slot) {
        auto* domain = static_cast<FiberDomain*>(context);
        Fiber* me = domain->current_;
        if (!me) {
            while (slot.wake != kGranted && domain->step()) {
            }
            domain->switched(static_cast<SlotId>(&slot - domain->state_->slots));
            return;
        }
        while (slot.wake != kGranted) {
            // As in the shim: half of the sleepers announce it, half are caught while they still spin.
            if (domain->interleaving_.below(2)) slot.wake = kAsleep;
            me->parked = true;
            domain->leave();
            me->parked = false;
        }
    }
    /// Whoever comes to the gate ends the run.
    static void stand(void* context) {
        auto* domain = static_cast<FiberDomain*>(context);
        if (domain->scheduler.place() < Place{domain->gate.clock, domain->gate.steps}) return;
        domain->gate.stopped = 1;
        domain->halt();
    }
    static void unpark(void* context, Slot&) { ++static_cast<FiberDomain*>(context)->sleeps; }

    State* state_;
    std::unique_ptr<State> owned_;
    Dice interleaving_;
    std::vector<std::unique_ptr<Fiber>> fibers_;
    std::vector<Fiber*> able_;
    Fiber* current_ = nullptr;
    ucontext_t driver_{};
    bool halted_ = false;
};

/// The state fits together: returns what does not, or nullptr.
inline const char* broken_invariant(const State& s) {
    std::vector<int> seen(s.high_water, 0);
    uint32_t used = 0, runnable = 0, waiting = 0, with_deadline = 0, on_sets = 0;
    for (SlotId id = 0; id < s.high_water; ++id) {
        const Slot& slot = s.slots[id];
        used += slot.state != SlotState::kFree;
        waiting += slot.state == SlotState::kWaiting;
        if (slot.state == SlotState::kRunning && s.holder != id) return "two threads have the turn";
        if (slot.state != SlotState::kWaiting) {
            if (slot.heap_place && slot.state != SlotState::kFree) return "a deadline outlives its wait";
            continue;
        }
        with_deadline += slot.deadline_ns != kNoDeadline;
        on_sets += slot.set_mask != 0;
    }
    SlotId previous = kNoSlot;
    for (SlotId id = s.run_queue.head; id != kNoSlot; previous = id, id = s.slots[id].next, ++runnable) {
        if (s.slots[id].state != SlotState::kRunnable) return "the run queue holds a thread that cannot run";
        if (s.slots[id].previous != previous) return "the run queue's links disagree";
        if (++seen[id] > 1) return "a thread is queued twice";
    }
    if (previous != s.run_queue.tail) return "the run queue's tail is wrong";
    uint32_t in_buckets = 0;
    for (const Bucket& bucket : s.buckets) {
        for (SlotId id = bucket.head; id != kNoSlot; id = s.slots[id].next, ++in_buckets) {
            if (s.slots[id].state != SlotState::kWaiting) return "a bucket holds a thread that does not wait";
            if (++seen[id] > 1) return "a thread is queued twice";
        }
    }
    uint32_t in_sets = 0;
    for (SlotId id = s.set_waiters.head; id != kNoSlot; id = s.slots[id].set_next, ++in_sets) {
        if (!s.slots[id].set_mask) return "a thread waits on an empty set";
    }
    for (uint32_t i = 0; i < s.heap_size; ++i) {
        if (s.slots[s.heap[i]].heap_place != i + 1) return "the heap's places disagree";
    }
    if (used != s.used) return "the count of slots in use is wrong";
    if (runnable != s.runnable) return "the count of runnable threads is wrong";
    if (waiting != in_buckets) return "a waiting thread is in no bucket";
    if (with_deadline != s.heap_size) return "a deadline is not in the heap";
    if (on_sets != in_sets) return "a waiter on a set is not on the list";
    return nullptr;
}

}  // namespace crane::dmt::testing
