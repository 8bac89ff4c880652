// Threads: creation, end, join, detach, cancellation; C11 threads on top of them.
#include <threads.h>

#include "interpose/core/pauses.hpp"
#include "interpose/core/threads.hpp"

using namespace crane::interpose;

CRANE_EXPORT int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*routine)(void*),
                                void* argument) noexcept {
    if (!active()) return resolve_real(), real.pthread_create(thread, attributes, routine, argument);
    trap_loops();
    Operation turn(Op::kThreadCreate, process_key(runtime.process->pid));
    return create_thread(thread, attributes, routine, argument);
}

CRANE_EXPORT int pthread_setattr_default_np(const pthread_attr_t* attributes) noexcept {
    resolve_real();
    const int rc = real.pthread_setattr_default_np(attributes);
    if (rc == 0) note_default_attributes();
    return rc;
}

CRANE_EXPORT int pthread_join(pthread_t thread, void** result) {
    if (!active()) return resolve_real(), real.pthread_join(thread, result);
    return join_thread(thread, result, crane::dmt::kNoDeadline, false);
}

CRANE_EXPORT int pthread_tryjoin_np(pthread_t thread, void** result) noexcept {
    if (!active()) return resolve_real(), real.pthread_tryjoin_np(thread, result);
    return join_thread(thread, result, crane::dmt::kNoDeadline, true);
}

CRANE_EXPORT int pthread_clockjoin_np(pthread_t thread, void** result, clockid_t clock,
                                      const timespec* until) {
    if (!active()) return resolve_real(), real.pthread_clockjoin_np(thread, result, clock, until);
    if (!until) return join_thread(thread, result, crane::dmt::kNoDeadline, false);
    if (clock != CLOCK_REALTIME && clock != CLOCK_MONOTONIC) return EINVAL;
    return join_thread(thread, result, deadline_from_absolute(clock, *until), false);
}

CRANE_EXPORT int pthread_timedjoin_np(pthread_t thread, void** result, const timespec* until) {
    if (!active()) return resolve_real(), real.pthread_timedjoin_np(thread, result, until);
    return ::pthread_clockjoin_np(thread, result, CLOCK_REALTIME, until);
}

CRANE_EXPORT int pthread_detach(pthread_t thread) noexcept {
    if (!active()) return resolve_real(), real.pthread_detach(thread);
    Operation turn(Op::kThreadJoin, thread_key(thread));
    return detach_thread(thread);
}

CRANE_EXPORT int pthread_cancel(pthread_t thread) {
    if (!active()) return resolve_real(), real.pthread_cancel(thread);
    int rc;
    {
        Operation turn(Op::kSignal, thread_key(thread));
        rc = cancel_thread(thread);
    }
    if (asynchronous_cancel_due()) test_cancel();  // itself
    return rc;
}

/// Noted, and not passed on: libc would end an asynchronously cancelled thread by a signal wherever it is, in
/// the middle of what the shim does for it. It ends at its next cancellation point instead.
CRANE_EXPORT int pthread_setcanceltype(int type, int* old) {
    if (!active()) return resolve_real(), real.pthread_setcanceltype(type, old);
    if (type != PTHREAD_CANCEL_DEFERRED && type != PTHREAD_CANCEL_ASYNCHRONOUS) return EINVAL;
    uint32_t& own_type = domain().threads[self.slot].cancel_type;
    if (old) *old = static_cast<int>(own_type);
    own_type = static_cast<uint32_t>(type);
    if (type == PTHREAD_CANCEL_ASYNCHRONOUS) test_cancel();
    return 0;
}

CRANE_EXPORT void pthread_testcancel() {
    if (active()) {
        count_cheap_call();
        test_cancel();
    }
    resolve_real();
    real.pthread_testcancel();
}

CRANE_EXPORT int pthread_setcancelstate(int state, int* old) {
    resolve_real();
    const int rc = real.pthread_setcancelstate(state, old);
    if (rc != 0 || !active()) return rc;
    domain().threads[self.slot].cancel_disabled = state == PTHREAD_CANCEL_DISABLE;
    if (asynchronous_cancel_due()) test_cancel();
    return rc;
}

