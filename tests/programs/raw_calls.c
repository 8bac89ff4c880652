// System calls made by instructions of the program's own, which no wrapper sees: on clients' sockets, between
// threads and processes, of clocks and chance, of signals. The server itself talks to its clients by them alone.
#include "serve.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static long raw6(long number, long a, long b, long c, long d, long e, long f) {
    long result;
    register long r10 asm("r10") = d;
    register long r8 asm("r8") = e;
    register long r9 asm("r9") = f;
    asm volatile("syscall"
                 : "=a"(result)
                 : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                 : "rcx", "r11", "memory");
    return result;
}
#define raw(number, ...) raw_of(number, ##__VA_ARGS__, 0, 0, 0, 0, 0, 0)
#define raw_of(number, a, b, c, d, e, f, ...) \
    raw6(number, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))

static int pipes[2];
static int word;

static void* write_later(void* unused) {
    const struct timespec pause = {0, 5000000};
    (void)unused;
    raw(SYS_nanosleep, &pause, NULL);
    raw(SYS_write, pipes[1], "through a pipe", 14);
    return NULL;
}

static void a_pipe(void) {
    char text[32] = "";
    pthread_t thread;
    CHECK(raw(SYS_pipe2, pipes, O_CLOEXEC) == 0);
    CHECK(pthread_create(&thread, NULL, write_later, NULL) == 0);
    const long got = raw(SYS_read, pipes[0], text, sizeof text);
    say("read %ld: %s", got, text);
    pthread_join(thread, NULL);
    struct pollfd one = {.fd = pipes[0], .events = POLLIN};
    say("poll %ld", raw(SYS_poll, &one, 1, 10));
    const int epoll = raw(SYS_epoll_create1, 0);
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = 17};
    say("epoll_ctl %ld", raw(SYS_epoll_ctl, epoll, EPOLL_CTL_ADD, pipes[0], &event));
    raw(SYS_write, pipes[1], "x", 1);
    event.data.u32 = 0;
    say("epoll_wait %ld", raw(SYS_epoll_wait, epoll, &event, 1, -1));
    say("of %u", event.data.u32);
    raw(SYS_close, epoll);
    raw(SYS_close, pipes[0]);
    raw(SYS_close, pipes[1]);
    say("closed twice %ld", raw(SYS_close, pipes[0]));
}

static void* wake(void* unused) {
    (void)unused;
    __atomic_store_n(&word, 1, __ATOMIC_SEQ_CST);
    while (raw(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1) != 1) raw(SYS_sched_yield);
    return NULL;
}

static void a_futex(void) {
    pthread_t thread;
    word = 0;
    say("another value %ld", raw(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 5, NULL));
    const struct timespec shortly = {0, 1000000};
    say("time %ld", raw(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &shortly));
    word = 1;
    CHECK(pthread_create(&thread, NULL, wake, NULL) == 0);
    say("woken %ld", raw(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 1, NULL));
    pthread_join(thread, NULL);
}

static void the_clock(void) {
    struct timespec begin, end;
    const struct timespec pause = {0, 20000000};
    say("clock_gettime %ld", raw(SYS_clock_gettime, CLOCK_MONOTONIC, &begin));
    say("nanosleep %ld", raw(SYS_nanosleep, &pause, NULL));
    raw(SYS_clock_gettime, CLOCK_MONOTONIC, &end);
    const long ns = (end.tv_sec - begin.tv_sec) * 1000000000L + end.tv_nsec - begin.tv_nsec;
    say("slept %d", ns >= 20000000);
    order("at %ld.%09ld", (long)begin.tv_sec, begin.tv_nsec);
    raw(SYS_clock_gettime, CLOCK_REALTIME, &begin);
    order("real %ld.%09ld", (long)begin.tv_sec, begin.tv_nsec);
}

