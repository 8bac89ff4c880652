// Signals inside the domain: sent, blocked, waited for and handled in the schedule. No real signal is
// involved, but for those that an instruction raises (SIGSEGV and its kin) and those that end a process.
//
// A signal for a process goes to its main thread if that does not block it, else to the lowest slot that does
// not (signal_targets.hpp). Handlers run at the end of the target thread's operation, or of the wait that the
// signal cut short.
#pragma once

#include "interpose/core/runtime.hpp"
#include "interpose/core/signal_queue.hpp"

namespace crane::interpose {

/// Sends a signal to a process (slot kNoSlot) or to one thread of it. Turn in hand. Returns 0 or an errno.
int post_signal(uint32_t process, const SignalInfo& info, dmt::SlotId slot);
/// As kill() does.
int post_signal(uint32_t process, int signal, dmt::SlotId slot);
/// A pending signal out of `set` that this thread may take, removed: its own first. False: none.
bool take_pending(uint64_t set, SignalInfo& info);
/// What is pending for this thread or its process.
uint64_t pending_signals();
/// The program ignores it from now on: nothing of it is pending for this process any more.
void drop_pending(int signal);
/// tgkill(), or with a negative `group` tkill(). An operation of its own; 0 or -errno.
long signal_task(int group, int tid, int signal);
/// As rt_sigqueueinfo and rt_tgsigqueueinfo: what the program says of the signal is told as it is.
long queue_to_process(int pid, int signal, const siginfo_t& given);
long queue_to_task(int group, int tid, int signal, const siginfo_t& given);
bool ignored_by_default(int signal);
/// What this thread is to take now, whatever comes of it.
uint64_t due_signals();
/// True if a handler is due in this thread now, or the process's end: what cuts a call short. What is ignored
/// does not, nor does a stop.
bool handler_due();
/// What the thread's mask lets through now is taken, and left to others what it blocks.
void mask_has_changed();
/// The signals an instruction raises; they keep their real handlers.
bool is_synchronous(int signal);
/// Ends this process by `signal`, as the default action does.
[[noreturn]] void die_by_signal(int signal);
/// The kernel's part of it alone.
[[noreturn]] void end_by_signal(int signal);
/// What a program begins with that cannot be scheduled: its signals are the kernel's.
struct SignalsLeft {
    uint64_t mask, pending;
};
SignalsLeft signals_left();
/// Right before it is executed; those of the process that it follows.
void leave_signals_to_kernel(const SignalsLeft& left);
/// In a program fresh from exec: handlers are gone, ignored signals stay ignored.
void reset_handlers_after_exec();
/// The kernel's own disposition of a signal that no instruction raises follows the program's: what comes from
/// outside the schedule after all (the kernel's own doing, another process's) ends no process that handles or
/// ignores it. It has no place in the schedule, so its handler is not run.
void follow_action(int signal);
/// The kernel's handler of a signal that an instruction raises is always the shim's own, which calls the
/// program's.
void follow_fault_action(int signal);
/// While a thread goes on step by step: the handler's frames belong on the thread's signal stack, if it has
/// one, since what it computes with may be no stack that others may use (Erlang's).
void step_on_signal_stack(bool wanted);
/// Handlers for faults that the program leaves to their default, so that a crash is a scheduled end.
void install_fault_handlers();

}  // namespace crane::interpose
