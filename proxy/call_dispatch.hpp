// Whether this kernel hands a program its own system calls (syscall user dispatch), which the backstop is
// made of (interpose/core/backstop.hpp).
#pragma once

namespace crane::proxy {

bool kernel_dispatches_calls();

/// What an operator reads where it does not.
constexpr char kNoCallDispatch[] =
    "this kernel does not hand system calls to the program (syscall user dispatch, Linux 5.11), so the "
    "backstop cannot be had: use another kernel, or switch it off on all replicas alike (--backstop off)";

}  // namespace crane::proxy
