// The thread of the shim's own that a process with timers has.
#pragma once

namespace crane::interpose {

/// A system call that has changed the calling thread's privileges is made by the timer thread, too (five
/// arguments): natively there is none, so the process has one identity; and libc, which has every thread
/// change its user, ends a process where that does not go alike.
void have_timer_thread_follow(long number, const long* arguments);

}  // namespace crane::interpose
