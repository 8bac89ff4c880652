// Linked statically: as a child it cannot be scheduled. Does one thing, named by its first argument.
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <time.h>
#include <unistd.h>

static void put(const char* text) {
    if (write(1, text, strlen(text)) < 0) _exit(9);
}

static void rest_ms(long ms) {
    const struct timespec pause = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&pause, NULL);
}

// N lines with pauses of MS between them.
static void lines(int count, long pause_ms) {
    for (int i = 0; i < count; i++) {
        char line[32];
        snprintf(line, sizeof line, "line %d\n", i);
        put(line);
        rest_ms(pause_ms);
    }
}

// What comes in goes out, each byte turned around.
static void copy(void) {
    char bytes[1000];
    for (ssize_t got; (got = read(0, bytes, sizeof bytes)) > 0;) {
        for (ssize_t i = 0; i < got; i++) bytes[i] = (char)(bytes[i] ^ 1);
        for (ssize_t sent = 0, n; sent < got; sent += n) {
            if ((n = write(1, bytes + sent, (size_t)(got - sent))) <= 0) _exit(9);
        }
    }
}

static void compute(void) {
    volatile unsigned x = 1;
    for (unsigned i = 0; i < 30000000; i++) x = x * 1664525u + 1013904223u;
    put("computed\n");
}

// How many processors it may use.
static void processors(void) {
    cpu_set_t set;
    char text[32];
    snprintf(text, sizeof text, "%d\n", sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0);
    put(text);
}

// What is blocked, pending for the process, and whether these are ignored.
static void signals(void) {
    sigset_t blocked, pending;
    struct sigaction pipe, child;
    char text[128];
    sigprocmask(SIG_BLOCK, NULL, &blocked);
    sigpending(&pending);
    sigaction(SIGPIPE, NULL, &pipe);
    sigaction(SIGCHLD, NULL, &child);
    snprintf(text, sizeof text, "blocked %d %d, pending %d, SIGPIPE ignored %d, SIGCHLD %d\n",
             sigismember(&blocked, SIGUSR1), sigismember(&blocked, SIGUSR2), sigismember(&pending, SIGUSR1),
             pipe.sa_handler == SIG_IGN, child.sa_handler == SIG_IGN);
    put(text);
}

static void* nothing(void* unused) {
    return unused;
}

// None to three at random.
static void threads(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    for (long i = now.tv_nsec >> 10 & 3; i > 0; i--) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, nothing, NULL) != 0) _exit(9);
        pthread_join(thread, NULL);
    }
}

// Has the file locked in both ways for so long, and then gives a semaphore and a message besides.
static void hold(long ms, const char* path, int semaphore, int queue) {
    const int file = open(path, O_RDWR);
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    struct sembuf up = {0, 1, 0};
    const struct {
        long kind;
        char text[8];
    } message = {1, "message"};
    if (flock(file, LOCK_EX) != 0 || fcntl(file, F_SETLK, &whole) != 0) _exit(9);
    put("x");
    rest_ms(ms);
    if (semop(semaphore, &up, 1) != 0 || msgsnd(queue, &message, sizeof message.text, 0) != 0) _exit(9);
}

int main(int argc, char** argv) {
    const char* mode = argc > 1 ? argv[1] : "";
    const long number = argc > 2 ? atol(argv[2]) : 0;
    if (strcmp(mode, "exit") == 0) return (int)number;
    if (strcmp(mode, "die") == 0) raise(SIGTERM);
    if (strcmp(mode, "rest") == 0) rest_ms(number);
    if (strcmp(mode, "lines") == 0) lines((int)number, argc > 3 ? atol(argv[3]) : 0);
    if (strcmp(mode, "copy") == 0) copy();
    if (strcmp(mode, "compute") == 0) compute();
    if (strcmp(mode, "processors") == 0) processors();
    if (strcmp(mode, "hold") == 0 && argc > 5) hold(number, argv[3], atoi(argv[4]), atoi(argv[5]));
    if (strcmp(mode, "signals") == 0) signals();
    if (strcmp(mode, "threads") == 0) threads();
    if (strcmp(mode, "threads and rest") == 0) threads(), rest_ms(number);
    return 0;
}
