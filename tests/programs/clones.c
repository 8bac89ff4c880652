// Processes made by clone() and vfork(): who is told of their end and how, who waits for whom; what they
// cost, and what each has of its own.
#include <dirent.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "serve.h"

enum { kStack = 256 * 1024 };
static char stack[kStack] __attribute__((aligned(16)));
static volatile sig_atomic_t told, how, status_told;

static void on_end(int signal, siginfo_t* info, void* unused) {
    (void)unused;
    told = signal;
    how = info->si_code;
    status_told = info->si_status;
}

static int leave_with(void* number) {
    return *(int*)number;
}

static pid_t make(int flags, int (*does)(void*), void* argument) {
    const pid_t child = clone(does, stack + kStack, flags, argument);
    CHECK(child > 0);
    return child;
}

// One that ends with another signal than SIGCHLD, or with none, is waited for by those who say so.
static void with_signal(int signal) {
    struct sigaction action = {.sa_sigaction = on_end, .sa_flags = SA_SIGINFO}, before;
    int number = 9, status = 0;
    told = how = status_told = 0;
    if (signal != 0) CHECK(sigaction(signal, &action, &before) == 0);
    const pid_t child = make(signal, leave_with, &number);
    say("of signal %d: by wait %s", signal, outcome(waitpid(child, &status, 0)));
    say("by another's %s", outcome(waitpid(child, &status, WNOHANG | __WALL) >= 0 ? 0 : -1));
    if (status == 0) CHECK(waitpid(child, &status, __WCLONE) == child);
    say("ended with %d", WEXITSTATUS(status));
    if (signal != 0) {
        say("told by %d, code %d, status %d", told, how, status_told);
        sigaction(signal, &before, NULL);
    }
    const pid_t usual = fork();
    if (usual == 0) _exit(3);
    say("a forked one by __WCLONE: %s", outcome(waitpid(usual, &status, __WCLONE)));
    CHECK(waitpid(usual, &status, __WALL) == usual);
}

static int parent_is(void* expected) {
    return getppid() == *(pid_t*)expected ? 5 : 6;
}

// A child that makes a sibling: it is this process that waits for both.
static void siblings(void) {
    int ends[2], status;
    CHECK(pipe(ends) == 0);
    const pid_t child = fork();
    if (child == 0) {
        pid_t above = getppid();
        const pid_t sibling = clone(parent_is, stack + kStack, CLONE_PARENT | SIGCHLD, &above);
        CHECK(write(ends[1], &sibling, sizeof sibling) == sizeof sibling);
        _exit(sibling > 0 && waitpid(-1, NULL, 0) == -1 && errno == ECHILD ? 2 : 1);
    }
    pid_t sibling = -1;
    CHECK(read(ends[0], &sibling, sizeof sibling) == sizeof sibling);
    CHECK(waitpid(child, &status, 0) == child);
    say("child %d", WEXITSTATUS(status));
    say("its sibling is waited for: %d", waitpid(sibling, &status, 0) == sibling);
    say("sibling %d", WEXITSTATUS(status));
    close(ends[0]);
    close(ends[1]);
}

// Who calls vfork() goes on when the child has executed a program, or ended.
static void vforks(void) {
    int ends[2], status;
    char byte = 0;
    CHECK(pipe2(ends, O_NONBLOCK | O_CLOEXEC) == 0);
    const pid_t child = vfork();
    if (child == 0) {
        sched_yield();
        (void)!write(ends[1], "e", 1);
        _exit(4);
    }
    say("it has written: %s", outcome(read(ends[0], &byte, 1)));
    CHECK(waitpid(child, &status, 0) == child);
    say("and ended with %d", WEXITSTATUS(status));
    const pid_t program = vfork();
    if (program == 0) {
        sched_yield();
        (void)!write(ends[1], "p", 1);
        execl("/bin/sh", "sh", "-c", "exit 8", NULL);
        _exit(1);
    }
    say("before its program: %s", outcome(read(ends[0], &byte, 1)));
    CHECK(waitpid(program, &status, 0) == program);
    say("which ended with %d", WEXITSTATUS(status));
    close(ends[0]);
    close(ends[1]);
}

