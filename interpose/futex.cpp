// syscall(): the system calls that programs make by number. Those that block or that carry nondeterminism go
// the same way as their wrappers; the others go to the kernel.
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>

#include <cstdarg>

#include "interpose/core/entropy.hpp"
#include "interpose/core/object_waits.hpp"
#include "interpose/core/runtime.hpp"
#include "interpose/core/sandbox.hpp"

namespace crane::interpose {
namespace {

long fail(int error) {
    errno = error;
    return -1;
}

bool is_shared(int operation) {
    return !(operation & FUTEX_PRIVATE_FLAG);
}
uint64_t futex_key(const uint32_t* word, int operation) {
    return object_key(word, is_shared(operation));
}

uint64_t futex_deadline(int operation, const timespec* timeout) {
    if (!timeout) return dmt::kNoDeadline;
    if ((operation & FUTEX_CMD_MASK) == FUTEX_WAIT) return deadline_from_relative_ns(to_ns(*timeout));
    return deadline_from_absolute(operation & FUTEX_CLOCK_REALTIME ? CLOCK_REALTIME : CLOCK_MONOTONIC,
                                  *timeout);
}

long futex_wait(uint32_t* word, int operation, uint32_t expected, const timespec* timeout) {
    if (timeout && !valid_timespec(timeout)) return fail(EINVAL);
    const uint64_t key = futex_key(word, operation);
    Operation turn(Op::kFutexWait, key);
    if (__atomic_load_n(word, __ATOMIC_SEQ_CST) != expected) {
        turn.yield();
        return fail(EAGAIN);
    }
    switch (turn.contend(key, futex_deadline(operation, timeout), true)) {
        case dmt::WaitResult::kTimedOut:
            return fail(ETIMEDOUT);
        case dmt::WaitResult::kInterrupted:
            return fail(EINTR);
        case dmt::WaitResult::kSignaled:
            break;
    }
    return 0;
}

long futex_wake(uint32_t* word, int operation, uint32_t most) {
    const uint64_t key = futex_key(word, operation);
    Operation turn(Op::kFutexWake, key);
    // Waiters that a shared wake meets by chance see a futex that returned for no reason, which they must
    // expect.
    return scheduler().signal(key, is_shared(operation) ? ~uint32_t{0} : most);
}

long futex_requeue(uint32_t* word, int operation, uint32_t wake, uint32_t move, uint32_t* target,
                   uint32_t expected) {
    Operation turn(Op::kFutexWake, futex_key(word, operation), futex_key(target, operation));
    const int command = operation & FUTEX_CMD_MASK;
    if (command == FUTEX_CMP_REQUEUE && __atomic_load_n(word, __ATOMIC_SEQ_CST) != expected)
        return fail(EAGAIN);
    if (is_shared(operation)) return scheduler().signal(shared_key(word), ~uint32_t{0});
    return scheduler().requeue(address_key(word), address_key(target), wake, move);
}

long futex_wake_op(uint32_t* word, int operation, uint32_t wake, uint32_t wake2, uint32_t* second,
                   uint32_t code) {
    const bool shared = is_shared(operation);
    const uint64_t key = object_key(word, shared), second_key = object_key(second, shared);
    Operation turn(Op::kFutexWake, key, second_key);
    const uint32_t op = code >> 28 & 7, compare = code >> 24 & 15;
    int32_t argument = static_cast<int32_t>(code << 8) >> 20;
    const int32_t against = static_cast<int32_t>(code << 20) >> 20;
    if (code >> 31) argument = 1 << (argument & 31);
    const auto old = static_cast<int32_t>(__atomic_load_n(second, __ATOMIC_SEQ_CST));
    const int32_t values[] = {argument, old + argument, old | argument, old & ~argument, old ^ argument};
    if (op > 4 || compare > 5) return fail(ENOSYS);
    __atomic_store_n(second, static_cast<uint32_t>(values[op]), __ATOMIC_SEQ_CST);
    const bool holds[] = {old == against, old != against, old<against, old <= against, old> against,
                          old >= against};
    long woken = scheduler().signal(key, shared ? ~uint32_t{0} : wake);
    if (holds[compare]) woken += scheduler().signal(second_key, shared ? ~uint32_t{0} : wake2);
    return woken;
}

long do_futex(long a, long b, long c, long d, long e, long f) {
    auto* word = reinterpret_cast<uint32_t*>(a);
    const int operation = static_cast<int>(b);
    switch (operation & FUTEX_CMD_MASK) {
        case FUTEX_WAIT:
        case FUTEX_WAIT_BITSET:
            return futex_wait(word, operation, static_cast<uint32_t>(c),
                              reinterpret_cast<const timespec*>(d));
        case FUTEX_WAKE:
        case FUTEX_WAKE_BITSET:
            return futex_wake(word, operation, static_cast<uint32_t>(c));
        case FUTEX_REQUEUE:
        case FUTEX_CMP_REQUEUE:
            return futex_requeue(word, operation, static_cast<uint32_t>(c), static_cast<uint32_t>(d),
                                 reinterpret_cast<uint32_t*>(e), static_cast<uint32_t>(f));
        case FUTEX_WAKE_OP:
            return futex_wake_op(word, operation, static_cast<uint32_t>(c), static_cast<uint32_t>(d),
                                 reinterpret_cast<uint32_t*>(e), static_cast<uint32_t>(f));
        default:
            refuse_call("a priority-inheritance futex (syscall)");
            return fail(ENOSYS);
    }
}

}  // namespace
}  // namespace crane::interpose

