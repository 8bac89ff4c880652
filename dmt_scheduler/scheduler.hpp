// dmt_scheduler: one turn, handed from thread to thread in an order that depends on nothing but the program
// and its admitted input (PARROT; crane.txt section 3.1). Knows no libc call, no socket, no clock of the
// kernel.
//
// Rules:
//  - A scheduled operation is get_turn(), the work, put_turn(); or wait() in between, which gives the turn
//    up.
//  - The turn is kept for a quantum of operations, counted and never timed. Quantum 1 is PARROT's schedule. A
//    larger one varies by an eighth, drawn from the schedule's hash: a loop that always passed the turn on at
//    the same place, with a lock in its hand, would keep all others out for ever.
//  - Who was woken for a lock and came too late goes before all others the next time, at the end of the
//    operation that wakes it: at the start of the next one, the lock may be taken again.
//  - `serial`: a thread runs only while it has the turn, so the turn moves at the *start* of the next
//    operation. `parallel`: the turn moves at the *end* of an operation and the thread computes on without
//    it.
//  - No idle thread: the last thread to wait asks the source of input, and the logical clock stands still. If
//    that one ends instead, one that waits already is handed the turn to ask, and goes on waiting.
//  - Nothing here allocates or takes a lock.
#pragma once

#include <cstdint>

#include "base/gate.hpp"
#include "dmt_scheduler/state.hpp"

namespace crane::dmt {

/// What the scheduler needs of the world. Functions are called by the holder of the turn.
struct Hooks {
    void* context;
    /// The clock has reached State::check_clock (quiescent false), or no thread is runnable (quiescent true:
    /// returns only after it has changed something that may make one runnable). Sets State::check_clock anew.
    void (*input)(void* context, bool quiescent);
    /// Sleeps until slot.wake is kGranted / wakes the thread that sleeps so.
    void (*park)(void* context, Slot& slot);
    void (*unpark)(void* context, Slot& slot);
    /// The calling thread was handed the turn by another one. May be null.
    void (*resumed)(void* context) = nullptr;
    /// Returns when the gate lets the domain go on from where it is. Needed with a gate alone.
    void (*stand)(void* context) = nullptr;
    Gate* gate = nullptr;
};

/// The order source: who gets the turn next. Round-robin is the first; replaying a recorded order is another.
class OrderSource {
  public:
    /// Takes the next thread out of the run queue. Called only when the queue is not empty.
    static SlotId next(State& state);
};

/// A process's handle on the domain's scheduler.
class Scheduler {
  public:
    Scheduler() = default;
    Scheduler(State* state, const Hooks& hooks) : s_(state), hooks_(hooks) {}

    /// Makes a fresh state in zeroed memory.
    static void format(State& state, Policy policy, uint32_t quantum, uint32_t spin);

    /// A new thread's place, at the tail of the run queue. kNoSlot when kMaxThreads is reached. Caller has
    /// the turn, or the domain has no thread yet (`first`: then the new slot gets the turn itself).
    SlotId create(uint32_t process, bool first);
    /// Called by the new thread before it does anything else: waits for its first turn.
    void start(SlotId me);
    /// The thread ends: its slot is freed and the turn passed on. Does not return the turn, nor wait for
    /// input if another can.
    void finish(SlotId me);
    /// Frees another thread's slot (its process ends). Caller has the turn.
    void discard(SlotId victim);
    /// The slot leaves the schedule but stays in use: the process behind it cannot be scheduled.
    void make_opaque(SlotId slot);

    void get_turn(SlotId me);
    void put_turn(SlotId me, uint32_t operation);
    /// Passes the turn on at the next chance, whatever is left of the quantum.
    void yield(SlotId me) {
        (void)me;
        s_->quantum_left = 0;
    }

    /// Of the turns that it takes from here on: whether it does no more than look at what others do.
    void set_spinning(SlotId me, bool spinning) { s_->slots[me].spinning = spinning; }
    /// Whether a thread waits for its turn that does more than that.
    bool others_can_work() const { return s_->runnable > s_->spinning; }

