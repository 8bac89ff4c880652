// Children that die by their own deed, each in another way: the parent sees how, as natively, and goes on.
// And what the kernel does at a process's end has happened before anyone can look.
#undef NDEBUG
#include <assert.h>
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

#include "pair.h"

static volatile int zero, sink;

__attribute__((noinline)) static int deep(int n) {
    volatile char frame[4096];
    frame[n % 4096] = (char)n;
    return n < 0 ? 0 : deep(n + 1) + frame[0];
}

static void by_assert(void) {
    assert(zero == 1);
}
static void by_abort(void) {
    abort();
}
static void by_trap(void) {
    __builtin_trap();
}
static void by_breakpoint(void) {
    __asm__ volatile("int3");
}
static void by_division(void) {
    sink = 100 / zero;
}
static void by_null(void) {
    *(volatile int*)(intptr_t)zero = 1;
}
static void by_recursion(void) {
    sink = deep(1);
}
static void by_raise(void) {
    raise(SIGTERM);
}
static void by_kill(void) {
    kill(getpid(), SIGKILL);
}
static void by_raw_exit(void) {
    syscall(SYS_exit, 5);
}
static void by_quick_exit(void) {
    quick_exit(4);
}
static void by_bare_exit(void) {
    __asm__ volatile("syscall" : : "a"(SYS_exit_group), "D"(6) : "rcx", "r11", "memory");
}
static void by_bare_kill(void) {
    const long self = getpid();
    __asm__ volatile("syscall" : : "a"(SYS_kill), "D"(self), "S"(SIGTERM) : "rcx", "r11", "memory");
}

static void on_abort(int signal) {
    (void)signal;
    _exit(7);
}
static void by_assert_with_handler(void) {
    signal(SIGABRT, on_abort);
    assert(zero == 1);
}

static void by_double_free(void) {
    char* volatile twice = malloc(32);
    char* volatile same = twice;
    free(twice);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuse-after-free"
    free(same);
#pragma GCC diagnostic pop
}

static void by_processor_time(void) {
    const struct rlimit limit = {1, 2};
    CHECK(setrlimit(RLIMIT_CPU, &limit) == 0);
    for (;;) sink = zero;
}

static void by_file_size(void) {
    const struct rlimit limit = {100, 100};
    char path[] = "/tmp/crane-children-XXXXXX", bytes[4096] = {1};
    const int file = mkstemp(path);
    CHECK(file >= 0 && unlink(path) == 0 && setrlimit(RLIMIT_FSIZE, &limit) == 0);
    for (int n = 0; n < 2; n++) sink = (int)write(file, bytes, sizeof bytes);
}

// A filter that kills for getpriority, which nobody else calls.
static void by_filter(void) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getpriority, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {sizeof code / sizeof *code, code};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
          prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
    sink = getpriority(PRIO_PROCESS, 0);
}

// Allowed still: read, write and the bare exit.
static void by_strict_rules(void) {
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) == 0);
    syscall(SYS_exit, write(2, "x", 1) == 1 ? 8 : 9);
}

static void run(char* const* argv, char* const* environment) {
    const int null = open("/dev/null", O_WRONLY);
    dup2(null, 1);
    dup2(null, 2);
    execve(argv[0], argv, environment);
    _exit(127);
}

static void by_missing_program(void) {
    char *argv[] = {"/nowhere/nothing", NULL}, *environment[] = {NULL};
    run(argv, environment);
}
// The loader ends before any library starts: as it is with a library that is missing.
static void by_loader(void) {
    char *argv[] = {"/bin/true", NULL}, *environment[] = {"LD_TRACE_LOADED_OBJECTS=1", NULL};
    run(argv, environment);
}
static void by_no_program(void) {
    char path[] = "/tmp/crane-children-XXXXXX";
    char *argv[] = {path, NULL}, *environment[] = {NULL};
    const int file = mkstemp(path);
    CHECK(file >= 0 &&
          write(file,
                "\x7f"
                "ELF, and nothing more",
                20) == 20 &&
          fchmod(file, 0700) == 0);
    close(file);
    execve(path, argv, environment);
    const int error = errno;
    unlink(path);
    _exit(error == ENOEXEC ? 3 : 4);
}
static void limited(int resource, rlim_t value) {
    const struct rlimit limit = {value, value};
    char *argv[] = {"/bin/sh", "-c", "exit 9", NULL}, *environment[] = {NULL};
    CHECK(setrlimit((__rlimit_resource_t)resource, &limit) == 0);
    run(argv, environment);
}
static void few_descriptors(void) {
    limited(RLIMIT_NOFILE, 64);
}
static void little_memory(void) {
    limited(RLIMIT_AS, 256 << 20);
}
static void child(const char* what, void (*deed)(void)) {
    int status = 0;
    const pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        const struct rlimit no_core = {0, 0};
        setrlimit(RLIMIT_CORE, &no_core);
        dup2(open("/dev/null", O_WRONLY), 2);
        deed();
        _exit(99);
    }
    CHECK(waitpid(pid, &status, 0) == pid);
    if (WIFSIGNALED(status))
        say("%s: signal %d", what, WTERMSIG(status));
    else
        say("%s: exited %d", what, WEXITSTATUS(status));
}

