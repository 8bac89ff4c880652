// connect() that does not wait, to a listener of the same server and to a port where nobody listens: what it,
// the polls after it, SO_ERROR and further calls say.
#include <poll.h>

#include "serve.h"

static struct sockaddr_in listens(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(bind(listener, (struct sockaddr*)&address, size) == 0 && listen(listener, 8) == 0);
    CHECK(getsockname(listener, (struct sockaddr*)&address, &size) == 0);
    return address;
}

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

static void scenario(void) {
    struct sockaddr_in there = listens(), nobody = there;
    one_port("one that listens", &there, 1);
    nobody.sin_port = htons(1);
    one_port("one that nobody has", &nobody, 0);
}

int main(int argc, char** argv) {
    return serve(argc, argv, scenario);
}
