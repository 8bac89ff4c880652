// Mutexes, reader-writer locks, spin locks. The real object keeps its state (owner, recursion, robustness,
// kind); a call that would block waits in the schedule and tries again.
#include "interpose/core/object_waits.hpp"
#include "interpose/core/polls.hpp"
#include "interpose/core/runtime.hpp"
#include "interpose/core/threads.hpp"

namespace crane::interpose {
namespace {

constexpr int kTypeMask = 3;

bool is_shared(const pthread_rwlock_t* l) {
    return l->__data.__shared != 0;
}

bool checks_owner(const pthread_mutex_t* m) {
    return (m->__data.__kind & kTypeMask) == PTHREAD_MUTEX_ERRORCHECK_NP &&
           m->__data.__owner == static_cast<int>(scheduler().slot(self.slot).tid);
}

uint64_t rwlock_key(const pthread_rwlock_t* l) {
    return object_key(l, is_shared(l));
}
/// Whether it is shared between processes is not recorded in it: its place in the page serves for both.
uint64_t spin_key(const pthread_spinlock_t* l) {
    return shared_key(const_cast<const int*>(l));
}

constexpr int kCancelled = -1;

template <typename Try>
int lock_in_turn(Op op, uint64_t key, uint64_t deadline_ns, Try try_it, bool robust) {
    Operation turn(op, key);
    for (;;) {
        const int rc = try_it();
        if (rc != EBUSY) return rc;
        if (asynchronous_cancel_due()) return kCancelled;
        if (turn.outlast(key, deadline_ns, true, robust ? robust_bit() : 0) == dmt::WaitResult::kTimedOut) {
            const int last = try_it();
            return last == EBUSY ? ETIMEDOUT : last;
        }
    }
}

/// Repeats a try-call until it stops saying EBUSY, or the deadline passes.
template <typename Try>
int lock_with(Op op, uint64_t key, uint64_t deadline_ns, Try try_it, bool robust = false) {
    for (;;) {
        const int rc = lock_in_turn(op, key, deadline_ns, try_it, robust);
        if (rc != kCancelled) return rc;
        test_cancel();
    }
}

int mutex_lock(pthread_mutex_t* m, uint64_t deadline_ns) {
    if (checks_owner(m)) {
        Operation turn(Op::kMutexLock, mutex_key(m));
        return EDEADLK;
    }
    return lock_with(
        Op::kMutexLock, mutex_key(m), deadline_ns, [m] { return try_mutex(m); }, is_robust(m));
}

int mutex_try(pthread_mutex_t* m) {
    return try_in_turn(Op::kMutexLock, mutex_key(m), [m] { return try_mutex(m); });
}

}  // namespace
}  // namespace crane::interpose

using namespace crane::interpose;

CRANE_EXPORT int pthread_mutex_lock(pthread_mutex_t* m) noexcept {
    if (!active()) return resolve_real(), real.pthread_mutex_lock(m);
    return mutex_lock(m, crane::dmt::kNoDeadline);
}

CRANE_EXPORT int pthread_mutex_trylock(pthread_mutex_t* m) noexcept {
    if (!active()) return resolve_real(), real.pthread_mutex_trylock(m);
    return mutex_try(m);
}