// Dies with a thread and others' waits under way: what it held is free, who waits for it is told.
static void what_is_left(void) {
    int ends[2], near, far;
    char byte;
    CHECK(pipe(ends) == 0);
    tcp_pair(&near, &far);
    const pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        close(2);
        close(near);
        abort();
    }
    close(ends[1]);
    close(far);
    say("its pipe's end: %s", outcome(read(ends[0], &byte, 1)));
    say("its connection's end: %s", outcome(recv(near, &byte, 1, 0)));
    CHECK(waitpid(pid, NULL, 0) == pid);
    close(ends[0]);
    close(near);
}

// The kernel gives up a file's locks when it closes the process's files, before it is seen to be dead.
static void locks_are_given_up(void) {
    char path[] = "/tmp/crane-children-XXXXXX", byte;
    int file = mkstemp(path), refused = 0;
    CHECK(file >= 0 && unlink(path) == 0);
    for (int round = 0; round < 50; round++) {
        int ends[2];
        CHECK(pipe(ends) == 0);
        const pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            CHECK(lockf(file, F_LOCK, 0) == 0);
            _exit(0);
        }
        close(ends[1]);
        CHECK(read(ends[0], &byte, 1) == 0 && waitpid(pid, NULL, 0) == pid);
        if (lockf(file, F_TLOCK, 0) == 0)
            CHECK(lockf(file, F_ULOCK, 0) == 0);
        else
            refused++;
        close(ends[0]);
    }
    say("refused %d", refused);
    close(file);
}

static void pidfd_of_this(void) {
    char path[64], line[64];
    const int own = (int)syscall(SYS_pidfd_open, getpid(), 0);
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", own);
    FILE* told = fopen(path, "re");
    int of_this = 0;
    CHECK(told);
    while (fgets(line, sizeof line, told))
        if (strncmp(line, "Pid:\t", 5) == 0) of_this = atoi(line + 5) == getpid();
    fclose(told);
    close(own);
    say("pidfd names this process: %d", of_this);
}

static void pidfds_are_told(void) {
    int seen = 0;
    for (int round = 0; round < 10; round++) {
        const pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            usleep(2000);
            _exit(0);
        }
        struct pollfd wait = {.fd = (int)syscall(SYS_pidfd_open, pid, 0), .events = POLLIN};
        seen += poll(&wait, 1, -1) == 1;
        siginfo_t info = {.si_signo = SIGUSR1, .si_code = SI_QUEUE};
        CHECK(syscall(SYS_pidfd_send_signal, wait.fd, SIGUSR2, &info, 0) == -1 && errno == EINVAL);
        CHECK(syscall(SYS_pidfd_send_signal, wait.fd, SIGUSR1, NULL, 999) == -1 && errno == EINVAL);
        close(wait.fd);
        CHECK(waitpid(pid, NULL, 0) == pid);
    }
    say("pidfds told %d", seen);
    int ends[2];
    CHECK(pipe(ends) == 0);
    const pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) _exit(read(ends[0], &(char){0}, 1) == 1 ? 7 : 1);
    const int other = (int)syscall(SYS_pidfd_open, pid, O_NONBLOCK);
    siginfo_t info = {0};
    say("does not wait %s", outcome(waitid(P_PIDFD, (id_t)other, &info, WEXITED)));
    CHECK(write(ends[1], "", 1) == 1 && poll(&(struct pollfd){.fd = other, .events = POLLIN}, 1, -1) == 1);
    say("ended %s %d", outcome(waitid(P_PIDFD, (id_t)other, &info, WEXITED)), info.si_status);
    close(other);
    close(ends[0]);
    close(ends[1]);
}

