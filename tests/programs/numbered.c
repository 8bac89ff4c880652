// Pids and tids of a server, beside and after children that cannot be scheduled and make threads by timing.
#include <pthread.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "serve.h"

static char tool[512];

static pid_t start(const char* mode, const char* rest_ms) {
    const pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        for (int fd = 3; fd < 64; fd++) close(fd);
        execl(tool, tool, mode, rest_ms, (char*)NULL);
        _exit(99);
    }
    return pid;
}

static void* tell_number(void* number) {
    *(long*)number = syscall(SYS_gettid);
    return NULL;
}

static void births(const char* when) {
    pthread_t thread;
    long tid = 0;
    int status = -1;
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) _exit(3);
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(pthread_create(&thread, NULL, tell_number, &tid) == 0 && pthread_join(thread, NULL) == 0);
    order("%s: process %d, thread %ld", when, (int)child, tid);
    say("%s: status %x", when, (unsigned)status);
}

/// As many descriptors are open as the program allows itself.
static void births_without_a_descriptor(void) {
    struct rlimit before;
    CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
    const int next = dup(0);
    CHECK(next > 0 && close(next) == 0);
    const struct rlimit full = {(rlim_t)next, before.rlim_max};
    CHECK(setrlimit(RLIMIT_NOFILE, &full) == 0);
    CHECK(dup(0) < 0 && errno == EMFILE);
    births("without a descriptor");
    CHECK(dup(0) < 0 && errno == EMFILE);
    CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
}

static void scenario(void) {
    births("first");
    for (int i = 0; i < 6; i++) {
        int status = -1;
        const pid_t pid = start("threads", NULL);
        CHECK(waitpid(pid, &status, 0) == pid);
        order("tool %d", (int)pid);
        say("tool: status %x", (unsigned)status);
        births("after it");
        births_without_a_descriptor();
    }
}

// One that is left to itself, for as long as the server lives.
int main(int argc, char** argv) {
    const ssize_t length = readlink("/proc/self/exe", tool, sizeof tool - 16);
    CHECK(length > 0);
    tool[length] = 0;
    strcpy(strrchr(tool, '/') + 1, "static_tool");
    start("threads and rest", "100000000");
    return serve(argc, argv, scenario);
}
