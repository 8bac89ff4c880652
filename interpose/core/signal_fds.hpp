// signalfd: a view of what is pending for whoever looks.
#pragma once

#include <sys/signalfd.h>

#include "interpose/core/runtime.hpp"

namespace crane::interpose {

uint32_t new_signal_fd(uint64_t mask, bool nonblocking);  ///< kNone: table full
void release_signal_fd(uint32_t index);
/// One of its signals is pending for the calling thread or its process.
bool signal_fd_ready(uint32_t index);
/// read(): as many signals as there are and as fit; blocks for the first one.
long read_signals(uint32_t index, void* out, size_t bytes);
/// A signal became pending in some process: those that wait for it through a descriptor look.
void wake_signal_fds(int signal);
/// What waits in poll on any signalfd.
inline uint64_t signal_fd_bit() {
    return set_bit(ObjectKind::kSignal, 0);
}

}  // namespace crane::interpose
