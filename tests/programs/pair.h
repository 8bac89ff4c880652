// TCP connections inside the program, and descriptors passed over unix sockets.
#pragma once

#include "serve.h"

static inline struct sockaddr_in address_of(const char* host, int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    CHECK(inet_pton(AF_INET, host, &address.sin_addr) == 1);
    return address;
}

// With *port 0: any, and which one is left there.
static inline int listen_at(const char* host, int* port) {
    struct sockaddr_in address = address_of(host, *port);
    socklen_t length = sizeof address;
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(fd >= 0 && bind(fd, (struct sockaddr*)&address, sizeof address) == 0 && listen(fd, 16) == 0);
    CHECK(getsockname(fd, (struct sockaddr*)&address, &length) == 0);
    *port = ntohs(address.sin_port);
    return fd;
}

static inline int connect_to(const char* host, int port) {
    struct sockaddr_in address = address_of(host, port);
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(fd >= 0 && connect(fd, (struct sockaddr*)&address, sizeof address) == 0);
    return fd;
}

static inline void tcp_pair(int* near, int* far) {
    int port = 0;
    const int listener = listen_at("127.0.0.1", &port);
    *near = connect_to("127.0.0.1", port);
    *far = accept(listener, NULL, NULL);
    CHECK(*far >= 0);
    close(listener);
}

// Waits until `fd` has something to read: what was sent is under way natively.
static inline void await_input(int fd) {
    fd_set set;
    FD_ZERO(&set);
    FD_SET(fd, &set);
    CHECK(select(fd + 1, &set, NULL, NULL, NULL) == 1);
}
