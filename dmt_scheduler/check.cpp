#include "dmt_scheduler/check.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <cstring>

namespace crane::dmt {

void check_failed(const char* condition, const char* file, int line) noexcept {
    char digits[12];
    int at = sizeof(digits);
    digits[--at] = '\n';
    do {
        digits[--at] = static_cast<char>('0' + line % 10);
        line /= 10;
    } while (line > 0 && at > 0);
    const char* parts[] = {"crane: internal check failed: ", condition, " at ", file, ":"};
    for (const char* part : parts) (void)!syscall(SYS_write, 2, part, strlen(part));
    (void)!syscall(SYS_write, 2, digits + at, sizeof(digits) - at);
    // Straight to the kernel: the wrapped kill() may be what failed.
    syscall(SYS_kill, syscall(SYS_getpid), SIGKILL);
    for (;;) syscall(SYS_pause);
}

}  // namespace crane::dmt