CRANE_EXPORT int pthread_yield_wrapper() asm("pthread_yield");
CRANE_EXPORT int pthread_yield_wrapper() {
    return sched_yield();
}

CRANE_EXPORT int sched_yield() noexcept {
    if (!active()) return resolve_real(), real.sched_yield();
    if (serial()) {
        make_way(Awaited::kMemory);  // in between pauses it does not end a spin
    } else {
        Operation turn(Op::kYield, own_key());
        turn.yield();
    }
    return 0;
}

// --- C11 threads: glibc's own call its internal functions, past any wrapper

namespace {

int c11_result(int rc) {
    switch (rc) {
        case 0:
            return thrd_success;
        case ENOMEM:
            return thrd_nomem;
        case ETIMEDOUT:
            return thrd_timedout;
        case EBUSY:
            return thrd_busy;
        default:
            return thrd_error;
    }
}

pthread_mutex_t* as_mutex(mtx_t* m) {
    return reinterpret_cast<pthread_mutex_t*>(m);
}
pthread_cond_t* as_condition(cnd_t* c) {
    return reinterpret_cast<pthread_cond_t*>(c);
}

}  // namespace

CRANE_EXPORT int thrd_create(thrd_t* thread, thrd_start_t routine, void* argument) {
    // The int result travels in the pointer, as glibc's own trampoline has it.
    using Routine = void* (*)(void*);
    return c11_result(pthread_create(thread, nullptr,
                                     reinterpret_cast<Routine>(reinterpret_cast<void*>(routine)), argument));
}

CRANE_EXPORT int thrd_join(thrd_t thread, int* result) {
    void* value = nullptr;
    const int rc = pthread_join(thread, &value);
    if (rc == 0 && result) *result = static_cast<int>(reinterpret_cast<intptr_t>(value));
    return c11_result(rc);
}

CRANE_EXPORT int thrd_detach(thrd_t thread) {
    return c11_result(pthread_detach(thread));
}
CRANE_EXPORT int thrd_sleep(const timespec* time, timespec* left) {
    const int error = ::clock_nanosleep(CLOCK_REALTIME, 0, time, left);
    return error == 0 ? 0 : error == EINTR ? -1 : -2;
}
CRANE_EXPORT void thrd_yield() {
    sched_yield();
}
CRANE_EXPORT int mtx_lock(mtx_t* m) {
    return c11_result(pthread_mutex_lock(as_mutex(m)));
}
CRANE_EXPORT int mtx_trylock(mtx_t* m) {
    return c11_result(pthread_mutex_trylock(as_mutex(m)));
}
CRANE_EXPORT int mtx_timedlock(mtx_t* m, const timespec* until) {
    return c11_result(pthread_mutex_timedlock(as_mutex(m), until));
}
CRANE_EXPORT int mtx_unlock(mtx_t* m) {
    return c11_result(pthread_mutex_unlock(as_mutex(m)));
}
CRANE_EXPORT int cnd_wait(cnd_t* c, mtx_t* m) {
    return c11_result(pthread_cond_wait(as_condition(c), as_mutex(m)));
}
CRANE_EXPORT int cnd_timedwait(cnd_t* c, mtx_t* m, const timespec* until) {
    return c11_result(pthread_cond_timedwait(as_condition(c), as_mutex(m), until));
}
CRANE_EXPORT int cnd_signal(cnd_t* c) {
    return c11_result(pthread_cond_signal(as_condition(c)));
}
CRANE_EXPORT int cnd_broadcast(cnd_t* c) {
    return c11_result(pthread_cond_broadcast(as_condition(c)));
}
CRANE_EXPORT void call_once(once_flag* flag, void (*routine)(void)) {
    pthread_once(reinterpret_cast<pthread_once_t*>(flag), routine);
}
