// Condition variables, barriers, semaphores, once. Condition variables and barriers live wholly in the
// schedule: the real object is never touched. Semaphores keep their count in the real object.
#include <climits>
#include <cstring>

#include "interpose/core/blocking.hpp"
#include "interpose/core/object_waits.hpp"
#include "interpose/core/polls.hpp"
#include "interpose/core/runtime.hpp"
#include "interpose/core/threads.hpp"

namespace crane::interpose {
namespace {

bool is_shared(const pthread_cond_t* c) {
    return c->__data.__wrefs & 1;
}
uint64_t condition_key(const pthread_cond_t* c) {
    return object_key(c, is_shared(c));
}
clockid_t clock_of(const pthread_cond_t* c) {
    return c->__data.__wrefs & 2 ? CLOCK_MONOTONIC : CLOCK_REALTIME;
}

int wait_in_turn(pthread_cond_t* c, pthread_mutex_t* m, uint64_t deadline, bool& signaled) {
    Operation turn(Op::kCondWait, condition_key(c), mutex_key(m));
    const int rc = unlock_mutex_in_turn(m);
    if (rc != 0) return rc;
    // A signal handler may end the wait early: POSIX allows a condition to wake for no reason.
    const dmt::WaitResult result = turn.wait(condition_key(c), deadline, true);
    signaled = result == dmt::WaitResult::kSignaled;
    const int locked = lock_mutex_in_turn(turn, m);
    if (locked != 0) return locked;
    return result == dmt::WaitResult::kTimedOut ? ETIMEDOUT : 0;
}

/// A cancelled thread unwinds from here, with the mutex in hand; but not one that was woken first: what it
/// was woken for would be lost.
int condition_wait(pthread_cond_t* c, pthread_mutex_t* m, uint64_t deadline) {
    bool signaled = false;
    test_cancel();
    const int rc = wait_in_turn(c, m, deadline, signaled);
    if (!signaled) test_cancel();
    return rc;
}

int condition_wake(pthread_cond_t* c, uint32_t most) {
    Operation turn(Op::kCondSignal, condition_key(c));
    wake_waiters(c, is_shared(c), most);
    return 0;
}

bool bad_time(const timespec* t) {
    return t->tv_nsec < 0 || t->tv_nsec >= 1'000'000'000;
}

}  // namespace
}  // namespace crane::interpose

using namespace crane::interpose;

CRANE_EXPORT int pthread_cond_wait(pthread_cond_t* c, pthread_mutex_t* m) {
    if (!active()) return resolve_real(), real.pthread_cond_wait(c, m);
    return condition_wait(c, m, crane::dmt::kNoDeadline);
}

CRANE_EXPORT int pthread_cond_timedwait(pthread_cond_t* c, pthread_mutex_t* m, const timespec* until) {
    if (!active()) return resolve_real(), real.pthread_cond_timedwait(c, m, until);
    if (bad_time(until)) return EINVAL;
    return condition_wait(c, m, deadline_from_absolute(clock_of(c), *until));
}

CRANE_EXPORT int pthread_cond_clockwait(pthread_cond_t* c, pthread_mutex_t* m, clockid_t clock,
                                        const timespec* until) {
    if (!active()) return resolve_real(), real.pthread_cond_clockwait(c, m, clock, until);
    if (bad_time(until) || (clock != CLOCK_REALTIME && clock != CLOCK_MONOTONIC)) return EINVAL;
    return condition_wait(c, m, deadline_from_absolute(clock, *until));
}

CRANE_EXPORT int pthread_cond_signal(pthread_cond_t* c) noexcept {
    if (!active()) return resolve_real(), real.pthread_cond_signal(c);
    return condition_wake(c, 1);
}

CRANE_EXPORT int pthread_cond_broadcast(pthread_cond_t* c) noexcept {
    if (!active()) return resolve_real(), real.pthread_cond_broadcast(c);
    return condition_wake(c, ~uint32_t{0});
}

// --- barriers

