// Sockets at their limits: a client for whom there is no descriptor, datagrams to a port that nobody has,
// ports that are taken.
#include <fcntl.h>
#include <netinet/in.h>
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

static void scenario(void) {
    client_without_descriptor();
    port_of_nobody();
    ports_go_round();
}

int main(int argc, char** argv) {
    return serve(argc, argv, scenario);
}