static long clone_by_number(long flags, void* place) { return syscall(SYS_clone, flags, NULL, place, NULL, 0L); }

static int lowest_free(void) {
    const int number = dup(0);
    close(number);
    return number;
}

// A child whose maker is given a descriptor of it (Qt starts its processes so).
static void with_descriptor(void) {
    siginfo_t info;
    int number = 6, fd = -1;
    const int lowest = lowest_free();
    pid_t child = (pid_t)clone_by_number(CLONE_PIDFD | SIGCHLD, &fd);
    if (child == 0) _exit(fd == -1 && lowest_free() == lowest ? 13 : 1);
    CHECK(child > 0);
    say("a descriptor: %d, closed by exec: %d", fd - lowest, fcntl(fd, F_GETFD) == FD_CLOEXEC);
    struct pollfd ended = {.fd = fd, .events = POLLIN};
    say("it tells of the end: %s", outcome(poll(&ended, 1, 60000)));
    say("by a signal: %s", outcome(syscall(SYS_pidfd_send_signal, fd, SIGCONT, NULL, 0)));
    say("waited for: %s", outcome(waitid(P_PIDFD, (id_t)fd, &info, WEXITED)));
    say("the same child: %d, ended with %d", info.si_pid == child, info.si_status);
    close(fd);
    fd = -1;
    child = clone(leave_with, stack + kStack, CLONE_PIDFD | SIGCHLD, &number, &fd);
    CHECK(child > 0 && waitid(P_PIDFD, (id_t)fd, &info, WEXITED) == 0);
    say("on a stack of its own: %d, %d", info.si_pid == child, info.si_status);
    close(fd);
    say("to a bad place: %s", outcome(clone_by_number(CLONE_PIDFD | SIGCHLD, (void*)8)));
    say("and its number: %s", outcome(clone_by_number(CLONE_PIDFD | CLONE_PARENT_SETTID | SIGCHLD, &fd)));
    say("detached: %s", outcome(clone_by_number(CLONE_PIDFD | CLONE_DETACHED | SIGCHLD, &fd)));
    struct rlimit before, now;
    CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
    now = before;
    now.rlim_cur = (rlim_t)lowest_free();
    CHECK(setrlimit(RLIMIT_NOFILE, &now) == 0);
    say("too many open: %s", outcome(clone_by_number(CLONE_PIDFD | SIGCHLD, &fd)));
    CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
    say("no child: %s", outcome(waitpid(-1, NULL, WNOHANG)));
}

static void costs(void) {
    int status;
    struct rusage used;
    for (int round = 0; round < 2; ++round) {
        const pid_t child = fork();
        if (child == 0) {
            struct timespec begin;
            clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &begin);
            while (ms_since(begin, CLOCK_PROCESS_CPUTIME_ID) < 20) continue;
            _exit(0);
        }
        memset(&used, 0xff, sizeof used);
        siginfo_t info;
        if (round == 0)
            CHECK(wait4(child, &status, 0, &used) == child);
        else  // which libc's function cannot say
            CHECK(syscall(SYS_waitid, P_PID, child, &info, WEXITED, &used) == 0);
        const long ms = used.ru_utime.tv_sec * 1000 + used.ru_utime.tv_usec / 1000 +
                        used.ru_stime.tv_sec * 1000 + used.ru_stime.tv_usec / 1000;
        say("a child that computes is told to have: %d", ms >= 15 && ms < 20000);
    }
    const pid_t child = fork();
    if (child == 0) _exit(0);
    say("to a bad place: %s", outcome(wait4(child, (int*)8, 0, NULL)));
    say("it was waited for: %s", outcome(waitpid(child, &status, 0)));
}

