// Children that cannot be scheduled, in all the places where somebody may wait for them: each is waited for in
// an order that the log determines, and none of them keeps the server.
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "serve.h"

static char tool[512];

static void close_pair(const int* ends) {
    close(ends[0]);
    close(ends[1]);
}

// in, out: what its standard input and output are, -1: as they are.
static pid_t start(int in, int out, const char* mode, const char* first, const char* second) {
    const pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        if (in >= 0) dup2(in, 0);
        if (out >= 0) dup2(out, 1);
        for (int fd = 3; fd < 64; fd++) close(fd);
        execl(tool, tool, mode, first, second, (char*)NULL);
        _exit(99);
    }
    return pid;
}

static void finish(const char* name, pid_t pid) {
    int status = 0;
    const pid_t got = waitpid(pid, &status, 0);
    say("%s: %s status %x", name, got == pid ? "collected" : outcome(got), status);
}

static void ends(void) {
    finish("exit", start(-1, -1, "exit", "3", NULL));
    finish("signal", start(-1, -1, "die", NULL, NULL));
    finish("rest", start(-1, -1, "rest", "300", NULL));
    const pid_t pid = start(-1, -1, "rest", "100000", NULL);
    CHECK(kill(pid, SIGKILL) == 0);
    finish("killed", pid);
    siginfo_t info;
    const pid_t kept = start(-1, -1, "exit", "5", NULL);
    CHECK(waitid(P_PID, (id_t)kept, &info, WEXITED | WNOWAIT) == 0);
    say("looked at: %d %d", info.si_code == CLD_EXITED, info.si_status);
    finish("still there", kept);
    say("none left: %s", outcome(waitpid(-1, NULL, WNOHANG)));
}

// Reads all there is, piece by piece: the number and sizes of the pieces are the same on all replicas.
static void read_all(const char* name, int fd) {
    char bytes[4096];
    unsigned sum = 0, total = 0;
    for (ssize_t got; (got = read(fd, bytes, sizeof bytes)) > 0;) {
        order("%s: %zd bytes at once", name, got);
        for (ssize_t i = 0; i < got; i++) sum = sum * 31 + (unsigned char)bytes[i];
        total += (unsigned)got;
    }
    say("%s: %u bytes, sum %u", name, total, sum);
}

static void output(void) {
    int out[2];
    CHECK(pipe(out) == 0);
    const pid_t pid = start(-1, out[1], "lines", "5", "20");
    close(out[1]);
    read_all("lines", out[0]);
    close(out[0]);
    finish("lines", pid);
    CHECK(pipe(out) == 0);
    const pid_t counter = start(-1, out[1], "processors", NULL, NULL);
    close(out[1]);
    read_all("processors", out[0]);  // all, wherever the server's threads are kept
    close(out[0]);
    finish("counter", counter);
    CHECK(pipe(out) == 0);
    const pid_t computer = start(-1, out[1], "compute", NULL, NULL);
    close(out[1]);
    struct pollfd look = {out[0], POLLIN, 0};
    say("polled: %s", outcome(poll(&look, 1, 60000)));
    const int epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {EPOLLIN, {.fd = out[0]}};
    CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, out[0], &event) == 0);
    say("waited for: %s", outcome(epoll_wait(epoll, &event, 1, 60000)));
    close(epoll);
    read_all("computed", out[0]);
    close(out[0]);
    finish("computer", computer);
}

// What it does to files has its place in the schedule too: the replicas agree on what is seen at once.
static void files(void) {
    char path[] = "/tmp/crane-opaque-XXXXXX";
    struct stat info;
    const int file = mkostemp(path, O_CLOEXEC);
    CHECK(file >= 0 && unlink(path) == 0);
    const pid_t pid = start(-1, file, "lines", "5", "20");
    CHECK(fstat(file, &info) == 0);
    order("%ld bytes at once", (long)info.st_size);
    finish("writer of a file", pid);
    CHECK(fstat(file, &info) == 0);
    say("%ld bytes", (long)info.st_size);
    close(file);
}

// A child in the schedule writes, the tool turns it around, this process reads: more than any pipe holds.
static void in_the_middle(void) {
    int in[2], out[2];
    CHECK(pipe(in) == 0 && pipe(out) == 0);
    const pid_t pid = start(in[0], out[1], "copy", NULL, NULL);
    const pid_t writer = fork();
    CHECK(writer >= 0);
    if (writer == 0) {
        char bytes[3000];
        memset(bytes, 'a', sizeof bytes);
        close(in[0]);
        close_pair(out);
        for (int i = 0; i < 200; i++) write_all(in[1], bytes, sizeof bytes);
        _exit(0);
    }
    close_pair(in);
    close(out[1]);
    read_all("turned around", out[0]);
    close(out[0]);
    finish("copy", pid);
    finish("writer", writer);
}

