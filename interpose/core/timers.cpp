#include "interpose/core/timers.hpp"

#include "interpose/core/epolls.hpp"

namespace crane::interpose {

namespace {

/// Whoever waits on a set with a timer in it looks again and finds the new deadline.
void tell_sleepers() {
    scheduler().signal_set(~uint64_t{0});
    for (uint32_t epoll = 0; epoll < domain().epoll_high; ++epoll) {
        scheduler().signal(make_key(ObjectKind::kEpoll, epoll), UINT32_MAX);
    }
}

}  // namespace

uint32_t new_timer(int clock, bool nonblocking) {
    uint32_t& i = domain().timers_used_below;
    while (i < kMaxTimers && domain().timers[i].references != 0) ++i;
    if (i == kMaxTimers) return kNone;
    domain().timers[i] = {1, nonblocking, clock, 0, 0, 0};
    return i++;
}

void release_timer(uint32_t index) {
    VirtualTimer& timer = domain().timers[index];
    if (--timer.references != 0) return;
    drop_watches(Watched::kTimer, index);
    timer = {};
    uint32_t& lowest = domain().timers_used_below;
    if (index < lowest) lowest = index;
}

void timer_get(uint32_t index, itimerspec* value) {
    const VirtualTimer& timer = domain().timers[index];
    const uint64_t now = now_realtime_ns();
    uint64_t left = 0;
    if (timer.next_ns > now) left = timer.next_ns - now;
    if (timer.next_ns != 0 && timer.next_ns <= now) {
        left = timer.interval_ns ? timer.interval_ns - (now - timer.next_ns) % timer.interval_ns : 0;
    }
    value->it_value = to_timespec(left);
    value->it_interval = to_timespec(timer.interval_ns);
}

int timer_set(uint32_t index, int flags, const itimerspec* value, itimerspec* old) {
    if (!valid_timespec(&value->it_value) || !valid_timespec(&value->it_interval)) return -EINVAL;
    if (old) timer_get(index, old);
    VirtualTimer& timer = domain().timers[index];
    timer.interval_ns = to_ns(value->it_interval);
    if (to_ns(value->it_value) == 0) {
        timer.next_ns = 0;
    } else if (flags & TFD_TIMER_ABSTIME) {
        timer.next_ns = deadline_from_absolute(timer.clock, value->it_value);
    } else {
        timer.next_ns = deadline_from_relative_ns(to_ns(value->it_value));
    }
    tell_sleepers();
    return 0;
}

bool timer_due(uint32_t index) {
    const VirtualTimer& timer = domain().timers[index];
    return timer.next_ns != 0 && timer.next_ns <= domain().scheduler.now_ns;
}

uint64_t timer_take(uint32_t index) {
    if (!timer_due(index)) return 0;
    VirtualTimer& timer = domain().timers[index];
    if (timer.interval_ns == 0) {
        timer.next_ns = 0;
        return 1;
    }
    const uint64_t times = 1 + (domain().scheduler.now_ns - timer.next_ns) / timer.interval_ns;
    timer.next_ns += times * timer.interval_ns;
    tell_sleepers();
    return times;
}

uint64_t timer_deadline(uint32_t index) {
    return domain().timers[index].next_ns;
}

}  // namespace crane::interpose
