// Processes at their edges: what programs that cannot be scheduled take over of those that execute them,
// forks that fail, handlers of forks, children that nobody waits for.
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "serve.h"

extern char** environ;
static char static_tool[512], fork_module[512];

static void beside(char* path, const char* name) {
    const ssize_t length = readlink("/proc/self/exe", path, 480);
    CHECK(length > 0);
    path[length] = 0;
    strcpy(strrchr(path, '/') + 1, name);
}

static void finish(const char* name, pid_t child) {
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child);
    say("%s: status %x", name, (unsigned)status);
}

// --- programs that cannot be scheduled

static void* rest(void* unused) {
    for (;;) pause();
    return unused;
}

/// The alarm has a thread of the shim's own; its time comes while the program runs that follows, or later.
static void static_after_alarm(int has_thread, const char* mode, const char* number) {
    const pid_t child = fork();
    if (child == 0) {
        pthread_t thread;
        if (has_thread) pthread_create(&thread, NULL, rest, NULL);
        const struct itimerval soon = {.it_value = {.tv_usec = 200000}};
        setitimer(ITIMER_REAL, &soon, NULL);
        execl(static_tool, static_tool, mode, number, (char*)NULL);
        _exit(99);
    }
    finish(has_thread ? "after an alarm, beside a thread" : "after an alarm", child);
    for (int i = 0; i < 3; i++) usleep(100000);
}

/// As the kernel shows them to the program.
static void say_signals(const char* name, int ignores_pipe) {
    int ends[2];
    char line[256];
    CHECK(pipe(ends) == 0);
    const pid_t child = fork();
    if (child == 0) {
        sigset_t set;
        sigemptyset(&set), sigaddset(&set, SIGUSR1);
        sigprocmask(SIG_BLOCK, &set, NULL);
        raise(SIGUSR1);
        signal(SIGPIPE, ignores_pipe ? SIG_IGN : SIG_DFL);
        signal(SIGCHLD, SIG_DFL);
        dup2(ends[1], 1);
        execl(static_tool, static_tool, "signals", (char*)NULL);
        _exit(99);
    }
    close(ends[1]);
    FILE* told = fdopen(ends[0], "r");
    while (fgets(line, sizeof line, told)) say("%s: %s", name, strtok(line, "\n"));
    fclose(told);
    finish(name, child);
}

static int* seen;  // by a handler, in whichever process
static pthread_mutex_t step = PTHREAD_MUTEX_INITIALIZER;

static void see(int signal) { *seen = signal; }

static void* take_steps(void* unused) {
    for (;;) pthread_mutex_lock(&step), pthread_mutex_unlock(&step);
    return unused;
}

