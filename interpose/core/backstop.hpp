// The backstop: no system call of a scheduled thread escapes the shim.
//
// Wrappers see what is called through libc's exported names. Everything else (libc's own inner calls, raw
// instructions, code linked into the program) is trapped by the kernel (syscall user dispatch) and comes to
// interpose/trapped_calls.cpp as a SIGSYS.
//
// Rules:
//  - The shim's own code is exempt: what it does with raw() is neither trapped nor asked about.
//  - Each thread switches it on when it enters the schedule (start, fork, exec, out of an image), and its
//    selector lets all pass when it leaves. Functions of libc that the shim calls through `real` run with the
//    selector open.
//  - SIGSYS is never blocked in the kernel: a trapped call would end the process. The program's masks and
//    actions are virtual, and its own system calls for them are led to these.
//  - The shim's signal handlers return by a restorer of its own, for libc's would be trapped.
//  - While a thread sleeps where an image may be taken of it, its selector lets calls pass: the dump makes
//    some in its place, and what is restored has the dispatch switched off.
#pragma once

#include <csignal>

#include "interpose/core/runtime.hpp"
#include "interpose/core/selector.hpp"

namespace crane::interpose {

/// The range of addresses that is the shim's code.
struct CodeRange {
    uint64_t begin, end;
};
CodeRange own_code();

/// For the whole domain, when it is made: as craned was configured. A kernel that cannot do it is refused.
void choose_backstop();
/// From now on system calls of this thread from outside the shim are trapped. Nothing if the domain does not
/// want it.
void start_backstop();
/// This thread leaves the schedule.
inline void leave_backstop() {
    selector = Selector::kPass;
}

/// sigaction() of the kernel's own, with a way back that is not trapped. Results are 0 or -errno.
long install_action(int signal, void (*handler)(int, siginfo_t*, void*), unsigned long flags);
/// The handler that the kernel has for it; nullptr: none.
void (*installed_action(int signal))(int, siginfo_t*, void*);
/// Where such handlers go back.
extern "C" __attribute__((visibility("hidden"))) void crane_restore();

/// What a trapped call is led to; set before anything is trapped (interpose/trapped_calls.cpp).
extern void (*trapped_call)(siginfo_t& info, ucontext_t& context);

/// The program's own filters judge this call, as they would have where it was made (sandbox.hpp).
extern "C" __attribute__((visibility("hidden"))) long crane_judged_call(const long* arguments,
                                                                        long number) noexcept;
extern "C" __attribute__((visibility("hidden"))) const char crane_judged_call_made[];

}  // namespace crane::interpose
