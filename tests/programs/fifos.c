// Fifos: who opens one waits for the other end, in threads and in other processes, and is told of signals.
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "serve.h"

static char path[64];

static void* write_later(void* text) {
    usleep(2000);
    int fd = open(path, O_WRONLY);
    CHECK(fd >= 0);
    CHECK(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
    return NULL;
}

static void* read_later(void* text) {
    usleep(2000);
    int fd = open(path, O_RDONLY);
    CHECK(fd >= 0);
    for (ssize_t got; (got = read(fd, text, 64)) > 0;) text = (char*)text + got;
    close(fd);
    return NULL;
}

static void told(const char* who, int fd) {
    char text[64] = "";
    int flags = fcntl(fd, F_GETFL);
    ssize_t got = read(fd, text, sizeof text - 1);
    say("%s: %zd %s, waits %d, mode %d", who, got, text, !(flags & O_NONBLOCK), flags & O_ACCMODE);
    say("%s: end %zd", who, read(fd, text, sizeof text));
    close(fd);
}

static void readers_wait(void) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, write_later, "by a thread") == 0);
    told("reader", open(path, O_RDONLY));
    CHECK(pthread_join(thread, NULL) == 0);
    pid_t child = fork();
    if (child == 0) {
        write_later("by a process");
        _exit(0);
    }
    told("reader", open(path, O_RDONLY));
    CHECK(waitpid(child, NULL, 0) == child);
    CHECK(pthread_create(&thread, NULL, write_later, "a line\n") == 0);
    FILE* file = fopen(path, "r");
    char line[64] = "";
    CHECK(file != NULL && fgets(line, sizeof line, file) != NULL);
    say("stream: %s, then %s", line, fgets(line, sizeof line, file) ? line : "nothing");
    fclose(file);
    CHECK(pthread_join(thread, NULL) == 0);
}

static void* open_at_once(void* flags) {
    usleep(2000);
    const int fd = open(path, *(int*)flags | O_NONBLOCK);
    CHECK(fd >= 0);
    usleep(2000);
    close(fd);
    return NULL;
}

// The other end is opened by one who does not wait itself.
static void ends_that_do_not_wait(void) {
    static int flags[] = {O_RDONLY, O_RDWR};
    for (int n = 0; n < 2; ++n) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, open_at_once, &flags[n]) == 0);
        const int fd = open(path, O_WRONLY);
        say("with %d at the other end: %d", n, fd >= 0);
        close(fd);
        CHECK(pthread_join(thread, NULL) == 0);
    }
}

static void writers_wait(void) {
    pthread_t thread;
    char text[64] = "";
    CHECK(pthread_create(&thread, NULL, read_later, text) == 0);
    int fd = open(path, O_WRONLY);
    CHECK(fd >= 0 && write(fd, "some", 4) == 4);
    CHECK(fcntl(fd, F_GETFL) == (O_WRONLY | 0100000) || fcntl(fd, F_GETFL) == O_WRONLY);
    close(fd);
    CHECK(pthread_join(thread, NULL) == 0);
    say("writer: %s", text);
    memset(text, 0, sizeof text);
    CHECK(pthread_create(&thread, NULL, read_later, text) == 0);
    FILE* file = fopen(path, "w");
    CHECK(file != NULL && fputs("stream", file) >= 0 && fclose(file) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    say("writer: %s", text);
}

static void nobody_waits(void) {
    say("writer without a reader: %s", outcome(open(path, O_WRONLY | O_NONBLOCK)));
    int reader = open(path, O_RDONLY | O_NONBLOCK), writer = open(path, O_WRONLY), both = open(path, O_RDWR);
    CHECK(reader >= 0 && writer >= 0 && both >= 0);
    int second = open(path, O_RDONLY);  // somebody writes already
    CHECK(write(writer, "x", 1) == 1);
    char byte;
    say("second reader: %zd", read(second, &byte, 1));
    close(reader);
    close(writer);
    close(both);
    close(second);
    say("no such: %s", outcome(open("/tmp/no-such-fifo", O_RDONLY)));
}

static int signals;
static void on_signal(int number) { signals += number == SIGALRM; }

static void interrupted(int restarts) {
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = restarts ? SA_RESTART : 0};
    sigaction(SIGALRM, &action, NULL);
    pthread_t thread;
    signals = 0;
    ualarm(1000, 0);
    if (restarts) CHECK(pthread_create(&thread, NULL, write_later, "after it") == 0);
    int fd = open(path, O_RDONLY);
    say("interrupted %d: %s, %d", restarts, fd >= 0 ? "open" : strerrorname_np(errno), signals);
    if (fd >= 0) told("after it", fd);
    if (restarts) CHECK(pthread_join(thread, NULL) == 0);
}

static void scenario(void) {
    readers_wait();
    ends_that_do_not_wait();
    writers_wait();
    nobody_waits();
    interrupted(0);
    interrupted(1);
}

int main(int argc, char** argv) {
    snprintf(path, sizeof path, "/tmp/fifo-%s", argc > 1 ? argv[1] : "");
    CHECK(mkfifo(path, 0600) == 0 || errno == EEXIST);
    return serve(argc, argv, scenario);
}
