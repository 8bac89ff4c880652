#include "dmt_scheduler/scheduler.hpp"

#include "base/check.hpp"
#include "dmt_scheduler/queues.hpp"

namespace crane::dmt {
namespace {

/// Operations between a contender's wake-up and its next wait if it did not get what it was woken for: a lock
/// made of a futex leaves the call, looks, and calls again.
constexpr uint32_t kOperationsOfALoser = 1;
/// What threads that nap wait for: no object has this key.
constexpr uint64_t kNapKey = ~uint64_t{0};

}  // namespace

SlotId OrderSource::next(State& state) {
    return pop_head(state, state.run_queue);
}

void Scheduler::format(State& s, Policy policy, uint32_t quantum, uint32_t spin) {
    s.policy = policy;
    s.quantum = quantum ? quantum : 1;
    s.quantum_left = static_cast<int32_t>(s.quantum);
    s.spin = spin;
    s.holder = kNoSlot;
    s.run_queue = s.set_waiters = {kNoSlot, kNoSlot};
    s.free_list = kNoSlot;
    s.hash = 0x6372'616e'65ULL;
    for (Bucket& bucket : s.buckets) bucket = {kNoSlot, kNoSlot};
}

SlotId Scheduler::create(uint32_t process, bool first) {
    SlotId id = s_->free_list;
    if (id != kNoSlot) {
        s_->free_list = s_->slots[id].next;
    } else {
        if (s_->high_water == kMaxThreads) return kNoSlot;
        id = s_->high_water++;
    }
    Slot& slot = s_->slots[id];
    CRANE_CHECK(slot.state == SlotState::kFree);
    const uint32_t generation = slot.generation + 1;
    slot.wake.store(first ? kGranted : kNotGranted, std::memory_order_relaxed);
    slot.has_turn = 0;
    slot.key = slot.set_mask = slot.deadline_ns = 0;
    slot.heap_place = 0;
    slot.local_now_ns = s_->now_ns;
    slot.process = process;
    slot.tid = 0;
    slot.user = 0;
    slot.generation = generation;
    slot.set_next = slot.set_previous = kNoSlot;
    slot.contends = slot.losses = slot.since_wake = slot.spinning = 0;
    ++s_->used;
    if (first) {
        CRANE_CHECK(s_->holder == kNoSlot);
        slot.state = SlotState::kRunning;
        slot.next = slot.previous = kNoSlot;
        s_->holder = id;
    } else {
        slot.state = SlotState::kRunnable;
        push_tail(*s_, s_->run_queue, id);
        ++s_->runnable;
    }
    return id;
}

void Scheduler::start(SlotId me) {
    await(me);
    end_work();
}

void Scheduler::begin_work() {
    if (!hooks_.gate) return;
    hooks_.gate->working.store(1, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);  // the other half is the watcher's
    if (hooks_.gate->clock.load(std::memory_order_relaxed) != 0) hooks_.stand(hooks_.context);
}

void Scheduler::end_work() {
    if (hooks_.gate) hooks_.gate->working.store(0, std::memory_order_release);
}

uint32_t Scheduler::begin_step() {
    if (!hooks_.gate) return 0;
    const uint32_t before = hooks_.gate->working.load(std::memory_order_relaxed);
    begin_work();
    hooks_.gate->at_steps.store(++s_->steps, std::memory_order_relaxed);
    return before;
}

void Scheduler::end_step(uint32_t before) {
    if (hooks_.gate) hooks_.gate->working.store(before, std::memory_order_release);
}

void Scheduler::await(SlotId me) {
    Slot& slot = s_->slots[me];
    if (slot.wake.load(std::memory_order_acquire) != kGranted) hooks_.park(hooks_.context, slot);
    CRANE_CHECK(slot.wake.load(std::memory_order_acquire) == kGranted);
    slot.wake.store(kNotGranted, std::memory_order_relaxed);
    slot.has_turn = 1;
    if (slot.local_now_ns < s_->now_ns) slot.local_now_ns = s_->now_ns;
    if (hooks_.resumed) hooks_.resumed(hooks_.context);
    begin_work();
}

void Scheduler::grant(SlotId next) {
    s_->slots[next].state = SlotState::kRunning;
    hand_to(next);
}

void Scheduler::hand_to(SlotId next) {
    Slot& slot = s_->slots[next];
    s_->holder = next;
    ++s_->handovers;
    end_work();
    if (s_->disturb) delay_for_test();
    // exchange: only a thread that has announced its sleep costs a system call.
    if (slot.wake.exchange(kGranted, std::memory_order_acq_rel) == kAsleep) {
        hooks_.unpark(hooks_.context, slot);
    }
}

void Scheduler::delay_for_test() {
    uint64_t x = s_->disturb;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    s_->disturb = x;
    if (x % 64 != 0) return;
    for (uint64_t i = (x >> 40) % 200'000; i > 0; --i) asm volatile("" ::: "memory");
}

void Scheduler::end_operation(SlotId me, uint32_t operation) {
    Slot& slot = s_->slots[me];
    CRANE_CHECK(slot.has_turn && s_->holder == me);
    ++s_->clock;
    if (hooks_.gate) {
        hooks_.gate->at_steps.store(s_->steps, std::memory_order_relaxed);
        hooks_.gate->at_clock.store(s_->clock, std::memory_order_release);
    }
    uint64_t h = (s_->hash ^ (static_cast<uint64_t>(me) << 32 | operation)) * 0x9e37'79b9'7f4a'7c15ULL;
    s_->hash = h ^ (h >> 32);
    s_->now_ns = (slot.local_now_ns > s_->now_ns ? slot.local_now_ns : s_->now_ns) + kOperationStepNs;
    slot.local_now_ns = s_->now_ns;
    --s_->quantum_left;
    ++slot.since_wake;
}

void Scheduler::refill_quantum() {
    s_->quantum_left = static_cast<int32_t>(s_->quantum - s_->hash % (s_->quantum / 8 + 1));
    s_->gives_way = 0;
}

void Scheduler::check_input_and_time() {
    if (s_->clock >= s_->check_clock) hooks_.input(hooks_.context, false);
    if (s_->heap_size != 0) advance_time(s_->now_ns);
}

void Scheduler::get_turn(SlotId me) {
    Slot& slot = s_->slots[me];
    if (!slot.has_turn) {
        await(me);
        return;
    }
    if (s_->quantum_left <= 0 && s_->policy == Policy::kSerial) rotate(me, true);
    begin_work();
}

void Scheduler::put_turn(SlotId me, uint32_t operation) {
    end_operation(me, operation);
    check_input_and_time();
    // What was admitted just now brought its time along.
    Slot& slot = s_->slots[me];
    if (slot.local_now_ns < s_->now_ns) slot.local_now_ns = s_->now_ns;
    if (s_->gives_way || (s_->quantum_left <= 0 && s_->policy == Policy::kParallel))
        rotate(me, s_->policy == Policy::kSerial);
    if (slot.has_turn) end_work();  // else it may be another thread's by now
}

void Scheduler::rotate(SlotId me, bool wait_for_it) {
    refill_quantum();
    if (s_->runnable == 0) return;
    Slot& slot = s_->slots[me];
    // The next thread may learn, through plain memory, what this one read of the clock since its operation.
    if (slot.local_now_ns > s_->now_ns) s_->now_ns = slot.local_now_ns;
    slot.state = SlotState::kRunnable;
    push_tail(*s_, s_->run_queue, me);
    ++s_->runnable;
    s_->spinning += slot.spinning;
    const SlotId next = take_next();
    if (next == me) {
        slot.state = SlotState::kRunning;
        return;
    }
    slot.has_turn = 0;
    grant(next);
    if (wait_for_it) await(me);
}

SlotId Scheduler::take_next() {
    while (s_->runnable == 0) {
        hooks_.input(hooks_.context, true);
        advance_time(s_->now_ns);
    }
    --s_->runnable;
    const SlotId next = OrderSource::next(*s_);
    CRANE_CHECK(next != kNoSlot);
    s_->spinning -= s_->slots[next].spinning;
    return next;
}

WaitResult Scheduler::wait(SlotId me, uint32_t operation, uint64_t key, uint64_t set_mask,
                           uint64_t deadline_ns, bool interruptible, bool contends) {
    Slot& slot = s_->slots[me];
    const bool lost = contends && slot.contends && slot.key == key && slot.since_wake <= kOperationsOfALoser;
    slot.losses = lost ? slot.losses + 1 : 0;
    slot.contends = contends;
    signal(kNapKey, ~uint32_t{0});
    return sleep(me, operation, key, set_mask, deadline_ns, interruptible);
}

WaitResult Scheduler::nap(SlotId me, uint32_t operation, uint64_t deadline_ns) {
    Slot& slot = s_->slots[me];
    slot.losses = slot.contends = 0;
    return sleep(me, operation, kNapKey, 0, deadline_ns, true);
}

WaitResult Scheduler::sleep(SlotId me, uint32_t operation, uint64_t key, uint64_t set_mask,
                            uint64_t deadline_ns, bool interruptible) {
    Slot& slot = s_->slots[me];
    end_operation(me, operation);
    slot.state = SlotState::kWaiting;
    slot.key = key;
    slot.set_mask = set_mask;
    slot.deadline_ns = deadline_ns;
    slot.interruptible = interruptible;
    slot.operation = operation;
    push_tail(*s_, bucket_of(*s_, key), me);
    if (set_mask) push_set_waiter(*s_, me);
    if (deadline_ns != kNoDeadline) heap_insert(*s_, me);
    check_input_and_time();
    refill_quantum();
    do {
        const SlotId next = take_next();
        if (next == me) {
            slot.state = SlotState::kRunning;
            if (slot.local_now_ns < s_->now_ns) slot.local_now_ns = s_->now_ns;
            begin_work();
        } else {
            slot.has_turn = 0;
            grant(next);
            await(me);
        }
    } while (slot.state != SlotState::kRunning);  // stands in for one that has left
    slot.since_wake = 0;
    return slot.result;
}

void Scheduler::beside(SlotId me, uint32_t operation, void (*work)(void* what), void* what) {
    CRANE_CHECK(s_->policy == Policy::kSerial);
    Slot& slot = s_->slots[me];
    end_operation(me, operation);
    check_input_and_time();
    if (slot.local_now_ns < s_->now_ns) slot.local_now_ns = s_->now_ns;
    if (s_->runnable == 0) {
        work(what);
        return;
    }
    rotate(me, false);
    work(what);
    // Even if the turn has come meanwhile: an image may have been taken of this thread at its work.
    hooks_.park(hooks_.context, slot);
    await(me);
}

void Scheduler::leave_wait(Slot& slot, SlotId id) {
    unlink(*s_, bucket_of(*s_, slot.key), id);
    if (slot.set_mask) unlink_set_waiter(*s_, id);
    if (slot.heap_place) heap_remove(*s_, id);
    slot.set_mask = 0;
    slot.deadline_ns = kNoDeadline;
}

void Scheduler::make_runnable(SlotId id, WaitResult result, bool next) {
    Slot& slot = s_->slots[id];
    CRANE_CHECK(slot.state == SlotState::kWaiting);
    leave_wait(slot, id);
    slot.state = SlotState::kRunnable;
    slot.result = result;
    next ? push_head(*s_, s_->run_queue, id) : push_tail(*s_, s_->run_queue, id);
    ++s_->runnable;
}

uint32_t Scheduler::signal(uint64_t key, uint32_t most) {
    uint32_t woken = 0;
    bool gives_way = false;
    SlotId id = bucket_of(*s_, key).head;
    while (id != kNoSlot && woken < most) {
        const SlotId after = s_->slots[id].next;
        if (s_->slots[id].key == key) {
            const bool next = !gives_way && s_->slots[id].losses != 0;
            gives_way |= next;
            make_runnable(id, WaitResult::kSignaled, next);
            ++woken;
        }
        id = after;
    }
    if (gives_way) s_->gives_way = 1;
    return woken;
}

uint32_t Scheduler::requeue(uint64_t from, uint64_t to, uint32_t wake, uint32_t move) {
    uint32_t done = signal(from, wake);
    SlotId id = bucket_of(*s_, from).head;
    for (uint32_t moved = 0; id != kNoSlot && moved < move;) {
        const SlotId after = s_->slots[id].next;
        if (s_->slots[id].key == from && from == to) {
            ++moved;  // stays where it is: moved to the tail it would be met again
            ++done;
        } else if (s_->slots[id].key == from) {
            unlink(*s_, bucket_of(*s_, from), id);
            s_->slots[id].key = to;
            push_tail(*s_, bucket_of(*s_, to), id);
            ++moved;
            ++done;
        }
        id = after;
    }
    return done;
}

void Scheduler::signal_set(uint64_t mask) {
    SlotId id = s_->set_waiters.head;
    while (id != kNoSlot) {
        const SlotId after = s_->slots[id].set_next;
        if (s_->slots[id].set_mask & mask) make_runnable(id, WaitResult::kSignaled);
        id = after;
    }
}

bool Scheduler::interrupt(SlotId id) {
    Slot& slot = s_->slots[id];
    if (slot.state != SlotState::kWaiting || !slot.interruptible) return false;
    make_runnable(id, WaitResult::kInterrupted);
    return true;
}

void Scheduler::finish(SlotId me) {
    end_operation(me, 0);
    signal(kNapKey, ~uint32_t{0});
    Slot& slot = s_->slots[me];
    slot.has_turn = 0;
    slot.state = SlotState::kFree;
    slot.next = s_->free_list;
    s_->free_list = me;
    --s_->used;
    s_->holder = kNoSlot;
    refill_quantum();
    if (s_->used == 0) return;
    check_input_and_time();
    // Who leaves may have to be gone soon, or is not looked after any more: it does not wait for input.
    const SlotId stand_in = s_->runnable == 0 ? some_waiting() : kNoSlot;
    if (stand_in != kNoSlot) {
        hand_to(stand_in);
    } else {
        grant(take_next());
    }
}

SlotId Scheduler::some_waiting() const {
    for (SlotId id = 0; id < s_->high_water; ++id)
        if (s_->slots[id].state == SlotState::kWaiting) return id;
    return kNoSlot;
}

void Scheduler::discard(SlotId victim) {
    Slot& slot = s_->slots[victim];
    if (slot.state == SlotState::kFree) return;
    if (slot.state == SlotState::kWaiting) leave_wait(slot, victim);
    if (slot.state == SlotState::kRunnable) {
        unlink(*s_, s_->run_queue, victim);
        --s_->runnable;
        s_->spinning -= slot.spinning;
    }
    CRANE_CHECK(s_->holder != victim);
    slot.state = SlotState::kFree;
    slot.next = s_->free_list;
    s_->free_list = victim;
    --s_->used;
}

void Scheduler::make_opaque(SlotId id) {
    Slot& slot = s_->slots[id];
    if (slot.state == SlotState::kWaiting) leave_wait(slot, id);
    if (slot.state == SlotState::kRunnable) {
        unlink(*s_, s_->run_queue, id);
        --s_->runnable;
        s_->spinning -= slot.spinning;
    }
    slot.state = SlotState::kOpaque;
}

uint64_t Scheduler::read_clock(SlotId me) {
    Slot& slot = s_->slots[me];
    slot.local_now_ns += kReadStepNs;
    return slot.local_now_ns;
}

void Scheduler::advance_time(uint64_t now_ns) {
    if (now_ns > s_->now_ns) s_->now_ns = now_ns;
    while (s_->heap_size != 0 && s_->slots[s_->heap[0]].deadline_ns <= s_->now_ns) {
        make_runnable(s_->heap[0], WaitResult::kTimedOut);
    }
}

uint64_t Scheduler::earliest_deadline_ns() const {
    return s_->heap_size ? s_->slots[s_->heap[0]].deadline_ns : kNoDeadline;
}

}  // namespace crane::dmt
