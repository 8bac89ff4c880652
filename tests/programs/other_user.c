// A program that is executed while real and effective user differ, and writes more than a pipe holds.
#include <sys/wait.h>

#include "serve.h"

static void finish(const char* name, pid_t child) {
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child);
    say("%s: status %x", name, (unsigned)status);
}

/// Real and effective user differ: the loader preloads nothing, so it cannot be scheduled.
static void scenario(void) {
    int ends[2];
    long all = 0;
    char bytes[4096];
    CHECK(pipe(ends) == 0);
    const pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], 1), close(ends[0]), close(ends[1]);
        if (seteuid(65534) != 0) _exit(3);
        execl("/usr/bin/head", "head", "-c", "1000000", "/dev/zero", (char*)NULL);
        _exit(4);
    }
    close(ends[1]);
    for (ssize_t got; (got = read(ends[0], bytes, sizeof bytes)) > 0;) all += got;
    close(ends[0]);
    say("read %ld", all);
    finish("as another user", child);
}

int main(int argc, char** argv) {
    return serve(argc, argv, scenario);
}
