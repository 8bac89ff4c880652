// Futexes: waits on a word of memory, which programs make by syscall().
#include "interpose/futex.hpp"
#include "interpose/core/user_memory.hpp"

#include <linux/futex.h>

#include "interpose/core/blocking.hpp"
#include "interpose/core/object_waits.hpp"
#include "interpose/core/runtime.hpp"

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
    if (!readable_if_given(timeout) || !readable(word, sizeof(*word))) return fail(EFAULT);
    if (timeout && !valid_timespec(timeout)) return fail(EINVAL);
    const uint64_t key = futex_key(word, operation);
    Operation turn(Op::kFutexWait, key);
    for (;;) {
        if (__atomic_load_n(word, __ATOMIC_SEQ_CST) != expected) {
            turn.yield();
            return fail(EAGAIN);
        }
        switch (turn.contend(key, futex_deadline(operation, timeout), true)) {
            case dmt::WaitResult::kTimedOut:
                return fail(ETIMEDOUT);
            case dmt::WaitResult::kInterrupted:
                // With a timeout the kernel does not begin it again.
                if (timeout || !restart_after_signals()) return fail(EINTR);
                break;
            case dmt::WaitResult::kSignaled:
                return 0;
        }
    }
}

/// Waiters that a wake meets which is not for them see a futex that returned for no reason, which they must
/// expect; of those woken no more are told of than were asked for.
long wake_up(uint64_t key, bool all, uint32_t most) {
    const uint32_t woken = scheduler().signal(key, all ? ~uint32_t{0} : most);
    return woken < most ? woken : most;
}

/// The kernel counts them after it has woken one.
uint32_t one_at_least(uint32_t most) {
    return static_cast<int32_t>(most) < 1 ? 1 : most;
}

/// `some`: only those that wait for some bits, which nobody notes.
long futex_wake(uint32_t* word, int operation, uint32_t most, bool some = false) {
    // The kernel looks at the page only where it has to know which memory that is.
    if (is_shared(operation) && !readable(word, sizeof(*word))) return fail(EFAULT);
    const uint64_t key = futex_key(word, operation);
    Operation turn(Op::kFutexWake, key);
    return wake_up(key, some || is_shared(operation), one_at_least(most));
}

long futex_requeue(uint32_t* word, int operation, uint32_t wake, uint32_t move, uint32_t* target,
                   uint32_t expected) {
    if (static_cast<int32_t>(wake) < 0 || static_cast<int32_t>(move) < 0) return fail(EINVAL);
    Operation turn(Op::kFutexWake, futex_key(word, operation), futex_key(target, operation));
    const int command = operation & FUTEX_CMD_MASK;
    if (is_shared(operation) && !readable(target, sizeof(*target))) return fail(EFAULT);
    if (command == FUTEX_CMP_REQUEUE && !readable(word, sizeof(*word))) return fail(EFAULT);
    if (command == FUTEX_CMP_REQUEUE && __atomic_load_n(word, __ATOMIC_SEQ_CST) != expected)
        return fail(EAGAIN);
    if (is_shared(operation)) {
        const uint32_t room = static_cast<uint32_t>(INT32_MAX) - wake;
        return wake_up(shared_key(word), true, wake + (move < room ? move : room));
    }
    return scheduler().requeue(address_key(word), address_key(target), wake, move);
}

long futex_wake_op(uint32_t* word, int operation, uint32_t most, uint32_t most2, uint32_t* second,
                   uint32_t code) {
    // Not writable(), which writes: under `parallel` another thread may change the word meanwhile.
    if (!readable(second, sizeof(*second))) return fail(EFAULT);
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
    long woken = wake_up(key, shared, one_at_least(most));
    if (holds[compare]) woken += wake_up(second_key, shared, one_at_least(most2));
    return woken;
}

}  // namespace

long futex_in_operation(const long* a) {
    auto* word = reinterpret_cast<uint32_t*>(a[0]);
    const int operation = static_cast<int>(a[1]);
    const int command = operation & FUTEX_CMD_MASK;
    const uint64_t key = futex_key(word, operation);
    if ((command == FUTEX_WAIT || command == FUTEX_WAIT_BITSET) && a[3] == 0) {
        if (__atomic_load_n(word, __ATOMIC_SEQ_CST) != static_cast<uint32_t>(a[2])) return -EAGAIN;
        scheduler().wait(self.slot, static_cast<uint32_t>(Op::kFutexWait), key, 0, dmt::kNoDeadline, false,
                         true);
        return 0;
    }
    if (command == FUTEX_WAKE) scheduler().signal(key, static_cast<uint32_t>(a[2]));
    return raw(SYS_futex, a[0], a[1], a[2], a[3], a[4], a[5]);
}

long do_futex(long a, long b, long c, long d, long e, long f) {
    auto* word = reinterpret_cast<uint32_t*>(a);
    const int operation = static_cast<int>(b);
    switch (operation & FUTEX_CMD_MASK) {
        case FUTEX_WAIT_BITSET:
            if (static_cast<uint32_t>(f) == 0) return fail(EINVAL);
            [[fallthrough]];
        case FUTEX_WAIT:
            return futex_wait(word, operation, static_cast<uint32_t>(c),
                              reinterpret_cast<const timespec*>(d));
        case FUTEX_WAKE:
            return futex_wake(word, operation, static_cast<uint32_t>(c));
        case FUTEX_WAKE_BITSET: {
            const auto bits = static_cast<uint32_t>(f);
            if (bits == 0) return fail(EINVAL);
            // Those it is meant for are not passed over.
            return futex_wake(word, operation, static_cast<uint32_t>(c), bits != FUTEX_BITSET_MATCH_ANY);
        }
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

}  // namespace crane::interpose
