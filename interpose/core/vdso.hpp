// The kernel's own code in the program (vDSO), by which libc, and who asks for its address, reads clocks and
// chance without a system call: its functions are made to lead to the shim, in this process' copy of them.
#pragma once

#include "interpose/core/runtime.hpp"

namespace crane::interpose {

/// Where the functions lead to: results are 0 or more, or -errno. Set before anything is led
/// (interpose/trapped_calls.cpp).
struct KernelFunctions {
    long (*clock_gettime)(clockid_t, timespec*);
    long (*gettimeofday)(timeval*, void*);
    long (*time)(time_t*);
    long (*clock_getres)(clockid_t, timespec*);
    long (*getcpu)(unsigned*, unsigned*, void*);
    long (*getrandom)(void*, size_t, unsigned, void*, size_t);
};
extern KernelFunctions kernel_functions;

/// In a process fresh from exec, or out of an image. Nothing where they lead to the shim already, or where
/// the kernel does not let its code be changed: then they tell real time.
void lead_kernel_functions();

}  // namespace crane::interpose
