// Takes two seconds to end when it is asked to, and writes down then that it could. Says how often it could so far.
#include "serve.h"

#include <fcntl.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

static const char file[] = "/var/tmp/crane-slow-end";

static void at_end(int number) {
    (void)number;
    struct timespec left = {2, 0};
    while (nanosleep(&left, &left) != 0) continue;
    const int fd = open(file, O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (fd >= 0 && write(fd, "x", 1) == 1) _exit(0);
    _exit(1);
}

static void scenario(void) {
    char ends[16];
    const int fd = open(file, O_RDONLY);
    say("%zd", fd >= 0 ? read(fd, ends, sizeof ends) : 0);
    if (fd >= 0) close(fd);
}

int main(int argc, char** argv) {
    CHECK(signal(SIGTERM, at_end) != SIG_ERR);
    return serve(argc, argv, scenario);
}
