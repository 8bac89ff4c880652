#include "interpose/core/threads.hpp"

#include <cstring>
#include <optional>

#include "interpose/core/backstop.hpp"
#include "interpose/core/births.hpp"
#include "interpose/core/given_attributes.hpp"
#include "interpose/core/opaque.hpp"
#include "interpose/core/processes.hpp"
#include "interpose/core/signal_queue.hpp"
#include "interpose/core/signal_targets.hpp"
#include "interpose/core/sockets.hpp"
#include "interpose/core/xid_signal.hpp"

namespace crane::interpose {
namespace {

/// ThreadExtra::cancelled
constexpr uint32_t kEnding = 3;

enum class RecordState : uint32_t { kFree = 0, kRunning, kEnded };

/// One pthread_t of this process, from creation until it is joined. Outlives the scheduler slot.
struct Record {
    RecordState state;
    dmt::SlotId slot;
    pthread_t thread;
    void* (*routine)(void*);
    void* argument;
    bool detached;
};

Record records[dmt::kMaxThreads];
uint32_t records_high = 0;
thread_local Record* own_record __attribute__((tls_model("initial-exec"))) = nullptr;
pthread_key_t end_key;
bool end_key_made = false;
bool default_attributes_set = false;

Record* find_record(pthread_t thread) {
    for (uint32_t i = 0; i < records_high; ++i) {
        if (records[i].state != RecordState::kFree && records[i].thread == thread) return &records[i];
    }
    return nullptr;
}

Record* new_record() {
    for (uint32_t i = 0; i < dmt::kMaxThreads; ++i) {
        if (records[i].state != RecordState::kFree) continue;
        if (i >= records_high) records_high = i + 1;
        return &records[i];
    }
    return nullptr;
}

uint64_t join_key(const Record* record) {
    return make_key(ObjectKind::kThread, static_cast<uint64_t>(runtime.process_index) << 16 |
                                             static_cast<uint64_t>(record - records));
}

void release(Record* record) {
    *record = {};
}

/// Detached threads that have ended: joined here, at a place in the schedule.
void reap_detached() {
    for (uint32_t i = 0; i < records_high; ++i) {
        Record& record = records[i];
        if (record.state != RecordState::kEnded || !record.detached) continue;
        real.pthread_join(record.thread, nullptr);
        release(&record);
    }
}

void end_thread() {
    scheduler().get_turn(self.slot);
    Record* record = own_record;
    record->state = RecordState::kEnded;
    scheduler().signal(join_key(record), ~uint32_t{0});
    release_held_sockets(self.slot);
    scheduler().signal_set(robust_bit());
    drop_signals(domain().threads[self.slot].pending, ~uint64_t{0});
    pass_on_all_signals();
    domain().threads[self.slot] = {};
    const dmt::SlotId slot = self.slot;
    domain().ending_tid = static_cast<int32_t>(scheduler().slot(slot).tid);
    domain().tid_of_pid = runtime.process->pid;
    self.active = false;
    leave_backstop();
    scheduler().finish(slot);
}

/// Runs in each of the four rounds of key destructors; the last is the thread's end for the schedule, so that
/// the destructors of the program's own keys, and C++ thread_locals before them, are still scheduled.
void on_thread_end(void* value) {
    if (!self.active) return;
    const auto round = reinterpret_cast<uintptr_t>(value);
    if (round < PTHREAD_DESTRUCTOR_ITERATIONS) {
        pthread_setspecific(end_key, reinterpret_cast<void*>(round + 1));
        return;
    }
    // The process's last thread ends the process; libc would do the same a little later.
    if (count_threads() == 1) exit(0);
    end_thread();
}

void* run_thread(void* argument) {
    own_record = static_cast<Record*>(argument);
    self.slot = own_record->slot;
    self.generation = scheduler().slot(self.slot).generation;
    scheduler().start(self.slot);
    self.active = true;
    scheduler().slot(self.slot).tid = static_cast<uint32_t>(raw(SYS_gettid));
    pthread_setspecific(end_key, reinterpret_cast<void*>(uintptr_t{1}));
    start_backstop();
    return own_record->routine(own_record->argument);
}

}  // namespace

dmt::SlotId slot_of_tid(int tid) {
    const dmt::State& s = domain().scheduler;
    for (dmt::SlotId slot = 0; slot < s.high_water; ++slot)
        if (s.slots[slot].tid == static_cast<uint32_t>(tid) && s.slots[slot].state != dmt::SlotState::kFree)
            return slot;
    return dmt::kNoSlot;
}

void note_default_attributes() {
    default_attributes_set = true;
}

int create_thread(pthread_t* thread, const pthread_attr_t* attributes, void* (*routine)(void*),
                  void* argument) {
    reap_detached();
    const DefaultAttributes by_default(!attributes && default_attributes_set);
    if (!attributes) attributes = by_default.get();
    SchedulingPolicy policy = domain().threads[self.slot].policy;
    if (policy.reset_on_fork) policy = {};
    if (attributes) {
        if (const long wrong = explicit_policy(*attributes, policy); wrong != 0)
            return static_cast<int>(-wrong);
    }
    Record* record = new_record();
    const dmt::SlotId slot = record ? scheduler().create(runtime.process_index, false) : dmt::kNoSlot;
    if (slot == dmt::kNoSlot) return EAGAIN;
    domain().threads[slot] = {};
    domain().threads[slot].mask = domain().threads[self.slot].mask;
    domain().threads[slot].policy = policy;
    domain().threads[slot].processors_off = domain().threads[self.slot].processors_off;
    domain().threads[slot].counter_denied = domain().threads[self.slot].counter_denied;
    domain().threads[slot].born_ns = now_realtime_ns();
    *record = {RecordState::kRunning, slot, {}, routine, argument, false};
    pthread_attr_t joinable;
    std::optional<GivenMask> given_mask;
    std::optional<GivenProcessors> given_processors;
    int rc = 0;
    if (attributes) {
        int state = PTHREAD_CREATE_JOINABLE;
        pthread_attr_getdetachstate(attributes, &state);
        record->detached = state == PTHREAD_CREATE_DETACHED;
        // A copy of the bytes is enough for the call; what it points to stays the program's.
        std::memcpy(&joinable, attributes, sizeof(joinable));
        pthread_attr_setdetachstate(&joinable, PTHREAD_CREATE_JOINABLE);
        pthread_attr_setinheritsched(&joinable, PTHREAD_INHERIT_SCHED);  // see scheduling.cpp
        given_mask.emplace(joinable, domain().threads[slot].mask);
        given_processors.emplace(joinable);
        rc = given_processors->leave_out(domain().threads[slot].processors_off);
        attributes = &joinable;
    }
    if (rc == 0) {
        const bool begun = begin_birth();
        rc = real.pthread_create(&record->thread, attributes, run_thread, record);
        end_birth(begun, 0);
    }
    if (rc != 0) {
        scheduler().discard(slot);
        release(record);
        return rc;
    }
    lead_xid_signal();
    if (thread) *thread = record->thread;
    return 0;
}

namespace {

/// EINTR: handlers have run, or a cancellation has to be looked at, and the thread still runs.
int join_once(Record* record, pthread_t thread, void** result, uint64_t deadline, bool try_only) {
    Operation turn(Op::kThreadJoin, thread_key(thread));
    if (record == own_record) return EDEADLK;
    if (record->detached) return EINVAL;
    while (record->state == RecordState::kRunning) {
        if (try_only) {
            turn.yield();
            return EBUSY;
        }
        const dmt::WaitResult waited = turn.wait(join_key(record), deadline, true);
        if (waited == dmt::WaitResult::kTimedOut) return ETIMEDOUT;
        if (waited == dmt::WaitResult::kInterrupted) return EINTR;
    }
    if (record->state == RecordState::kFree) return ESRCH;
    const int rc = real.pthread_join(thread, result);
    release(record);
    return rc;
}

}  // namespace

int join_thread(pthread_t thread, void** result, uint64_t deadline, bool try_only) {
    Record* record = find_record(thread);
    if (!record) return real.pthread_join(thread, result);
    if (try_only) return join_once(record, thread, result, deadline, true);
    for (;;) {
        test_cancel();
        const int rc = join_once(record, thread, result, deadline, false);
        if (rc != EINTR) return rc;
    }
}

int detach_thread(pthread_t thread) {
    Record* record = find_record(thread);
    if (!record) return ESRCH;
    if (record->detached) return EINVAL;
    record->detached = true;
    return 0;
}

int cancel_thread(pthread_t thread) {
    const dmt::SlotId slot = slot_of_thread(thread);
    if (slot == dmt::kNoSlot) return 0;
    const int rc = real.pthread_cancel(thread);
    ThreadExtra& extra = domain().threads[slot];
    if (extra.cancelled == kEnding) return rc;
    extra.cancelled = 1;
    if (extra.cancel_disabled == 0) scheduler().interrupt(slot);
    return rc;
}

namespace {

bool is_running(int pid, int tid) {
    // Of the main thread there stays what only the process's end takes away.
    return pid == tid ? !is_zombie(pid) : raw(SYS_tgkill, pid, tid, 0) != -ESRCH;
}

}  // namespace

/// What libc does last in a thread (it frees the thread's cache of small blocks, gives back its arena)
/// changes the heap, so the next thread must not run beside it; and what the kernel does then, it gives up
/// robust mutexes, is seen by threads of other processes, too.
void await_ended_thread() {
    const int tid = domain().ending_tid;
    if (__builtin_expect(tid == 0, 1)) return;
    domain().ending_tid = 0;
    const int pid = domain().tid_of_pid;
    constexpr int kYields = 50, kTries = 20'000;
    for (int i = 0; i < kTries && is_running(pid, tid); ++i) {
        const timespec pause{0, 50'000};
        if (i < kYields) {
            raw(SYS_sched_yield);
        } else {
            raw(SYS_nanosleep, &pause, nullptr);
        }
    }
}

uint32_t count_threads() {
    uint32_t count = 0;
    const dmt::State& s = domain().scheduler;
    for (dmt::SlotId slot = 0; slot < s.high_water; ++slot) {
        if (s.slots[slot].process == runtime.process_index && s.slots[slot].state != dmt::SlotState::kFree)
            ++count;
    }
    return count;
}

void register_main_thread() {
    if (!end_key_made) {
        if (pthread_key_create(&end_key, on_thread_end) != 0) refuse_domain("cannot make a thread key");
        end_key_made = true;
    }
    Record* record = new_record();
    *record = {RecordState::kRunning, self.slot, pthread_self(), nullptr, nullptr, false};
    own_record = record;
    // What the program before this one has left.
    ThreadExtra& own = domain().threads[self.slot];
    own.cancelled = own.cancel_disabled = own.cancel_type = 0;
    pthread_setspecific(end_key, reinterpret_cast<void*>(uintptr_t{1}));
}

void keep_only_this_thread() {
    Record mine{RecordState::kRunning, self.slot, pthread_self(), nullptr, nullptr, false};
    for (uint32_t i = 0; i < records_high; ++i) {
        if (&records[i] != own_record) release(&records[i]);
    }
    *own_record = mine;
}

void test_cancel() {
    ThreadExtra& own = domain().threads[self.slot];
    if (__builtin_expect(own.cancelled == 0, 1) || own.cancel_disabled != 0) return;
    own.cancelled = kEnding;  // what it does on its way out is not cut short again
    real.pthread_testcancel();
}

bool cancel_due() {
    const ThreadExtra& own = domain().threads[self.slot];
    return own.cancelled != 0 && own.cancelled != kEnding && own.cancel_disabled == 0;
}

bool asynchronous_cancel_due() {
    return cancel_due() && domain().threads[self.slot].cancel_type == PTHREAD_CANCEL_ASYNCHRONOUS;
}

dmt::SlotId slot_of_thread(pthread_t thread) {
    const Record* record = find_record(thread);
    return record && record->state == RecordState::kRunning ? record->slot : dmt::kNoSlot;
}

bool is_ended_thread(pthread_t thread) {
    const Record* record = find_record(thread);
    return record && record->state == RecordState::kEnded && !record->detached;
}

}  // namespace crane::interpose
