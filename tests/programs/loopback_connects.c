// connect() that does not wait, to a listener of the same server and to a port where nobody listens: what it,
// the polls after it, SO_ERROR and further calls say. The same of connections whose other end is gone.
#include <poll.h>

#include "pair.h"

static int events(int fd) {
    struct pollfd one = {.fd = fd, .events = POLLIN | POLLOUT | POLLRDHUP};
    CHECK(poll(&one, 1, 500) >= 0);
    return one.revents;
}

static int error_of(int fd) {
    int error = -1;
    socklen_t size = sizeof error;
    CHECK(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0);
    return error;
}

static const char* again(int fd, const struct sockaddr_in* to) {
    return outcome(connect(fd, (const struct sockaddr*)to, sizeof *to));
}

static void one_port(const char* name, const struct sockaddr_in* to, int is_there) {
    struct sockaddr_in peer;
    socklen_t size = sizeof peer;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    say("%s", name);
    say("  before: %x", events(fd));
    say("  connect: %s", again(fd, to));
    say("  polled: %x", events(fd));
    say("  peer: %s", outcome(getpeername(fd, (struct sockaddr*)&peer, &size)));
    say("  send: %s", outcome(send(fd, "x", 1, MSG_NOSIGNAL)));
    if (is_there) say("  receive: %s", outcome(recv(fd, &peer, 1, 0)));
    say("  error: %d", error_of(fd));
    for (int n = 0; n < 2; n++) say("  connect: %s", again(fd, to));
    say("  polled: %x, error %d, then %d", events(fd), error_of(fd), error_of(fd));
    close(fd);
    fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    for (int n = 0; n < 4; n++) say("  at once: %s", again(fd, to));
    close(fd);
    fd = socket(AF_INET, SOCK_STREAM, 0);
    say("  waiting: %s, error %d", again(fd, to), error_of(fd));
    close(fd);
}

static const char* sent(int fd) {
    return outcome(send(fd, "x", 1, MSG_NOSIGNAL));
}

static const char* got(int fd) {
    char bytes[8];
    return outcome(recv(fd, bytes, sizeof bytes, MSG_DONTWAIT));
}

// What is sent to an end that is gone is lost, and the next call is told.
static void gone(int unread, int left, int how) {
    int ends[2];
    tcp_pair(&ends[0], &ends[1]);
    say("unread %d, left %d, %s", unread, left, how < 0 ? "closed" : "shut");
    if (unread) CHECK(send(ends[0], "unread", 6, 0) == 6);
    if (left) CHECK(send(ends[1], "left", 4, 0) == 4);
    if (how < 0)
        close(ends[1]);
    else
        CHECK(shutdown(ends[1], how) == 0);
    say("  polled %x", events(ends[0]));
    say("  sent %s", sent(ends[0]));
    say("  polled %x", events(ends[0]));
    for (int n = 0; n < 2; n++) say("  got %s", got(ends[0]));
    say("  error %d", error_of(ends[0]));
    for (int n = 0; n < 2; n++) say("  sent %s", sent(ends[0]));
    if (how >= 0)
        for (int n = 0; n < 2; n++) say("  there: got %s", got(ends[1]));
    say("  polled %x", events(ends[0]));
    say("  shut %s", outcome(shutdown(ends[0], SHUT_WR)));
    close(ends[0]);
    if (how >= 0) close(ends[1]);
}

static void scenario(void) {
    for (int n = 0; n < 4; n++) gone(n & 1, n >> 1, -1);
    gone(0, 0, SHUT_RDWR);
    gone(0, 1, SHUT_RDWR);
    int port = 0, listener = listen_at("127.0.0.1", &port);
    struct sockaddr_in there = address_of("127.0.0.1", port), nobody = address_of("127.0.0.1", 1);
    one_port("one that listens", &there, 1);
    one_port("one that nobody has", &nobody, 0);
    close(listener);
}

int main(int argc, char** argv) {
    return serve(argc, argv, scenario);
}
