// timerfd on virtual time.
#pragma once

#include <sys/timerfd.h>

#include "interpose/core/runtime.hpp"

namespace crane::interpose {

uint32_t new_timer(int clock, bool nonblocking);  ///< kNone: table full
void release_timer(uint32_t timer);
int timer_set(uint32_t timer, int flags, const itimerspec* value, itimerspec* old);
void timer_get(uint32_t timer, itimerspec* value);
/// Expirations since the last read; 0: none. Rearms a periodic timer.
uint64_t timer_take(uint32_t timer);
bool timer_due(uint32_t timer);
/// When a thread that waits on the timer should look again; dmt::kNoDeadline: never.
uint64_t timer_deadline(uint32_t timer);

}  // namespace crane::interpose
