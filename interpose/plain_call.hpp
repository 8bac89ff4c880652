// A call that is the kernel's as it is, made by a wrapper because that costs less than a trapped one.
#pragma once

#include "interpose/core/backstop.hpp"
#include "interpose/core/blocking.hpp"
#include "interpose/core/operation.hpp"

namespace crane::interpose {

/// libc, or the program's malloc, does something for the shim, in the middle of an operation.
inline bool in_operation() {
    return scheduler().holds_turn(self.slot) &&
           runtime.view.control->gate.working.load(std::memory_order_relaxed) != 0;
}

/// A loop of such calls may wait for what another thread does.
inline void count_plain_call() {
    if (active() && !in_operation()) count_file_call();
}

/// The program's own filters judge it, as ever.
template <typename... Args>
long plain(long number, Args... args) {
    if (!active() || runtime.process->judged == Judged::kByNobody) return as_libc(raw(number, args...));
    const long all[6 + 1] = {(long)args...};
    return as_libc(crane_judged_call(all, number));
}

}  // namespace crane::interpose