namespace {

/// Laid over pthread_barrier_t, which is ours alone: no real barrier function ever sees it.
struct VirtualBarrier {
    uint32_t magic, count, arrived, shared;
    uint64_t number;  ///< n-th of the domain, its current round: who waits is known by it
};
static_assert(sizeof(VirtualBarrier) <= sizeof(pthread_barrier_t));
constexpr uint32_t kBarrierMagic = 0x6261'7272;

VirtualBarrier* as_virtual(pthread_barrier_t* b) {
    auto* v = reinterpret_cast<VirtualBarrier*>(b);
    return v->magic == kBarrierMagic ? v : nullptr;
}

}  // namespace

namespace {

void release_from_barrier(uint64_t round) {
    DomainState& d = domain();
    for (crane::dmt::SlotId slot = 0; slot < d.scheduler.high_water; ++slot)
        if (d.threads[slot].barrier_round == round) d.threads[slot].barrier_round = 0;
}

}  // namespace

CRANE_EXPORT int pthread_barrier_init(pthread_barrier_t* b, const pthread_barrierattr_t* attributes,
                                      unsigned count) noexcept {
    if (!active()) return resolve_real(), real.pthread_barrier_init(b, attributes, count);
    if (count == 0 || count > INT_MAX) return EINVAL;
    int shared = PTHREAD_PROCESS_PRIVATE;
    if (attributes) pthread_barrierattr_getpshared(attributes, &shared);
    const VirtualBarrier fresh{kBarrierMagic, count, 0, shared == PTHREAD_PROCESS_SHARED, 0};
    std::memcpy(static_cast<void*>(b), &fresh, sizeof(fresh));
    return 0;
}

CRANE_EXPORT int pthread_barrier_wait(pthread_barrier_t* b) noexcept {
    VirtualBarrier* v = as_virtual(b);
    if (!active() || !v) return resolve_real(), real.pthread_barrier_wait(b);
    const uint64_t key = object_key(b, v->shared);
    Operation turn(Op::kBarrier, key);
    if (v->arrived == 0) v->number = ++domain().barrier_rounds;
    if (++v->arrived == v->count) {
        v->arrived = 0;
        release_from_barrier(v->number);
        wake_waiters(b, v->shared, ~uint32_t{0});
        return PTHREAD_BARRIER_SERIAL_THREAD;
    }
    // Who is released does not look at the barrier again: it may be gone by then.
    uint64_t& waits_at = domain().threads[self.slot].barrier_round;
    const uint64_t outer = waits_at, round = v->number;
    waits_at = round;
    while (waits_at == round) turn.outlast(key);
    waits_at = outer;
    return 0;
}

CRANE_EXPORT int pthread_barrier_destroy(pthread_barrier_t* b) noexcept {
    VirtualBarrier* v = as_virtual(b);
    if (!active() || !v) return resolve_real(), real.pthread_barrier_destroy(b);
    v->magic = 0;
    return 0;
}

// --- semaphores

namespace {

/// glibc's struct new_sem: the futex word's `private` flag follows the 64-bit count.
bool is_shared(const sem_t* s) {
    int32_t flag;
    std::memcpy(&flag, reinterpret_cast<const char*>(s) + 8, sizeof(flag));
    return flag != 0;
}
uint64_t semaphore_key(const sem_t* s) {
    return object_key(s, is_shared(s));
}

int semaphore_wait_in_turn(sem_t* s, uint64_t deadline) {
    Operation turn(Op::kSemWait, semaphore_key(s));
    for (;;) {
        if (real.sem_trywait(s) == 0) return 0;
        if (errno != EAGAIN) return -1;
        switch (turn.contend(semaphore_key(s), deadline, true)) {
            case crane::dmt::WaitResult::kSignaled:
                break;
            case crane::dmt::WaitResult::kTimedOut:
                errno = ETIMEDOUT;
                return -1;
            case crane::dmt::WaitResult::kInterrupted:
                // With a timeout it is a futex's wait that the kernel does not begin again.
                if (deadline == crane::dmt::kNoDeadline && restart_after_signals()) break;
                errno = EINTR;
                return -1;
        }
    }
}

/// One that has it is not cancelled any more: what it has taken would be lost.
int semaphore_wait(sem_t* s, uint64_t deadline) {
    test_cancel();
    const int rc = semaphore_wait_in_turn(s, deadline);
    if (rc == 0) return 0;
    const int error = errno;
    test_cancel();
    errno = error;
    return rc;
}

int semaphore_timed(sem_t* s, clockid_t clock, const timespec* until) {
    if (bad_time(until) || (clock != CLOCK_REALTIME && clock != CLOCK_MONOTONIC)) {
        errno = EINVAL;
        return -1;
    }
    return semaphore_wait(s, deadline_from_absolute(clock, *until));
}

}  // namespace

