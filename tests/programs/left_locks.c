// A program that cannot be scheduled and runs for longer than anybody stands for it: what it gives back then
// (a lock on a file, a semaphore, a message in a queue) comes to those who wait for it. Done once, at the
// start.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/wait.h>

#include "serve.h"

enum { kHoldMs = 8000, kMostMs = 14000, kWaiters = 4 };

static char tool[512], path[] = "/tmp/crane-left-XXXXXX";
static int semaphore, queue;

static long by_flock(void) {
    const int file = open(path, O_RDWR | O_CLOEXEC);
    CHECK(file >= 0);
    return flock(file, LOCK_EX);
}

static long by_fcntl(void) {
    const int file = open(path, O_RDWR | O_CLOEXEC);
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    CHECK(file >= 0);
    return fcntl(file, F_SETLKW, &whole);
}

static long by_semaphore(void) {
    struct sembuf down = {0, -1, 0};
    return semop(semaphore, &down, 1);
}

static long by_queue(void) {
    struct {
        long kind;
        char text[8];
    } message;
    return msgrcv(queue, &message, sizeof message.text, 0, 0);
}

static void ignore_alarm(int signal) {
    (void)signal;
}

/// In a process of its own; gives up (EINTR) long after it should have had it.
static void wait_beside(const char* name, long (*wait)(void), int out, struct timespec begin) {
    const pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        char line[128];
        const struct sigaction action = {.sa_handler = ignore_alarm};
        CHECK(sigaction(SIGALRM, &action, NULL) == 0);
        alarm(kMostMs / 1000 + 3);
        const char* told = outcome(wait());
        const long ms = ms_since(begin, CLOCK_MONOTONIC);
        snprintf(line, sizeof line, "%s: %s, %s", name, told,
                 ms < kHoldMs - 1000 ? "early"
                 : ms > kMostMs      ? "late"
                                     : "in time");
        write_all(out, line, strlen(line));
        _exit(0);
    }
}

static char* at_start;

static void left(void) {
    static long (*const kHow[kWaiters])(void) = {by_flock, by_fcntl, by_semaphore, by_queue};
    static const char* const kName[kWaiters] = {"flock", "fcntl", "semop", "msgrcv"};
    char numbers[2][16];
    int ends[kWaiters][2], told[2], status;
    size_t bytes = 0;
    const struct timespec begin = now_plus_ms(CLOCK_MONOTONIC, 0);
    serve_out = open_memstream(&at_start, &bytes);
    CHECK(close(mkstemp(path)) == 0);
    CHECK((semaphore = semget(IPC_PRIVATE, 1, 0600)) >= 0 && (queue = msgget(IPC_PRIVATE, 0600)) >= 0);
    snprintf(numbers[0], sizeof numbers[0], "%d", semaphore);
    snprintf(numbers[1], sizeof numbers[1], "%d", queue);
    CHECK(pipe2(told, O_CLOEXEC) == 0);
    const pid_t holder = fork();
    if (holder == 0) {
        dup2(told[1], 1);
        execl(tool, tool, "hold", "8000", path, numbers[0], numbers[1], (char*)NULL);
        _exit(99);
    }
    // Looking for it, the domain stands as long as it ever does.
    CHECK(read(told[0], numbers[0], 1) == 1);
    close(told[0]), close(told[1]);
    for (int i = 0; i < kWaiters; i++) {
        CHECK(pipe2(ends[i], O_CLOEXEC) == 0);
        wait_beside(kName[i], kHow[i], ends[i][1], begin);
        close(ends[i][1]);
    }
    for (int i = 0; i < kWaiters; i++) {
        char line[128];
        const ssize_t got = read(ends[i][0], line, sizeof line);
        say("%.*s", (int)got, line);
        close(ends[i][0]);
    }
    for (int i = 0; i < kWaiters + 1; i++) CHECK(wait(&status) > 0);
    CHECK(unlink(path) == 0 && semctl(semaphore, 0, IPC_RMID) == 0 && msgctl(queue, IPC_RMID, NULL) == 0);
    fclose(serve_out);
}

static void scenario(void) {
    fputs(at_start, serve_out);
}

int main(int argc, char** argv) {
    const ssize_t length = readlink("/proc/self/exe", tool, sizeof tool - 16);
    CHECK(length > 0);
    strcpy(strrchr(tool, '/') + 1, "static_tool");
    left();
    return serve(argc, argv, scenario);
}
