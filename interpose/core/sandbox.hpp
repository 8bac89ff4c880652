// Filters of system calls (seccomp) that the program sets for itself. The shim needs calls of its own, in
// every process, so a filter is kept as it is but for calls that libcrane.so makes: they pass. What a wrapper
// does for the program passes with them; what the program or libc do by themselves is filtered as ever.
#pragma once

#include "interpose/core/runtime.hpp"

namespace crane::interpose {

/// seccomp(SECCOMP_SET_MODE_FILTER): 0 or -errno.
long set_filter(unsigned flags, const void* program);
/// seccomp(SECCOMP_SET_MODE_STRICT), as a filter.
long set_strict();

}  // namespace crane::interpose
