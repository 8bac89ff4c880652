// Timers that end in a signal, and the thread of the shim's own that a process with timers has.
#pragma once

namespace crane::interpose {

/// After a system call (five arguments) that changes what the calling thread may do, or whose it is. Made by
/// the main thread, it is made by the timer thread, too: natively there is none, and libc, which has every
/// thread change its user, ends a process where that does not go alike. A program's other threads are on
/// their own, as natively. Takes a turn, whatever the kernel of this host has said.
void have_timer_thread_follow(long number, const long* arguments, bool succeeded);

/// Turn in hand, before another program is entered: it goes on with the interval timer, as the kernel has it.
/// One that cannot be scheduled has it of the kernel.
void leave_alarm_to_program(bool scheduled);

}  // namespace crane::interpose
