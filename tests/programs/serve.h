// Frame of the small servers: a client sends one line, scenario() says what it saw, the connection ends.
//
// A line is printed with say() if every correct system gives the same one, and with order() (it starts with
// "~") if a system without Crane may give another one each time: replicas must still agree on it.
#pragma once

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static FILE* serve_out;

#define CHECK(condition)                                                               \
    do {                                                                               \
        if (!(condition)) {                                                            \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #condition, strerror(errno)); \
            abort();                                                                   \
        }                                                                              \
    } while (0)

__attribute__((format(printf, 1, 2))) static inline void say(const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vfprintf(serve_out, format, arguments);
    va_end(arguments);
    fputc('\n', serve_out);
}

__attribute__((format(printf, 1, 2))) static inline void order(const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputc('~', serve_out);
    vfprintf(serve_out, format, arguments);
    va_end(arguments);
    fputc('\n', serve_out);
}

// A call's result as a word: its value, or the name of its errno.
static inline const char* outcome(long result) {
    static __thread char text[64];
    if (result == -1)
        snprintf(text, sizeof text, "-1 %s", strerrorname_np(errno));
    else
        snprintf(text, sizeof text, "%ld", result);
    return text;
}

// pthread calls return the error itself.
static inline const char* code(int error) { return error == 0 ? "0" : strerrorname_np(error); }

static inline struct timespec now_plus_ms(clockid_t clock, long ms) {
    struct timespec t;
    clock_gettime(clock, &t);
    t.tv_nsec += ms * 1000000L;
    t.tv_sec += t.tv_nsec / 1000000000L;
    t.tv_nsec %= 1000000000L;
    return t;
}

static inline long ms_since(struct timespec begin, clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (t.tv_sec - begin.tv_sec) * 1000L + (t.tv_nsec - begin.tv_nsec) / 1000000L;
}

static inline int listen_on(int port) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), yes = 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {INADDR_ANY}};
    CHECK(fd >= 0);
    CHECK(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0);
    CHECK(bind(fd, (struct sockaddr*)&address, sizeof address) == 0);
    CHECK(listen(fd, 64) == 0);
    return fd;
}

static inline void write_all(int fd, const char* data, size_t bytes) {
    while (bytes > 0) {
        ssize_t sent = write(fd, data, bytes);
        if (sent < 0 && errno == EINTR) continue;
        if (sent <= 0) return;  // the client has gone
        data += sent;
        bytes -= sent;
    }
}

// Up to and without the newline; -1 if the client went first.
static inline int read_line(int fd, char* line, int size) {
    for (int at = 0; at < size - 1;) {
        ssize_t got = read(fd, line + at, 1);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return -1;
        if (line[at] == '\n') {
            line[at] = 0;
            return at;
        }
        at++;
    }
    return -1;
}

static inline void answer(int client, void (*scenario)(void)) {
    char line[256];
    if (read_line(client, line, sizeof line) >= 0) {
        char* text = NULL;
        size_t bytes = 0;
        serve_out = open_memstream(&text, &bytes);
        scenario();
        fclose(serve_out);
        write_all(client, text, bytes);
        free(text);
    }
    close(client);
}

static inline int serve(int argc, char** argv, void (*scenario)(void)) {
    CHECK(argc == 2);
    signal(SIGPIPE, SIG_IGN);
    int listener = listen_on(atoi(argv[1]));
    for (;;) {
        int client = accept(listener, NULL, NULL);
        if (client < 0 && errno == EINTR) continue;
        CHECK(client >= 0);
        answer(client, scenario);
    }
}