/// A signal that a thread has been chosen for, which had no time to take it: it was taken, or ends the program
/// that its process goes on with.
static void static_beside_a_thread_with_a_signal(void) {
    int lost = 0, wrong = 0;
    seen = mmap(NULL, sizeof *seen, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(seen != MAP_FAILED);
    for (int steps = 0; steps < 8; steps++) {
        *seen = 0;
        const pid_t child = fork();
        if (child == 0) {
            pthread_t thread;
            sigset_t set;
            sigemptyset(&set), sigaddset(&set, SIGUSR1);
            signal(SIGUSR1, see);
            pthread_create(&thread, NULL, take_steps, NULL);
            pthread_sigmask(SIG_BLOCK, &set, NULL);
            kill(getpid(), SIGUSR1);
            pthread_sigmask(SIG_UNBLOCK, &set, NULL);
            for (int i = 0; i < steps; i++) pthread_mutex_lock(&step), pthread_mutex_unlock(&step);
            execl(static_tool, static_tool, "exit", "3", (char*)NULL);
            _exit(99);
        }
        int status = 0;
        CHECK(waitpid(child, &status, 0) == child);
        lost += *seen == 0 && !(WIFSIGNALED(status) && WTERMSIG(status) == SIGUSR1);
        wrong += WIFEXITED(status) && WEXITSTATUS(status) != 3;
    }
    say("beside a thread with a signal: lost %d, wrong %d", lost, wrong);
    munmap(seen, sizeof *seen);
}

// --- forks and their handlers

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int before_runs, after_runs;

static void before(void) {
    before_runs++;
    pthread_mutex_lock(&lock);
}
static void after(void) {
    after_runs++;
    pthread_mutex_unlock(&lock);
}

/// In a child, which has handlers and no right to more processes.
static void fork_that_fails(void) {
    const pid_t child = fork();
    if (child == 0) {
        const struct rlimit none = {0, 0};
        pthread_atfork(before, after, after);
        if (setuid(65534) != 0 || setrlimit(RLIMIT_NPROC, &none) != 0) _exit(9);
        const pid_t never = fork();
        if (never == 0) _exit(8);
        _exit(never > 0 ? 7 : after_runs * 10 + (pthread_mutex_trylock(&lock) != 0));
    }
    finish("fork that fails", child);
}

static void forks_with_handlers(void) {
    const pid_t child = fork();
    if (child == 0) {
        pthread_atfork(before, after, after);
        char* const words[] = {"true", NULL};
        pid_t spawned;
        if (posix_spawnp(&spawned, "true", NULL, NULL, words, environ) != 0) _exit(9);
        waitpid(spawned, NULL, 0);
        if (system("true") != 0) _exit(9);
        const pid_t vforked = vfork();
        if (vforked == 0) _exit(0);
        waitpid(vforked, NULL, 0);
        const int of_commands = before_runs;
        const pid_t forked = fork();
        if (forked == 0) _exit(0);
        waitpid(forked, NULL, 0);
        _exit(of_commands * 10 + before_runs + after_runs);
    }
    finish("handlers of commands and of a fork", child);
}

/// Those of a library go with it.
static void library_that_is_gone(void) {
    const pid_t child = fork();
    if (child == 0) {
        void* const module = dlopen(fork_module, RTLD_NOW);
        if (!module || dlclose(module) != 0) _exit(9);
        const pid_t forked = fork();
        if (forked == 0) _exit(0);
        _exit(waitpid(forked, NULL, 0) != forked);
    }
    finish("a library that is gone", child);
}

// --- children that nobody waits for

/// Whoever adopts such children without Crane may take his time.
static int waits_for_its_parent(pid_t pid) {
    char path[64], state = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE* const stat = fopen(path, "r");
    if (!stat) return 0;
    const int known = fscanf(stat, "%*d (%*[^)]) %c", &state) == 1 && state == 'Z';
    fclose(stat);
    return known && !getenv("LD_PRELOAD");
}

/// Or its number is another one's by now, as may be natively.
static int is_gone(pid_t pid) {
    if (kill(pid, 0) < 0 && errno == ESRCH) return 1;
    const pid_t group = getpgid(pid);
    return (group >= 0 && group != getpgrp()) || waits_for_its_parent(pid);
}

/// Their parent ends without having waited for them, and one that ends later.
static void left_behind(int round) {
    enum { kMany = 40 };
    int ends[2], gone = 0;
    pid_t pids[kMany];
    CHECK(pipe(ends) == 0);
    const pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < kMany; i++) {
            pids[i] = fork();
            if (pids[i] == 0) {
                if (i == 0) usleep(50000);
                _exit(0);
            }
        }
        usleep(20000);
        _exit(write(ends[1], pids, sizeof pids) != sizeof pids);
    }
    CHECK(read(ends[0], pids, sizeof pids) == sizeof pids);
    close(ends[0]), close(ends[1]);
    finish("left them behind", child);
    for (int i = 0; i < 40 && gone < kMany; i++) {
        usleep(50000);
        gone = 0;
        for (int at = 0; at < kMany; at++) gone += is_gone(pids[at]);
    }
    say("round %d: %d of %d gone", round, gone, kMany);
}

static void scenario(void) {
    beside(static_tool, "static_tool");
    beside(fork_module, "fork_module");
    static_after_alarm(0, "exit", "3");
    static_after_alarm(0, "rest", "3000");
    static_after_alarm(1, "exit", "3");
    static_beside_a_thread_with_a_signal();
    say_signals("pipes end it", 0);
    say_signals("pipes do nothing", 1);
    fork_that_fails();
    forks_with_handlers();
    library_that_is_gone();
    for (int round = 0; round < 2; round++) left_behind(round);
}

int main(int argc, char** argv) {
    return serve(argc, argv, scenario);
}
