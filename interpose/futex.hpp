// Futexes, as the system call has them: six arguments, and a result as libc's syscall() gives it.
#pragma once

namespace crane::interpose {

long do_futex(long word, long operation, long value, long timeout, long second, long third);

}  // namespace crane::interpose