CRANE_EXPORT int sem_wait(sem_t* s) {
    if (!active()) return resolve_real(), real.sem_wait(s);
    return semaphore_wait(s, crane::dmt::kNoDeadline);
}

CRANE_EXPORT int sem_trywait(sem_t* s) noexcept {
    if (!active()) return resolve_real(), real.sem_trywait(s);
    const int rc = try_in_turn(Op::kSemWait, semaphore_key(s), [s] {
        if (real.sem_trywait(s) == 0) return 0;
        return errno == EAGAIN ? EBUSY : errno;
    });
    if (rc == 0) return 0;
    errno = rc == EBUSY ? EAGAIN : rc;
    return -1;
}

CRANE_EXPORT int sem_timedwait(sem_t* s, const timespec* until) {
    if (!active()) return resolve_real(), real.sem_timedwait(s, until);
    return semaphore_timed(s, CLOCK_REALTIME, until);
}

CRANE_EXPORT int sem_clockwait(sem_t* s, clockid_t clock, const timespec* until) {
    if (!active()) return resolve_real(), real.sem_clockwait(s, clock, until);
    return semaphore_timed(s, clock, until);
}

CRANE_EXPORT int sem_post(sem_t* s) noexcept {
    if (!active()) return resolve_real(), real.sem_post(s);
    Operation turn(Op::kSemPost, semaphore_key(s));
    const int rc = real.sem_post(s);
    if (rc == 0) wake_waiters(s, is_shared(s), 1);
    return rc;
}

CRANE_EXPORT int sem_getvalue(sem_t* s, int* value) noexcept {
    if (!active()) return resolve_real(), real.sem_getvalue(s, value);
    Operation turn(Op::kSemWait, semaphore_key(s));
    return real.sem_getvalue(s, value);
}

// --- once

namespace {

// glibc's own values: 2 is done. 1 marks a routine under way; ours carries the process, since a child that
// forked in the middle of it must start over.
constexpr int kOnceDone = 2;
int once_running() {
    return 1 | static_cast<int>(runtime.process_index + 1) << 2;
}

struct OnceGuard {
    pthread_once_t* control;
    bool finished = false;
    ~OnceGuard() noexcept(false) {
        // An exception or cancellation in the routine leaves it undone, for the next caller.
        Operation turn(Op::kOnce, address_key(control));
        __atomic_store_n(control, finished ? kOnceDone : 0, __ATOMIC_RELEASE);
        wake_waiters(control, false, ~uint32_t{0});
    }
};

}  // namespace

CRANE_EXPORT int pthread_once(pthread_once_t* control, void (*routine)(void)) {
    if (!active()) return resolve_real(), real.pthread_once(control, routine);
    // In serial nobody else runs while this looks; in parallel the look itself has to be in the schedule.
    if (serial() && __atomic_load_n(control, __ATOMIC_ACQUIRE) == kOnceDone) return 0;
    {
        Operation turn(Op::kOnce, address_key(control));
        for (;;) {
            const int state = __atomic_load_n(control, __ATOMIC_ACQUIRE);
            if (state == kOnceDone) return 0;
            if (state != once_running()) break;
            turn.outlast(address_key(control));
        }
        __atomic_store_n(control, once_running(), __ATOMIC_RELAXED);
    }
    OnceGuard guard{control};
    routine();
    guard.finished = true;
    return 0;
}