using namespace crane::interpose;

CRANE_EXPORT long syscall(long number, ...) noexcept {
    va_list list;
    va_start(list, number);
    long a[6];
    for (long& value : a) value = va_arg(list, long);
    va_end(list);
    if (!active()) {
        const long rc = raw6(number, a[0], a[1], a[2], a[3], a[4], a[5]);
        return rc < 0 && rc > -4096 ? fail(static_cast<int>(-rc)) : rc;
    }
    switch (number) {
        case SYS_futex:
            return do_futex(a[0], a[1], a[2], a[3], a[4], a[5]);
        case SYS_getrandom: {
            Operation turn(Op::kEntropy, entropy_key());
            fill_random(reinterpret_cast<void*>(a[0]), static_cast<size_t>(a[1]));
            return a[1];
        }
        case SYS_clock_gettime:
            return clock_gettime(static_cast<clockid_t>(a[0]), reinterpret_cast<timespec*>(a[1]));
        case SYS_gettimeofday:
            return gettimeofday(reinterpret_cast<timeval*>(a[0]), nullptr);
        case SYS_sched_yield:
            return sched_yield();
        case SYS_read:
            return read(static_cast<int>(a[0]), reinterpret_cast<void*>(a[1]), static_cast<size_t>(a[2]));
        case SYS_write:
            return write(static_cast<int>(a[0]), reinterpret_cast<const void*>(a[1]),
                         static_cast<size_t>(a[2]));
        case SYS_close:
            return close(static_cast<int>(a[0]));
        case SYS_accept4:
            return accept4(static_cast<int>(a[0]), reinterpret_cast<sockaddr*>(a[1]),
                           reinterpret_cast<socklen_t*>(a[2]), static_cast<int>(a[3]));
        case SYS_tgkill:
        case SYS_tkill: {
            const long tid = number == SYS_tgkill ? a[1] : a[0];
            const long signal = number == SYS_tgkill ? a[2] : a[1];
            if (tid == raw(SYS_gettid)) return raise(static_cast<int>(signal));
            break;
        }
        case SYS_io_uring_setup:
        case SYS_io_setup:
            return fail(ENOSYS);
        case SYS_clone:
        case SYS_clone3:
        case SYS_fork:
        case SYS_vfork:
            refuse_call("a process or thread made by syscall(): it would run outside the schedule");
            return fail(ENOSYS);
        case SYS_kill:
            return kill(static_cast<pid_t>(a[0]), static_cast<int>(a[1]));
        case SYS_prctl:
            return prctl(static_cast<int>(a[0]), a[1], a[2], a[3], a[4]);
        case SYS_seccomp:
            if (a[0] == SECCOMP_SET_MODE_STRICT) return prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
            if (a[0] == SECCOMP_SET_MODE_FILTER) {
                const long rc = set_filter(static_cast<unsigned>(a[1]), reinterpret_cast<const void*>(a[2]));
                return rc < 0 ? fail(static_cast<int>(-rc)) : rc;
            }
            break;
        case SYS_getppid:
            return getppid();
        case SYS_exit_group:
            _exit(static_cast<int>(a[0]));
        default:
            break;
    }
    const long rc = raw6(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    return rc < 0 && rc > -4096 ? fail(static_cast<int>(-rc)) : rc;
}
