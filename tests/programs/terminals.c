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

static void* look_at_own(void* count) {
    pthread_attr_t attributes;
    cpu_set_t set;
    int seen = 0;
    look(&seen);
    CHECK(pthread_getattr_np(pthread_self(), &attributes) == 0);
    CHECK(pthread_attr_getaffinity_np(&attributes, sizeof set, &set) == 0);
    pthread_attr_destroy(&attributes);
    *(int*)count = CPU_COUNT(&set) == seen ? seen : -1;
    return NULL;
}

// Threads that begin on processors that their attributes name.
static void begun_on_processors(void) {
    pthread_attr_t attributes;
    pthread_t thread;
    cpu_set_t set, told;
    cpu_set_t* const many = CPU_ALLOC(10000);
    const size_t bytes = CPU_ALLOC_SIZE(10000);
    int on = 0, others = 0;
    CPU_ZERO(&set);
    CPU_SET(0, &set);
    CHECK(many && pthread_attr_init(&attributes) == 0);
    CHECK(pthread_attr_setaffinity_np(&attributes, sizeof set, &set) == 0);
    for (int i = 0; i < 2; ++i) {
        say("on one: %s", code(pthread_create(&thread, &attributes, look_at_own, &on)));
        CHECK(pthread_join(thread, NULL) == 0);
        say("it is on %d", on);
    }
    look(&on);
    CHECK(pthread_create(&thread, NULL, look, &others) == 0 && pthread_join(thread, NULL) == 0);
    say("others are as before: %d", on == others);
    CHECK(pthread_attr_getaffinity_np(&attributes, sizeof told, &told) == 0);
    say("they name the same: %d", CPU_EQUAL(&told, &set));
    CPU_ZERO_S(bytes, many);
    CPU_SET_S(0, bytes, many);
    CHECK(pthread_attr_setaffinity_np(&attributes, bytes / 2, many) == 0);
    say("of many: %s", code(pthread_create(&thread, &attributes, look_at_own, &on)));
    CHECK(pthread_join(thread, NULL) == 0);
    say("it is on %d", on);
    pthread_attr_t usual;
    CHECK(pthread_getattr_default_np(&usual) == 0 && pthread_setattr_default_np(&attributes) == 0);
    say("by default: %s", code(pthread_create(&thread, NULL, look_at_own, &on)));
    CHECK(pthread_join(thread, NULL) == 0 && pthread_setattr_default_np(&usual) == 0);
    say("it is on %d", on);
    pthread_attr_destroy(&usual);
    CPU_ZERO(&set);
    CHECK(pthread_attr_setaffinity_np(&attributes, sizeof set, &set) == 0);
    say("on none: %s", code(pthread_create(&thread, &attributes, look_at_own, &on)));
    CPU_SET(1000, &set);
    CHECK(pthread_attr_setaffinity_np(&attributes, sizeof set, &set) == 0);
    say("on what is not there: %s", code(pthread_create(&thread, &attributes, look_at_own, &on)));
    pthread_attr_destroy(&attributes);
    CPU_FREE(many);
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
    begun_on_processors();
    CHECK(pthread_create(&thread, NULL, processors, NULL) == 0 && pthread_join(thread, NULL) == 0);
    CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
}

int main(int argc, char** argv) {
    return serve(argc, argv, scenario);
}
