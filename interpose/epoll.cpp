// epoll_create, epoll_ctl, epoll_wait.
#include "interpose/core/blocking.hpp"
#include "interpose/core/epolls.hpp"
#include "interpose/core/nested_epolls.hpp"
#include "interpose/core/opaque.hpp"
#include "interpose/core/signal_masks.hpp"
#include "interpose/core/threads.hpp"
#include "interpose/core/user_memory.hpp"

namespace crane::interpose {
namespace {

long create(int flags) {
    if (flags & ~EPOLL_CLOEXEC) return -EINVAL;
    Operation turn(Op::kEpollCreate, process_key(runtime.process->pid));
    const uint32_t epoll = new_epoll();
    if (epoll == kNone) return -ENFILE;
    const long fd = raw(SYS_epoll_create1, flags);
    if (fd < 0) {
        release_epoll(epoll);
        return fd;
    }
    set_entry(static_cast<int>(fd), FdKind::kEpoll, epoll);
    return fd;
}

long control(int epoll_fd, int operation, int fd, epoll_event* event) {
    const FdEntry* epoll = entry_of_kind(epoll_fd, FdKind::kEpoll);
    if (!epoll) return raw(SYS_epoll_ctl, epoll_fd, operation, fd, event);
    if (operation != EPOLL_CTL_DEL && !readable(event, sizeof(*event))) return -EFAULT;
    const FdEntry* target = fd_entry(fd);
    if (!target || fd == epoll_fd) return fd == epoll_fd ? -EINVAL : -EBADF;
    Operation turn(Op::kEpollControl, epoll_key(epoll->object), entry_key(*target));
    switch (target->kind) {
        case FdKind::kSocket:
            return epoll_control(epoll->object, operation, fd, Watched::kSocket, target->object, event);
        case FdKind::kTimer:
            return epoll_control(epoll->object, operation, fd, Watched::kTimer, target->object, event);
        case FdKind::kSignals:
            return epoll_control(epoll->object, operation, fd, Watched::kSignals, target->object, event);
        case FdKind::kEpoll:
            return epoll_control(epoll->object, operation, fd, Watched::kEpoll, target->object, event);
        default:
            return epoll_control_kernel(epoll->object, epoll_fd, operation, fd, event);
    }
}

long wait_for_events(int fd, epoll_event* events, int most, int64_t timeout_ns) {
    const FdEntry* entry = entry_of_kind(fd, FdKind::kEpoll);
    if (!entry) return raw(SYS_epoll_wait, fd, events, most, 0);
    if (most <= 0) return -EINVAL;
    const FdEntry then = *entry;
    const uint32_t epoll = entry->object;
    Operation turn(Op::kEpollWait, epoll_key(epoll));
    const uint64_t deadline =
        timeout_ns > 0 ? deadline_from_relative_ns(static_cast<uint64_t>(timeout_ns)) : dmt::kNoDeadline;
    for (uint32_t looks = 0;;) {
        settle_opaque();
        if (!same_descriptor(fd, then)) return -EBADF;  // closed by another thread
        const int count = epoll_collect(epoll, fd, events, most);
        if (count != 0) return count;
        if (timeout_ns == 0) {
            turn.yield();
            return 0;
        }
        uint64_t timer = epoll_deadline(epoll);
        if (const uint64_t streams = epoll_streams(epoll); streams != 0 && is_left_to_chance(streams))
            timer = earlier_ns(timer, next_look_ns(looks));
        const bool timer_first =
            timer != dmt::kNoDeadline && (deadline == dmt::kNoDeadline || timer < deadline);
        switch (turn.wait(epoll_key(epoll), timer_first ? timer : deadline, true)) {
            case dmt::WaitResult::kTimedOut:
                if (!timer_first) return epoll_collect(epoll, fd, events, most);
                break;
            case dmt::WaitResult::kInterrupted:
                return -EINTR;
            case dmt::WaitResult::kSignaled:
                break;
        }
    }
}

long wait_masked(int fd, epoll_event* events, int most, int64_t timeout_ns, const sigset_t* mask) {
    TemporaryMask temporary(mask);
    const long error = temporary.error();
    return error != 0 ? error : wait_for_events(fd, events, most, timeout_ns);
}

/// Some events are told once: none may be lost with a cancelled thread.
template <typename Call>
int cancellable(Call call) {
    return static_cast<int>(as_libc(at_cancellation_point(call)));
}

int64_t from_ms(int timeout_ms) {
    return timeout_ms < 0 ? -1 : int64_t{timeout_ms} * 1'000'000;
}

}  // namespace
}  // namespace crane::interpose

using namespace crane::interpose;

CRANE_EXPORT int epoll_create1(int flags) noexcept {
    if (!active()) return resolve_real(), real.epoll_create1(flags);
    return static_cast<int>(as_libc(create(flags)));
}

CRANE_EXPORT int epoll_create(int size) noexcept {
    if (!active()) return resolve_real(), real.epoll_create(size);
    return static_cast<int>(as_libc(size > 0 ? create(0) : -EINVAL));
}

CRANE_EXPORT int epoll_ctl(int epoll, int operation, int fd, epoll_event* event) noexcept {
    if (!active()) return resolve_real(), real.epoll_ctl(epoll, operation, fd, event);
    return static_cast<int>(as_libc(control(epoll, operation, fd, event)));
}

CRANE_EXPORT int epoll_wait(int epoll, epoll_event* events, int most, int timeout_ms) {
    if (!active()) return resolve_real(), real.epoll_wait(epoll, events, most, timeout_ms);
    return cancellable([&] { return wait_for_events(epoll, events, most, from_ms(timeout_ms)); });
}

CRANE_EXPORT int epoll_pwait(int epoll, epoll_event* events, int most, int timeout_ms, const sigset_t* mask) {
    if (!active()) return resolve_real(), real.epoll_pwait(epoll, events, most, timeout_ms, mask);
    return cancellable([&] { return wait_masked(epoll, events, most, from_ms(timeout_ms), mask); });
}

CRANE_EXPORT int epoll_pwait2(int epoll, epoll_event* events, int most, const timespec* timeout,
                              const sigset_t* mask) {
    if (!active()) return resolve_real(), real.epoll_pwait2(epoll, events, most, timeout, mask);
    if (!readable_if_given(timeout)) return static_cast<int>(as_libc(-EFAULT));
    if (timeout && !valid_timespec(timeout)) return static_cast<int>(as_libc(-EINVAL));
    const int64_t ns = timeout ? static_cast<int64_t>(to_ns(*timeout)) : -1;
    return cancellable([&] { return wait_masked(epoll, events, most, ns, mask); });
}
