// The scheduler's state: plain data in the domain's shared memory, seen by every process of the domain.
//
// Rules:
//  - Only the thread that has the turn writes here (but for a slot's own `wake` word), so nothing is locked.
//  - No pointers: slots are named by index, since processes may map the segment at different addresses.
//  - Sized at start; nothing here allocates.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace crane::dmt {

using SlotId = uint32_t;
constexpr SlotId kNoSlot = 0xffff'ffff;
constexpr size_t kMaxThreads = 4096;
constexpr size_t kWaitBuckets = 4096;
constexpr uint64_t kNoDeadline = 0;

enum class SlotState : uint32_t { kFree = 0, kRunnable, kRunning, kWaiting, kOpaque };

enum class WaitResult : uint32_t { kSignaled = 0, kTimedOut, kInterrupted };

/// Values of Slot::wake.
constexpr uint32_t kNotGranted = 0, kGranted = 1, kAsleep = 2;

/// One thread of the domain.
struct alignas(64) Slot {
    std::atomic<uint32_t> wake;  ///< futex: the turn is granted by setting it to kGranted
    uint32_t has_turn;           ///< written by the thread itself
    SlotState state;
    WaitResult result;
    SlotId next, previous;          ///< run queue or wait bucket
    SlotId set_next, set_previous;  ///< list of threads that wait on a set of objects
    uint64_t key;                   ///< object waited for
    uint64_t set_mask;              ///< signature of a set of objects waited for, 0: none
    uint64_t deadline_ns;           ///< virtual time, kNoDeadline: none
    uint32_t heap_place;            ///< place in the deadline heap + 1, 0: not in it
    uint32_t interruptible;
    uint64_t local_now_ns;  ///< what this thread last read of the clock
    uint32_t process;       ///< the owner's own number for the process
    uint32_t tid;           ///< kernel's, for messages
    uint32_t generation;    ///< rises with each use of the slot
    uint32_t user;          ///< free for the owner
    uint32_t contends;      ///< waits for what others may take before it, once it is woken
    uint32_t losses;        ///< how often in a row it was woken and came too late
    uint32_t since_wake;    ///< operations since it was last woken to contend
    uint32_t spinning;      ///< takes turns only to look whether others have done something
    uint32_t operation;     ///< in which it waits, the owner's own number
};

struct Bucket {
    SlotId head, tail;
};

enum class Policy : uint32_t { kSerial = 0, kParallel = 1 };

struct State {
    uint64_t clock;        ///< turns done so far
    uint64_t steps;        ///< what needed no turn and is counted (Scheduler::begin_step)
    uint64_t hash;         ///< of every scheduled operation: who and what, in order
    uint64_t now_ns;       ///< virtual realtime
    uint64_t check_clock;  ///< at this clock the source of input is asked (timebubble)
    Policy policy;
    uint32_t quantum;
    int32_t quantum_left;
    uint32_t gives_way;  ///< the turn moves at the end of this operation: its next holder lost a race before
    uint32_t spin;       ///< rounds of spinning before a thread sleeps
    SlotId holder;
    uint32_t runnable;  ///< in the run queue, the holder not counted
    uint32_t spinning;  ///< of these
    uint32_t used;      ///< slots not free
    Bucket run_queue;
    Bucket set_waiters;
    SlotId free_list;
    SlotId high_water;  ///< slots ever used
    uint32_t heap_size;
    uint64_t handovers;
    uint64_t wakeups;
    uint64_t disturb;  ///< state of the delay generator, 0: off. Tests only: never decides an order
    Bucket buckets[kWaitBuckets];
    SlotId heap[kMaxThreads];
    Slot slots[kMaxThreads];
};

}  // namespace crane::dmt