static void files(void) {
    char folder[] = "/tmp/crane-raw-XXXXXX", path[64], entries[2048];
    CHECK(mkdtemp(folder));
    for (int i = 0; i < 5; i++) {
        snprintf(path, sizeof path, "%s/%d", folder, i * 7 % 5);
        const long fd = raw(SYS_openat, AT_FDCWD, path, O_CREAT | O_WRONLY, 0600);
        say("wrote %ld", raw(SYS_write, fd, path, i));
        raw(SYS_close, fd);
    }
    const long fd = raw(SYS_openat, AT_FDCWD, folder, O_RDONLY | O_DIRECTORY);
    int count = 0;
    for (long got; (got = raw(SYS_getdents64, fd, entries, 96)) > 0;) {
        for (long at = 0; at < got; count++) {
            const struct dirent64* one = (const struct dirent64*)(entries + at);
            order("%s %lu", one->d_name, (unsigned long)one->d_ino);
            at += one->d_reclen;
        }
    }
    say("%d entries", count);
    struct stat about;
    say("fstat %ld", raw(SYS_fstat, fd, &about));
    order("inode %lu, changed %ld.%09ld", (unsigned long)about.st_ino, (long)about.st_mtim.tv_sec, about.st_mtim.tv_nsec);
    raw(SYS_close, fd);
    for (int i = 0; i < 5; i++) {
        snprintf(path, sizeof path, "%s/%d", folder, i);
        say("unlink %ld", raw(SYS_unlink, path));
    }
    rmdir(folder);
    char* page = (char*)raw(SYS_mmap, NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    page[17] = 3;
    say("mapped %d", page[17]);
    say("munmap %ld", raw(SYS_munmap, page, 4096));
}

static volatile int handled;
static void on_signal(int signal) { handled += signal; }

static void signals(void) {
    sigset_t all, before;
    signal(SIGUSR1, on_signal);
    handled = 0;
    sigfillset(&all);
    say("block all %ld", raw(SYS_rt_sigprocmask, SIG_SETMASK, &all, &before, 8));
    const long pid = raw(SYS_getpid), tid = raw(SYS_gettid);
    raw(SYS_kill, pid, SIGUSR1);
    say("blocked %d", handled);
    say("unblock %ld", raw(SYS_rt_sigprocmask, SIG_SETMASK, &before, NULL, 8));
    say("handled %d", handled == SIGUSR1);
    raw(SYS_tkill, tid, SIGUSR1);
    say("again %d", handled == 2 * SIGUSR1);
    static char room[16384];
    const stack_t stack = {.ss_sp = room, .ss_size = sizeof room};
    stack_t now = {0};
    say("sigaltstack %ld", raw(SYS_sigaltstack, &stack, NULL));
    raw(SYS_sigaltstack, NULL, &now);
    say("it stays %d", now.ss_sp == room);
    const stack_t none = {.ss_flags = SS_DISABLE};
    raw(SYS_sigaltstack, &none, NULL);
    signal(SIGUSR1, SIG_DFL);
}

static void a_child(void) {
    int status = 0;
    const long child = raw(SYS_fork);
    if (child == 0) {
        const struct timespec pause = {0, 1000000};
        raw(SYS_nanosleep, &pause, NULL);
        raw(SYS_exit_group, 7);
    }
    say("wait4 %d", raw(SYS_wait4, child, &status, 0, NULL) == child);
    say("ended with %d", WEXITSTATUS(status));
    order("child %ld", child);
    say("clone of a thread %d", raw(SYS_clone, CLONE_THREAD, NULL) < 0);
}

// What a filter of the program's own makes of a call reaches its own handler.
static void on_filter(int signal, siginfo_t* info, void* context) {
    (void)context;
    if (signal == SIGSYS && info->si_code == 1 && info->si_syscall == SYS_getpriority) _exit(3);
    _exit(4);
}

static void a_filter(void) {
    int status = 0;
    const pid_t child = fork();
    if (child == 0) {
        struct sock_filter code[] = {
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getpriority, 0, 1),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        };
        const struct sock_fprog program = {sizeof code / sizeof *code, code};
        const struct sigaction action = {.sa_sigaction = on_filter, .sa_flags = SA_SIGINFO};
        sigaction(SIGSYS, &action, NULL);
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
        raw(SYS_write, -1, "", 0);
        raw(SYS_getpriority, PRIO_PROCESS, 0);
        _exit(5);
    }
    waitpid(child, &status, 0);
    say("its handler ran: %d", WEXITSTATUS(status));
}

static void scenario(void) {
    unsigned long chance = 0;
    errno = 77;
    double number = 1.0 / 3;
    asm volatile("" : "+x"(number));
    say("getrandom %ld", raw(SYS_getrandom, &chance, sizeof chance, 0));
    asm volatile("" : "+x"(number));
    say("registers stay %d, errno %d", number == 1.0 / 3, errno);
    order("chance %016lx", chance);
    say("getpid %d", raw(SYS_getpid) == getpid());
    say("no such call %ld", raw(500));
    say("bad address %ld", raw(SYS_clock_gettime, CLOCK_REALTIME, 8));
    a_pipe();
    a_futex();
    the_clock();
    files();
    signals();
    a_child();
    a_filter();
}

static void serve_client(int client) {
    char line[64];
    int at = 0;
    while (at < 63 && raw(SYS_read, client, line + at, 1) == 1 && line[at] != '\n') at++;
    char* text = NULL;
    size_t bytes = 0;
    serve_out = open_memstream(&text, &bytes);
    say("asked by %d bytes", at);
    scenario();
    fclose(serve_out);
    for (size_t sent = 0; sent < bytes;) {
        const long rc = raw(SYS_write, client, text + sent, bytes - sent);
        if (rc <= 0) break;
        sent += rc;
    }
    free(text);
    raw(SYS_close, client);
}

int main(int argc, char** argv) {
    CHECK(argc == 2);
    signal(SIGPIPE, SIG_IGN);
    const int listener = listen_on(atoi(argv[1]));
    for (;;) {
        const long client = raw(SYS_accept4, listener, NULL, NULL, SOCK_CLOEXEC);
        if (client >= 0) serve_client(client);
    }
}
