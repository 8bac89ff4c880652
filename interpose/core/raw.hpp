// System calls without libc: no errno, no cancellation point, no wrapper of our own. Result: value or -errno.
#pragma once

#include <sys/syscall.h>

namespace crane::interpose {

inline long raw6(long number, long a, long b, long c, long d, long e, long f) noexcept {
    long result;
    register long r10 asm("r10") = d;
    register long r8 asm("r8") = e;
    register long r9 asm("r9") = f;
    asm volatile("syscall"
                 : "=a"(result)
                 : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                 : "rcx", "r11", "memory");
    return result;
}

template <typename... Args>
inline long raw(long number, Args... args) noexcept {
    static_assert(sizeof...(Args) <= 6);
    long values[7] = {(long)args..., 0};
    for (unsigned i = sizeof...(Args); i < 6; ++i) values[i] = 0;
    return raw6(number, values[0], values[1], values[2], values[3], values[4], values[5]);
}

}  // namespace crane::interpose
