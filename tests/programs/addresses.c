// Which listener a connection inside the program comes to, and what both ends say of their addresses.
#include <fcntl.h>

#include "pair.h"

static int accepted(int listener) {
    int count = 0;
    fcntl(listener, F_SETFL, O_NONBLOCK);
    for (int fd; (fd = accept(listener, NULL, NULL)) >= 0; count++) close(fd);
    fcntl(listener, F_SETFL, 0);
    return count;
}

static const char* host_of(int fd, int (*call)(int, struct sockaddr*, socklen_t*)) {
    static char text[2][INET6_ADDRSTRLEN];
    static int turn;
    struct sockaddr_storage address;
    socklen_t length = sizeof address;
    CHECK(call(fd, (struct sockaddr*)&address, &length) == 0);
    const void* bytes = address.ss_family == AF_INET ? (void*)&((struct sockaddr_in*)&address)->sin_addr
                                                     : (void*)&((struct sockaddr_in6*)&address)->sin6_addr;
    turn = !turn;
    return inet_ntop(address.ss_family, bytes, text[turn], sizeof text[turn]);
}

static void two_listeners(void) {
    int port = 0, first = listen_at("127.0.0.1", &port), second = listen_at("127.0.0.2", &port), fds[3];
    for (int n = 0; n < 3; n++) fds[n] = connect_to("127.0.0.2", port);
    const int to_first = connect_to("127.0.0.1", port);
    await_input(first);
    say("at 127.0.0.1: %d", accepted(first));
    say("at 127.0.0.2: %d", accepted(second));
    say("from %s", host_of(fds[0], getsockname));
    say("to %s", host_of(fds[0], getpeername));
    struct sockaddr_in nobody = address_of("127.0.0.3", port);
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    say("at 127.0.0.3: %s", outcome(connect(fd, (struct sockaddr*)&nobody, sizeof nobody)));
    for (int n = 0; n < 3; n++) close(fds[n]);
    close(fd);
    close(to_first);
    close(first);
    close(second);
}

static struct sockaddr_in6 six_of(const char* host, int port) {
    struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
    CHECK(inet_pton(AF_INET6, host, &address.sin6_addr) == 1);
    return address;
}

static void in_sixs_clothes(void) {
    int port = 0, listener = listen_at("127.0.0.1", &port), far;
    struct sockaddr_in6 mapped = six_of("::ffff:127.0.0.1", port), own = six_of("::1", port);
    int fd = socket(AF_INET6, SOCK_STREAM, 0);
    say("mapped: %s", outcome(connect(fd, (struct sockaddr*)&mapped, sizeof mapped)));
    far = accept(listener, NULL, NULL);
    say("it comes from %s", host_of(far, getpeername));
    say("and went to %s", host_of(fd, getpeername));
    close(far);
    close(fd);
    fd = socket(AF_INET6, SOCK_STREAM, 0);
    say("::1: %s", outcome(connect(fd, (struct sockaddr*)&own, sizeof own)));
    close(fd);
    fd = socket(AF_INET, SOCK_STREAM, 0);
    say("of the wrong family: %s", outcome(connect(fd, (struct sockaddr*)&own, sizeof own)));
    close(fd);
    close(listener);
}

static void both_families(void) {
    struct sockaddr_in6 any = six_of("::", 0);
    socklen_t length = sizeof any;
    int listener = socket(AF_INET6, SOCK_STREAM, 0), off = 0;
    setsockopt(listener, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    CHECK(bind(listener, (struct sockaddr*)&any, sizeof any) == 0 && listen(listener, 8) == 0);
    CHECK(getsockname(listener, (struct sockaddr*)&any, &length) == 0);
    const int near = connect_to("127.0.0.1", ntohs(any.sin6_port)), far = accept(listener, NULL, NULL);
    say("an IPv4 client shows as %s", host_of(far, getpeername));
    close(near);
    close(far);
    close(listener);
}

static void scenario(void) {
    two_listeners();
    in_sixs_clothes();
    both_families();
}

int main(int argc, char** argv) {
    return serve(argc, argv, scenario);
}
