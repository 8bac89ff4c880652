// base: what every part may stand on. Assertions that stay on in production: what finds its own state
// impossible stops at once.
//
// No allocation, no stdio, no handler of the program: the same code runs in someone else's process.
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <initializer_list>

namespace crane {

/// Says which condition failed and where, and ends the process.
[[noreturn, gnu::cold, gnu::noinline]] inline void check_failed(const char* condition, const char* file,
                                                                int line) noexcept {
    char digits[12];
    size_t at = sizeof(digits);
    do {
        digits[--at] = static_cast<char>('0' + line % 10);
        line /= 10;
    } while (line > 0 && at > 0);
    const char* parts[] = {"crane: ", file, ":"};
    for (const char* part : parts) (void)!syscall(SYS_write, 2, part, strlen(part));
    (void)!syscall(SYS_write, 2, digits + at, sizeof(digits) - at);
    for (const char* part : {": broken invariant: ", condition, "\n"})
        (void)!syscall(SYS_write, 2, part, strlen(part));
#ifdef CRANE_SHIM
    // Straight to the kernel: the wrapped kill() may be what failed, and SIGABRT may have the program's
    // handler.
    syscall(SYS_kill, syscall(SYS_getpid), SIGKILL);
#else
    std::signal(SIGABRT, SIG_DFL);
    syscall(SYS_tgkill, syscall(SYS_getpid), syscall(SYS_gettid), SIGABRT);
#endif
    for (;;) syscall(SYS_pause);
}

}  // namespace crane

#define CRANE_CHECK(condition) \
    (__builtin_expect(!!(condition), 1) ? (void)0 : crane::check_failed(#condition, __FILE__, __LINE__))