// rdtsc is the program's to switch off.
static void counter(void) {
    int now = 0, status;
    say("told %s", outcome(prctl(PR_GET_TSC, &now)));
    say("on: %d", now == PR_TSC_ENABLE);
    say("another value: %s", outcome(prctl(PR_SET_TSC, 7)));
    const pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_TSC, PR_TSC_SIGSEGV);
        prctl(PR_GET_TSC, &now);
        if (now != PR_TSC_SIGSEGV) _exit(1);
        const pid_t below = fork();
        if (below == 0) {
            __builtin_ia32_rdtsc();
            _exit(1);
        }
        CHECK(waitpid(below, &status, 0) == below);
        if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGSEGV) _exit(2);
        prctl(PR_SET_TSC, PR_TSC_ENABLE);
        _exit(__builtin_ia32_rdtsc() != 0 ? 11 : 3);
    }
    CHECK(waitpid(child, &status, 0) == child);
    say("off and on again: %d", WEXITSTATUS(status));
}

// Rules of its own that end each child in the midst of fork().
static void judged(void) {
    struct sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_set_robust_list, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog rules = {sizeof steps / sizeof *steps, steps};
    int status;
    const pid_t child = fork();
    if (child == 0) {
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &rules) != 0)
            _exit(1);
        for (int i = 0; i < 3; ++i) {
            const pid_t below = fork();
            if (below == 0) _exit(2);
            if (below < 0 || waitpid(below, &status, 0) != below) _exit(3);
            if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGSYS) _exit(4);
        }
        _exit(12);
    }
    CHECK(waitpid(child, &status, 0) == child);
    say("ended by its own rules: %d", WEXITSTATUS(status));
}

static int by_name(const void* a, const void* b) {
    return strcmp(*(char* const*)a, *(char* const*)b);
}

// The older call for directories, by a small buffer.
static void old_entries(void) {
    struct entry {
        unsigned long inode, next;
        unsigned short bytes;
        char name[];
    };
    char folder[] = "/tmp/entriesXXXXXX", path[64], *names[16], piece[64] __attribute__((aligned(8)));
    int count = 0;
    CHECK(mkdtemp(folder));
    const int fd = open(folder, O_RDONLY | O_DIRECTORY);
    for (int i = 0; i < 5; ++i) {
        snprintf(path, sizeof path, "f%d", i * 11111);
        CHECK(i == 2 ? mkdirat(fd, path, 0700) == 0 : close(openat(fd, path, O_CREAT | O_RDWR, 0600)) == 0);
    }
    say("too small: %s", outcome(syscall(SYS_getdents, fd, piece, 8)));
    for (long got; (got = syscall(SYS_getdents, fd, piece, sizeof piece)) > 0;) {
        for (long at = 0; at < got;) {
            const struct entry* const one = (const struct entry*)(piece + at);
            snprintf(path, sizeof path, "%s of type %d", one->name, piece[at + one->bytes - 1]);
            CHECK(count < 16 && (names[count++] = strdup(path)));
            at += one->bytes;
        }
    }
    qsort(names, (size_t)count, sizeof *names, by_name);
    for (int i = 0; i < count; ++i) say("%s", names[i]), free(names[i]);
    for (int i = 0; i < 5; ++i) {
        snprintf(path, sizeof path, "f%d", i * 11111);
        CHECK(unlinkat(fd, path, i == 2 ? AT_REMOVEDIR : 0) == 0);
    }
    CHECK(rmdir(folder) == 0);
    say("removed: %s", outcome(syscall(SYS_getdents, fd, piece, sizeof piece)));
    say("no folder: %s", outcome(syscall(SYS_getdents, 0, piece, sizeof piece)));
    close(fd);
}

static void all(void) {
    with_signal(0);
    with_signal(SIGUSR1);
    siblings();
    vforks();
    with_descriptor();
    costs();
    counter();
    judged();
    old_entries();
}

int main(int argc, char** argv) {
    return serve(argc, argv, all);
}