// The same pipe to and fro: what is asked is answered.
static void dialogue(void) {
    int in[2], out[2];
    char answer[64];
    CHECK(pipe(in) == 0 && pipe(out) == 0);
    const pid_t pid = start(in[0], out[1], "copy", NULL, NULL);
    close(in[0]);
    close(out[1]);
    say("nothing yet: %s", outcome(waitpid(pid, NULL, WNOHANG)));
    for (int i = 0; i < 3; i++) {
        CHECK(write(in[1], "hello", 5) == 5);
        const ssize_t got = read(out[0], answer, sizeof answer);
        say("answered: %.*s", (int)got, answer);
    }
    close(in[1]);
    read_all("the rest", out[0]);
    close(out[0]);
    finish("dialogue", pid);
}

static volatile sig_atomic_t told;
static void on_child(int signal) {
    (void)signal;
    told = 1;
}

static void by_signal(void) {
    sigset_t block, before;
    sigemptyset(&block);
    sigaddset(&block, SIGCHLD);
    CHECK(sigprocmask(SIG_BLOCK, &block, &before) == 0);
    struct sigaction action = {.sa_handler = on_child}, old;
    CHECK(sigaction(SIGCHLD, &action, &old) == 0);
    told = 0;
    int status = 0;
    const pid_t pid = start(-1, -1, "rest", "100", NULL);
    pid_t got = 0;
    while (got == 0) {
        while (!told) sigsuspend(&before);
        told = 0;
        got = waitpid(pid, &status, WNOHANG);
    }
    say("told by signal: %d status %x", got == pid, status);
    CHECK(sigaction(SIGCHLD, &old, NULL) == 0 && sigprocmask(SIG_SETMASK, &before, NULL) == 0);
}

// A process that starts one in the background and ends: nobody waits for it, and others go on.
static void in_the_background(const char* rest_ms) {
    const pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        start(-1, -1, "rest", rest_ms, NULL);
        _exit(0);
    }
    finish("parent of one in the background", pid);
    int ends[2];
    char text[16];
    CHECK(pipe(ends) == 0);
    const pid_t writer = fork();
    CHECK(writer >= 0);
    if (writer == 0) {
        CHECK(write(ends[1], "later", 5) == 5);
        _exit(0);
    }
    close(ends[1]);
    const ssize_t got = read(ends[0], text, sizeof text);
    say("read beside it: %.*s", (int)got, text);
    close(ends[0]);
    finish("writer beside it", writer);
}

// It has asked to be sent a signal at the end of who started it, and remembers that over exec.
static void with_its_parent(void) {
    int told[2];
    pid_t pid = 0;
    CHECK(pipe(told) == 0);
    const pid_t parent = fork();
    CHECK(parent >= 0);
    if (parent == 0) {
        pid = fork();
        if (pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            pid = getpid();
            if (write(told[1], &pid, sizeof pid) != sizeof pid) _exit(9);
            close_pair(told);
            execl(tool, tool, "rest", "100000", (char*)NULL);
        }
        usleep(100000);
        _exit(0);
    }
    CHECK(read(told[0], &pid, sizeof pid) == sizeof pid);
    close_pair(told);
    finish("parent of one that ends with it", parent);
    int looks = 0;
    while (kill(pid, 0) == 0 && ++looks < 100) usleep(50000);
    say("ended with it: %d", looks < 100);
}

// One that never ends: nobody stands for it longer than the patience of the domain. Done once, at the start.
static char* at_start;
static void left(void) {
    size_t bytes = 0;
    serve_out = open_memstream(&at_start, &bytes);
    in_the_background("20000");
    const pid_t pid = start(-1, -1, "rest", "100000", NULL);
    say("does not end: %s", outcome(waitpid(pid, NULL, WNOHANG)));
    CHECK(kill(pid, SIGTERM) == 0);
    finish("asked to end", pid);
    with_its_parent();
    fclose(serve_out);
}

static void scenario(void) {
    fputs(at_start, serve_out);
    ends();
    output();
    files();
    in_the_middle();
    dialogue();
    by_signal();
    for (int i = 0; i < 20; i++) in_the_background("1");
}

int main(int argc, char** argv) {
    const ssize_t length = readlink("/proc/self/exe", tool, sizeof tool - 16);
    CHECK(length > 0);
    tool[length] = 0;
    strcpy(strrchr(tool, '/') + 1, "static_tool");
    left();
    return serve(argc, argv, scenario);
}