CRANE_EXPORT int pthread_mutex_timedlock(pthread_mutex_t* m, const timespec* until) noexcept {
    if (!active()) return resolve_real(), real.pthread_mutex_timedlock(m, until);
    const int rc = mutex_try(m);
    if (rc != EBUSY) return rc;
    if (until->tv_nsec < 0 || until->tv_nsec >= 1'000'000'000) return EINVAL;
    const uint64_t deadline = deadline_from_absolute(CLOCK_REALTIME, *until);
    return mutex_lock(m, deadline);
}

CRANE_EXPORT int pthread_mutex_clocklock(pthread_mutex_t* m, clockid_t clock,
                                         const timespec* until) noexcept {
    if (!active()) return resolve_real(), real.pthread_mutex_clocklock(m, clock, until);
    if (clock != CLOCK_REALTIME && clock != CLOCK_MONOTONIC) return EINVAL;
    const int rc = mutex_try(m);
    if (rc != EBUSY) return rc;
    if (until->tv_nsec < 0 || until->tv_nsec >= 1'000'000'000) return EINVAL;
    const uint64_t deadline = deadline_from_absolute(clock, *until);
    return mutex_lock(m, deadline);
}

CRANE_EXPORT int pthread_mutex_unlock(pthread_mutex_t* m) noexcept {
    if (!active()) return resolve_real(), real.pthread_mutex_unlock(m);
    Operation turn(Op::kMutexUnlock, mutex_key(m));
    return unlock_mutex_in_turn(m);
}

// --- reader-writer locks

namespace {

bool writes_already(const pthread_rwlock_t* l) {
    return l->__data.__cur_writer != 0 &&
           l->__data.__cur_writer == static_cast<int>(scheduler().slot(self.slot).tid);
}

/// PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP: who reads waits while one who writes does. A lock between
/// processes has no key of its own to tell by.
bool prefers_writers(const pthread_rwlock_t* l) {
    return l->__data.__flags == PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP && !is_shared(l);
}

bool writer_waits(uint64_t key) {
    const DomainState& d = domain();
    for (crane::dmt::SlotId slot = 0; slot < d.scheduler.high_water; ++slot)
        if (d.scheduler.slots[slot].state != crane::dmt::SlotState::kFree && d.threads[slot].awaits == key)
            return true;
    return false;
}

int try_reading(pthread_rwlock_t* l) {
    if (prefers_writers(l) && writer_waits(rwlock_key(l))) return EBUSY;
    return real.pthread_rwlock_tryrdlock(l);
}

int read_lock(pthread_rwlock_t* l, uint64_t deadline) {
    if (writes_already(l)) {
        Operation turn(Op::kRwLock, rwlock_key(l));
        return EDEADLK;
    }
    return lock_with(Op::kRwLock, rwlock_key(l), deadline, [l] { return try_reading(l); });
}

/// It holds those back who read, until it has the lock or gives up.
int write_preferred(pthread_rwlock_t* l, uint64_t deadline) {
    const uint64_t key = rwlock_key(l);
    Operation turn(Op::kRwLock, key);
    uint64_t& awaits = domain().threads[self.slot].awaits;
    bool timed_out = false;
    for (;;) {
        const int rc = real.pthread_rwlock_trywrlock(l);
        const bool cancelled = rc == EBUSY && asynchronous_cancel_due();
        if (rc == EBUSY && !timed_out && !cancelled) {
            awaits = key;
            timed_out = turn.outlast(key, deadline, true, 0) == crane::dmt::WaitResult::kTimedOut;
            continue;
        }
        awaits = 0;
        if (rc != EBUSY) return rc;
        wake_waiters(l, false, ~uint32_t{0});
        return cancelled ? kCancelled : ETIMEDOUT;
    }
}

int write_lock(pthread_rwlock_t* l, uint64_t deadline) {
    if (writes_already(l)) {
        Operation turn(Op::kRwLock, rwlock_key(l));
        return EDEADLK;
    }
    if (!prefers_writers(l))
        return lock_with(Op::kRwLock, rwlock_key(l), deadline,
                         [l] { return real.pthread_rwlock_trywrlock(l); });
    int rc;
    while ((rc = write_preferred(l, deadline)) == kCancelled) test_cancel();
    return rc;
}

uint64_t checked_deadline(clockid_t clock, const timespec* until, int& error) {
    error = until->tv_nsec < 0 || until->tv_nsec >= 1'000'000'000 ? EINVAL : 0;
    return error ? 0 : deadline_from_absolute(clock, *until);
}

}  // namespace

CRANE_EXPORT int pthread_rwlock_rdlock(pthread_rwlock_t* l) noexcept {
    if (!active()) return resolve_real(), real.pthread_rwlock_rdlock(l);
    return read_lock(l, crane::dmt::kNoDeadline);
}

CRANE_EXPORT int pthread_rwlock_wrlock(pthread_rwlock_t* l) noexcept {
    if (!active()) return resolve_real(), real.pthread_rwlock_wrlock(l);
    return write_lock(l, crane::dmt::kNoDeadline);
}

CRANE_EXPORT int pthread_rwlock_tryrdlock(pthread_rwlock_t* l) noexcept {
    if (!active()) return resolve_real(), real.pthread_rwlock_tryrdlock(l);
    return try_in_turn(Op::kRwLock, rwlock_key(l), [l] { return try_reading(l); });
}

CRANE_EXPORT int pthread_rwlock_trywrlock(pthread_rwlock_t* l) noexcept {
    if (!active()) return resolve_real(), real.pthread_rwlock_trywrlock(l);
    return try_in_turn(Op::kRwLock, rwlock_key(l), [l] { return real.pthread_rwlock_trywrlock(l); });
}

CRANE_EXPORT int pthread_rwlock_timedrdlock(pthread_rwlock_t* l, const timespec* until) noexcept {
    if (!active()) return resolve_real(), real.pthread_rwlock_timedrdlock(l, until);
    int error;
    const uint64_t deadline = checked_deadline(CLOCK_REALTIME, until, error);
    return error ? error : read_lock(l, deadline);
}

CRANE_EXPORT int pthread_rwlock_timedwrlock(pthread_rwlock_t* l, const timespec* until) noexcept {
    if (!active()) return resolve_real(), real.pthread_rwlock_timedwrlock(l, until);
    int error;
    const uint64_t deadline = checked_deadline(CLOCK_REALTIME, until, error);
    return error ? error : write_lock(l, deadline);
}

CRANE_EXPORT int pthread_rwlock_clockrdlock(pthread_rwlock_t* l, clockid_t clock,
                                            const timespec* until) noexcept {
    if (!active()) return resolve_real(), real.pthread_rwlock_clockrdlock(l, clock, until);
    int error;
    const uint64_t deadline = checked_deadline(clock, until, error);
    return error ? error : read_lock(l, deadline);
}

CRANE_EXPORT int pthread_rwlock_clockwrlock(pthread_rwlock_t* l, clockid_t clock,
                                            const timespec* until) noexcept {
    if (!active()) return resolve_real(), real.pthread_rwlock_clockwrlock(l, clock, until);
    int error;
    const uint64_t deadline = checked_deadline(clock, until, error);
    return error ? error : write_lock(l, deadline);
}

CRANE_EXPORT int pthread_rwlock_unlock(pthread_rwlock_t* l) noexcept {
    if (!active()) return resolve_real(), real.pthread_rwlock_unlock(l);
    Operation turn(Op::kRwUnlock, rwlock_key(l));
    const int rc = real.pthread_rwlock_unlock(l);
    if (rc == 0) wake_waiters(l, is_shared(l), ~uint32_t{0});
    return rc;
}

// --- spin locks

CRANE_EXPORT int pthread_spin_lock(pthread_spinlock_t* l) noexcept {
    if (!active()) return resolve_real(), real.pthread_spin_lock(l);
    return lock_with(Op::kSpin, spin_key(l), crane::dmt::kNoDeadline,
                     [l] { return real.pthread_spin_trylock(l); });
}

CRANE_EXPORT int pthread_spin_trylock(pthread_spinlock_t* l) noexcept {
    if (!active()) return resolve_real(), real.pthread_spin_trylock(l);
    return try_in_turn(Op::kSpin, spin_key(l), [l] { return real.pthread_spin_trylock(l); });
}

CRANE_EXPORT int pthread_spin_unlock(pthread_spinlock_t* l) noexcept {
    if (!active()) return resolve_real(), real.pthread_spin_unlock(l);
    Operation turn(Op::kSpin, spin_key(l));
    const int rc = real.pthread_spin_unlock(l);
    wake_waiters(const_cast<const int*>(l), true, 1);
    return rc;
}
