// timerfd: a placeholder descriptor over a virtual timer. Its read and readiness are served in
// descriptors.cpp and polling.cpp.
#include "interpose/core/fds.hpp"
#include "interpose/core/timers.hpp"
#include "interpose/core/user_memory.hpp"

using namespace crane::interpose;

namespace {

int fail(int error) {
    errno = error;
    return -1;
}

}  // namespace

CRANE_EXPORT int timerfd_create(clockid_t clock, int flags) noexcept {
    if (!active()) return resolve_real(), real.timerfd_create(clock, flags);
    if (flags & ~(TFD_NONBLOCK | TFD_CLOEXEC)) return fail(EINVAL);
    const bool realtime = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_ALARM;
    if (!realtime && clock != CLOCK_MONOTONIC && clock != CLOCK_BOOTTIME && clock != CLOCK_BOOTTIME_ALARM) {
        return fail(EINVAL);
    }
    Operation turn(Op::kTimer, process_key(runtime.process->pid));
    const uint32_t timer = new_timer(realtime ? CLOCK_REALTIME : CLOCK_MONOTONIC, flags & TFD_NONBLOCK);
    if (timer == kNone) return fail(ENFILE);
    const int fd = new_placeholder(flags & TFD_CLOEXEC);
    if (fd < 0) {
        release_timer(timer);
        return -1;
    }
    set_entry(fd, FdKind::kTimer, timer);
    return fd;
}

CRANE_EXPORT int timerfd_settime(int fd, int flags, const itimerspec* value, itimerspec* old) noexcept {
    if (!active()) return resolve_real(), real.timerfd_settime(fd, flags, value, old);
    Operation turn(Op::kTimer, descriptor_key(fd));
    const FdEntry* entry = entry_of_kind(fd, FdKind::kTimer);
    // Not a timer: the kernel knows which error that is.
    if (!entry) return real.timerfd_settime(fd, flags, value, old);
    itimerspec wanted{};  // `old` may be the same
    if (!fetch(wanted, value) || !writable_if_given(old)) return fail(EFAULT);
    if (flags & ~(TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET)) return fail(EINVAL);
    const int result = timer_set(entry->object, flags, &wanted, old);
    return result == 0 ? 0 : fail(-result);
}

CRANE_EXPORT int timerfd_gettime(int fd, itimerspec* value) noexcept {
    if (!active()) return resolve_real(), real.timerfd_gettime(fd, value);
    Operation turn(Op::kTimer, descriptor_key(fd));
    const FdEntry* entry = entry_of_kind(fd, FdKind::kTimer);
    if (!entry) return real.timerfd_gettime(fd, value);
    itimerspec told;
    timer_get(entry->object, &told);
    return store(value, told) ? 0 : fail(EFAULT);
}
