// The processor's time stamp counter: rdtsc made to fault, and answered from virtual time.
//
// The kernel's switch (PR_SET_TSC) is per thread, handed down by clone, fork and exec. exec must not take it
// along: the loader reads the counter before any handler exists. The kernel's own code in the program (vDSO)
// is given the real counter, since what it computes from it is real time. Places that fault often are patched
// (tsc_patch.hpp).
#pragma once

#include <signal.h>

#include "interpose/core/runtime.hpp"

namespace crane::interpose {

/// For the whole domain: trapped, unless the server's environment has CRANE_TSC=real.
void choose_tsc(char** environment);
inline bool tsc_trapped() {
    return domain().trap_tsc != 0;
}
/// From now on rdtsc faults in this thread and in those it makes. Nothing if the domain does not want it.
void install_tsc_trap();
/// Before exec; install_tsc_trap() again if that fails.
void remove_tsc_trap();
/// Called first for each SIGSEGV. True: it was rdtsc or rdtscp, and the program goes on behind it.
bool emulate_tsc(const siginfo_t& info, ucontext_t& context);

}  // namespace crane::interpose
