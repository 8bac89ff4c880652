// What futex() does in the schedule; made by syscall(), by libc inside itself, or by an instruction.
#pragma once

namespace crane::interpose {

/// As syscall(SYS_futex, …).
long do_futex(long a, long b, long c, long d, long e, long f);
/// The same for a lock inside libc, met by a function that the shim has called in the middle of an operation:
/// no turn is taken. 0 or more, or -errno; whoever sleeps in the kernel is woken, too.
long futex_in_operation(const long* arguments);

}  // namespace crane::interpose