// Gives up the right to any descriptor but those it has, as sandboxed processes do, and still talks.
static void without_descriptors(void) {
    int ends[2], status;
    char text[8] = "";
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    const pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        const struct rlimit none = {0, 0};
        CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
        CHECK(write(ends[1], "ask", 3) == 3 && read(ends[1], text, 4) == 4);
        _exit(memcmp(text, "told", 4) == 0 ? 0 : 1);
    }
    CHECK(read(ends[0], text, 3) == 3);
    usleep(5000);
    say("asked: %s", text);
    CHECK(write(ends[0], "told", 4) == 4 && waitpid(pid, &status, 0) == pid);
    say("without descriptors: %d", status);
    close(ends[0]);
    close(ends[1]);
}

static void raw_clones(void) {
    int status = -1, tid = 0, flags = SIGCHLD | CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID;
    pid_t pid = (pid_t)syscall(SYS_clone, flags, NULL, NULL, &tid, 0);
    if (pid == 0) _exit(tid == getpid() ? 5 : 6);
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
    say("a raw clone: %d", WEXITSTATUS(status));
    // Whether it may have its own namespaces is its privilege's affair; that it may not is said by EPERM.
    pid = (pid_t)syscall(SYS_clone, SIGCHLD | CLONE_NEWPID | CLONE_NEWIPC, NULL, NULL, NULL, 0);
    if (pid == 0) _exit(0);
    say("in its own namespaces: %d", pid > 0 || errno == EPERM);
    if (pid > 0) waitpid(pid, &status, 0);
}

// An orphan that crashes: nobody waits for it, and everybody goes on.
static void orphans(void) {
    int ends[2], status;
    char byte;
    CHECK(pipe(ends) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        const pid_t parent = getpid();
        if (fork() != 0) _exit(0);
        close(2);
        while (getppid() == parent) usleep(1000);
        abort();
    }
    CHECK(waitpid(pid, &status, 0) == pid);
    close(ends[1]);
    say("orphan's end: %s", outcome(read(ends[0], &byte, 1)));
    close(ends[0]);
    CHECK(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
    pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        if (fork() == 0) {
            usleep(2000);
            _exit(9);
        }
        _exit(1);
    }
    int count = 0, sum = 0;
    while (waitpid(-1, &status, 0) > 0) {
        count++;
        sum += WEXITSTATUS(status);
    }
    say("adopted: %d children, sum %d", count, sum);
    CHECK(prctl(PR_SET_CHILD_SUBREAPER, 0) == 0);
}

static void parents_death(void) {
    int ends[2];
    char byte;
    CHECK(pipe(ends) == 0);
    const pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        if (fork() == 0) {
            CHECK(prctl(PR_SET_PDEATHSIG, SIGTERM) == 0 && write(ends[1], "x", 1) == 1);
            for (;;) pause();
        }
        CHECK(read(ends[0], &byte, 1) == 1);
        abort();
    }
    close(ends[1]);
    CHECK(waitpid(pid, NULL, 0) == pid);
    say("ended with its parent: %s", outcome(read(ends[0], &byte, 1)));
    close(ends[0]);
}

static void scenario(void) {
    child("assert", by_assert);
    child("assert, with a handler", by_assert_with_handler);
    child("abort", by_abort);
    child("trap", by_trap);
    child("breakpoint", by_breakpoint);
    child("division", by_division);
    child("null", by_null);
    child("recursion", by_recursion);
    child("double free", by_double_free);
    child("raise", by_raise);
    child("kill", by_kill);
    child("raw exit", by_raw_exit);
    child("quick_exit", by_quick_exit);
    child("bare exit", by_bare_exit);
    child("bare kill", by_bare_kill);
    child("processor time", by_processor_time);
    child("file size", by_file_size);
    child("filter", by_filter);
    child("strict rules", by_strict_rules);
    child("missing program", by_missing_program);
    child("loader", by_loader);
    child("no program", by_no_program);
    child("few descriptors", few_descriptors);
    child("little memory", little_memory);
    without_descriptors();
    raw_clones();
    what_is_left();
    locks_are_given_up();
    pidfds_are_told();
    pidfd_of_this();
    orphans();
    parents_death();
}

int main(int argc, char** argv) {
    return serve(argc, argv, scenario);
}
