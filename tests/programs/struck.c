// Ended once by a real signal that is sent past the C library, at the first request: the replicas' doing it is
// not, and at each replay it comes again.
#include <fcntl.h>
#include <sys/syscall.h>

#include "serve.h"

#define ONCE "/var/tmp/crane-struck"

static long past_the_library(long number, long a, long b) {
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b) : "rcx", "r11", "memory");
    return result;
}

static void scenario(void) {
    const int once = open(ONCE, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    if (once >= 0) past_the_library(SYS_kill, past_the_library(SYS_getpid, 0, 0), SIGUSR2);
    say("served");
}

int main(int argc, char** argv) { return serve(argc, argv, scenario); }
