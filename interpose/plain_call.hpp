// A call that is the kernel's as it is, made by a wrapper because that costs less than a trapped one.
#pragma once

#include "interpose/core/backstop.hpp"
#include "interpose/core/blocking.hpp"
#include "interpose/core/operation.hpp"

namespace crane::interpose {

/// The program's own filters judge it, as ever.
template <typename... Args>
long plain(long number, Args... args) {
    if (!active() || runtime.process->judged == Judged::kByNobody) return as_libc(raw(number, args...));
    const long all[6 + 1] = {(long)args...};
    return as_libc(crane_judged_call(all, number));
}

}  // namespace crane::interpose