    /// What only the holder of the turn may do, and does without an operation of its own. Within an operation
    /// or outside of any; begin_step() returns what end_step() is to be given.
    uint32_t begin_step();
    void end_step(uint32_t before);
    /// The holder of the turn is in the midst of an operation or step.
    bool is_at_work() const {
        return hooks_.gate && hooks_.gate->working.load(std::memory_order_relaxed) != 0;
    }
    /// Where the schedule is.
    Place place() const { return {s_->clock, s_->steps}; }

    /// Gives the turn up until signal(key), a signal_set() that meets `set_mask`, the deadline, or
    /// interrupt(). Caller has the turn and has it again when this returns. Counts as an operation.
    /// `contends`: for a lock, which another thread may take between the signal and this one's turn.
    WaitResult wait(SlotId me, uint32_t operation, uint64_t key, uint64_t set_mask, uint64_t deadline_ns,
                    bool interruptible, bool contends = false);
    /// Gives the turn up until another thread waits for something, or ends, and so has done what it could; at
    /// the latest at the deadline. For a thread that looks at memory.
    WaitResult nap(SlotId me, uint32_t operation, uint64_t deadline_ns);
    /// Lets the others go on while `work` is under way, which none of them can notice; has the turn again, in
    /// its place in the run queue, when this returns. Where nobody else can go on the turn is kept. Caller
    /// has the turn. Counts as an operation. `serial` only.
    void beside(SlotId me, uint32_t operation, void (*work)(void* what), void* what);
    /// Makes up to `most` threads that wait for `key` runnable, first come first served. Returns how many. If
    /// one of them has lost its race for it before, it has the turn next, when the caller's operation ends.
    uint32_t signal(uint64_t key, uint32_t most);
    /// The same for threads that wait for `from`: up to `wake` run, up to `move` wait for `to` from now on.
    uint32_t requeue(uint64_t from, uint64_t to, uint32_t wake, uint32_t move);
    /// Makes every thread runnable that waits on a set with a bit of `mask`.
    void signal_set(uint64_t mask);
    /// A waiting thread returns kInterrupted, if its wait is interruptible.
    bool interrupt(SlotId slot);

    /// The thread's own reading of virtual time: takes no turn, rises with each call.
    uint64_t read_clock(SlotId me);
    /// What the thread does now takes so long at least.
    void spend(SlotId me, uint64_t ns) { s_->slots[me].local_now_ns += ns; }
    /// Moves virtual time forward (never back) and wakes what is due.
    void advance_time(uint64_t now_ns);
    uint64_t earliest_deadline_ns() const;

    State& state() { return *s_; }
    const State& state() const { return *s_; }
    Slot& slot(SlotId id) { return s_->slots[id]; }
    bool holds_turn(SlotId me) const { return s_->slots[me].has_turn != 0; }

  private:
    WaitResult sleep(SlotId me, uint32_t operation, uint64_t key, uint64_t set_mask, uint64_t deadline_ns,
                     bool interruptible);
    void await(SlotId me);
    void begin_work();
    void end_work();
    void grant(SlotId next);
    void hand_to(SlotId next);
    SlotId some_waiting() const;
    void end_operation(SlotId me, uint32_t operation);
    void check_input_and_time();
    void rotate(SlotId me, bool wait_for_it);
    SlotId take_next();
    void leave_wait(Slot& slot, SlotId id);
    void make_runnable(SlotId id, WaitResult result, bool next = false);
    void refill_quantum();
    void delay_for_test();

    State* s_ = nullptr;
    Hooks hooks_{};
};

/// Virtual time that one operation, or one reading of the clock, takes. Below what either really takes, so
/// that virtual time never runs ahead of the leader's clock for long.
constexpr uint64_t kOperationStepNs = 20;
constexpr uint64_t kReadStepNs = 20;
/// And one call of the kernel besides. Who makes names of a clock that counts microseconds, ten of them at
/// most in each, has made calls between them.
constexpr uint64_t kKernelStepNs = 100;

}  // namespace crane::dmt
