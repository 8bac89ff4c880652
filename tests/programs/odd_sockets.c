// Sockets at their limits: a client for whom there is no descriptor, datagrams to a port that nobody has,
// ports that are taken.
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "serve.h"

static struct sockaddr_in near(int port) {
    return (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
}

static int bound(int type, int port) {
    const int fd = socket(AF_INET, type, 0);
    const struct sockaddr_in at = near(port);
    CHECK(fd >= 0 && bind(fd, (const struct sockaddr*)&at, sizeof at) == 0);
    return fd;
}

static int port_of(int fd) {
    struct sockaddr_in at;
    socklen_t length = sizeof at;
    CHECK(getsockname(fd, (struct sockaddr*)&at, &length) == 0);
    return ntohs(at.sin_port);
}

/// It goes on waiting.
static void client_without_descriptor(void) {
    const int listener = bound(SOCK_STREAM | SOCK_NONBLOCK, 0), client = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(listen(listener, 5) == 0);
    const struct sockaddr_in to = near(port_of(listener));
    CHECK(connect(client, (const struct sockaddr*)&to, sizeof to) == 0 && write(client, "hello", 5) == 5);
    struct rlimit before, low;
    CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
    low = before;
    const int first_free = dup(client);
    close(first_free);
    low.rlim_cur = first_free;
    CHECK(setrlimit(RLIMIT_NOFILE, &low) == 0);
    for (int i = 0; i < 2; i++) say("no descriptor: %s", outcome(accept(listener, NULL, NULL)));
    CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
    const int served = accept(listener, NULL, NULL);
    char text[9] = "";
    say("then: %d, %s %s", served == first_free, outcome(read(served, text, 5)), text);
    close(served);
    close(client);
    close(listener);
}

static void port_of_nobody(void) {
    const int gone = bound(SOCK_DGRAM, 0), fd = socket(AF_INET, SOCK_DGRAM, 0), queue = epoll_create1(0);
    const struct sockaddr_in to = near(port_of(gone));
    struct epoll_event event = {.events = EPOLLIN};
    char byte;
    close(gone);
    CHECK(connect(fd, (const struct sockaddr*)&to, sizeof to) == 0);
    CHECK(epoll_ctl(queue, EPOLL_CTL_ADD, fd, &event) == 0);
    say("sent: %s", outcome(send(fd, "x", 1, 0)));
    const int ready = epoll_wait(queue, &event, 1, 5000);
    say("ready: %d, error %d, input %d", ready, !!(event.events & EPOLLERR), !!(event.events & EPOLLIN));
    say("received: %s", outcome(recv(fd, &byte, 1, MSG_DONTWAIT)));
    say("ready: %d", epoll_wait(queue, &event, 1, 0));
    close(fd);
    close(queue);
}

/// More often than there are ports to give.
static void ports_go_round(void) {
    const int listener = bound(SOCK_STREAM, 0);
    int failed = 0;
    CHECK(listen(listener, 5) == 0);
    for (int i = 0; i < 17000; i++) {
        const int fd = socket(AF_INET, SOCK_STREAM, 0);
        const struct sockaddr_in any = near(0);
        failed += bind(fd, (const struct sockaddr*)&any, sizeof any) != 0;
        close(fd);
    }
    say("failed: %d", failed);
    close(listener);
}

static int error_of(int fd) {
    int error = -1;
    socklen_t length = sizeof error;
    CHECK(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0);
    return error;
}

static volatile sig_atomic_t broken_pipes;
static void count_broken_pipe(int signal) {
    (void)signal;
    broken_pipes++;
}

/// The other end closes with something unread, having said that it would send no more, or not.
static void reset_by_other_end(int says_end, const char* asks) {
    const int listener = bound(SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(listen(listener, 5) == 0);
    const struct sockaddr_in to = near(port_of(listener));
    CHECK(connect(client, (const struct sockaddr*)&to, sizeof to) == 0);
    const int served = accept(listener, NULL, NULL);
    CHECK(write(client, "last words", 10) == 10 && write(served, "unread", 6) == 6);
    if (says_end) CHECK(shutdown(client, SHUT_WR) == 0);
    close(client);
    char text[11] = "";
    broken_pipes = 0;
    say("%s, end said %d", asks, says_end);
    for (const char* next = asks; *next; next++) {
        if (*next == 'e') say("  error %s", strerror(error_of(served)));
        if (*next == 'r') say("  read %s %s", outcome(read(served, text, 10)), text);
        if (*next == 'w') say("  write %s", outcome(write(served, "x", 1)));
        text[0] = 0;
    }
    say("  signals %d", (int)broken_pipes);
    close(served);
    close(listener);
}

static void resets(void) {
    signal(SIGPIPE, count_broken_pipe);
    for (int says_end = 0; says_end < 2; says_end++) {
        const char* const orders[] = {"ww", "rrrw", "wrr", "ee", "rerw", "rwr"};
        for (unsigned i = 0; i < sizeof orders / sizeof *orders; i++) reset_by_other_end(says_end, orders[i]);
    }
    signal(SIGPIPE, SIG_DFL);
}

static void scenario(void) {
    resets();
    client_without_descriptor();
    port_of_nobody();
    ports_go_round();
}

int main(int argc, char** argv) {
    return serve(argc, argv, scenario);
}
