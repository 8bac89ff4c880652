#include "interpose/core/timers.hpp"

#include "interpose/core/epolls.hpp"

namespace crane::interpose {

uint32_t new_timer(int clock, bool nonblocking) {
    for (uint32_t i = 0; i < kMaxTimers; ++i) {
        VirtualTimer& timer = domain().timers[i];
        if (timer.references != 0) continue;
        timer = {1, nonblocking, clock, 0, 0, 0};
        return i;
    }
    return kNone;
}

void release_timer(uint32_t index) {
    VirtualTimer& timer = domain().timers[index];
    if (--timer.references != 0) return;
    drop_watches(Watched::kTimer, index);
    timer = {};
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
    // Whoever waits on a set with a timer in it looks again and finds the new deadline.
    scheduler().signal_set(~uint64_t{0});
    for (uint32_t epoll = 0; epoll < domain().epoll_high; ++epoll) {
        scheduler().signal(make_key(ObjectKind::kEpoll, epoll), 1);
    }
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
    return times;
}

uint64_t timer_deadline(uint32_t index) {
    return domain().timers[index].next_ns;
}

}  // namespace crane::interpose
