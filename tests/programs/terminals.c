// A child on a terminal of its own, beside a timer that runs and further threads: libc forks inside itself
// there. A child that computes for ever as an interpreter does, until its time is over. Signals by a
// process's folder; processors.
#include <fcntl.h>
#include <pthread.h>
#include <pty.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "serve.h"

static volatile sig_atomic_t rang;
static void ring(int signal) {
    rang += signal != 0;
}

static void on_a_terminal(void) {
    char text[256] = "", name[64];
    int terminal, status, got = 0, more;
    pid_t child = forkpty(&terminal, name, NULL, NULL);
    CHECK(child >= 0);
    if (child == 0) {
        printf("%d %d %d\n", isatty(0), getsid(0) == getpid(), tcgetpgrp(0) == getpid());
        fflush(stdout);
        usleep(2000);
        _exit(4);
    }
    while ((more = read(terminal, text + got, sizeof text - 1 - got)) > 0) got += more;
    say("terminal: %.*s, then %s", (int)strcspn(text, "\r"), text, outcome(more));
    CHECK(waitpid(child, &status, 0) == child);
    say("it ended with %d", WEXITSTATUS(status));
    close(terminal);
}

// From each instruction straight to the next, by what a register names.
static void interpret(void) {
    static volatile const unsigned char program[] = {0, 0, 1};
    const void* const code[] = {&&nothing, &&again};
    unsigned at = 0;
    goto* code[program[at]];
nothing:
    goto* code[program[++at]];
again:
    at = 0;
    goto* code[program[at]];
}

static void killed_in_time(void) {
    int status;
    pid_t child = fork();
    if (child == 0) interpret();
    struct timespec begun, now;
    clock_gettime(CLOCK_MONOTONIC, &begun);
    do {
        usleep(70000);
        CHECK(waitpid(child, &status, WNOHANG) == 0);
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while ((now.tv_sec - begun.tv_sec) * 1000 + (now.tv_nsec - begun.tv_nsec) / 1000000 < 60);
    CHECK(kill(child, SIGKILL) == 0 && waitpid(child, &status, 0) == child);
    say("what computes for ever was ended by %d", WTERMSIG(status));
}

static void by_its_folder(void) {
    char path[32];
    snprintf(path, sizeof path, "/proc/%d", (int)getpid());
    int own = open(path, O_RDONLY | O_DIRECTORY), other = open("/proc", O_RDONLY | O_DIRECTORY);
    rang = 0;
    say("by its folder: %s", outcome(syscall(SYS_pidfd_send_signal, own, SIGUSR1, NULL, 0)));
    say("heard %d", (int)rang);
    say("by another: %s", outcome(syscall(SYS_pidfd_send_signal, other, SIGUSR1, NULL, 0)));
    close(own), close(other);
}

static void* look(void* count) {
    cpu_set_t set;
    CHECK(sched_getaffinity(0, sizeof set, &set) == 0);
    *(int*)count = CPU_COUNT(&set);
    return NULL;
}

static void* processors(void* nothing) {
    cpu_set_t one, nowhere, set;
    pthread_t thread;
    int inherited = 0;
    CPU_ZERO(&one);
    CPU_ZERO(&nowhere);
    CPU_SET(0, &one);
    say("bound: %s", outcome(sched_setaffinity(0, sizeof one, &one)));
    CHECK(sched_getaffinity(0, sizeof set, &set) == 0);
    say("to %d", CPU_COUNT(&set));
    CHECK(pthread_create(&thread, NULL, look, &inherited) == 0 && pthread_join(thread, NULL) == 0);
    say("its thread: to %d", inherited);
    say("to none: %s", outcome(sched_setaffinity(0, sizeof nowhere, &nowhere)));
    say("nobody: %s", outcome(sched_setaffinity(-1, sizeof one, &one)));
    say("nobody's: %s", outcome(sched_getaffinity(-1, sizeof set, &set)));
    say("odd size: %s", outcome(sched_getaffinity(0, 129, &set)));
    return nothing;
}

static void scenario(void) {
    pthread_t thread;
    struct itimerval soon = {.it_value = {30, 0}}, never = {0};
    signal(SIGALRM, ring), signal(SIGUSR1, ring);
    CHECK(setitimer(ITIMER_REAL, &soon, NULL) == 0);
    on_a_terminal();
    killed_in_time();
    by_its_folder();
    CHECK(pthread_create(&thread, NULL, processors, NULL) == 0 && pthread_join(thread, NULL) == 0);
    CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
}

int main(int argc, char** argv) {
    return serve(argc, argv, scenario);
}
