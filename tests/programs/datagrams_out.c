// A server that sends where nobody has asked it.
#include <netdb.h>

#include "serve.h"

/// A name server would be asked twice, for five seconds each.
static void look_up(void) {
    struct timespec begin, end;
    struct addrinfo* found = NULL;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    const int rc = getaddrinfo("nowhere.crane.test", "9", NULL, &found);
    clock_gettime(CLOCK_MONOTONIC, &end);
    if (rc == 0) freeaddrinfo(found);
    say("a name is %s%s", rc == 0 ? "found" : "not found", end.tv_sec - begin.tv_sec > 3 ? ", after some time" : "");
}

static void scenario(void) {
    const int fd = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(9)};
    CHECK(inet_pton(AF_INET, "192.0.2.1", &to.sin_addr) == 1);
    say("to the outside %s", outcome(sendto(fd, "x", 1, 0, (struct sockaddr*)&to, sizeof to)));
    to.sin_port = htons(53);
    say("to a name server %s", outcome(sendto(fd, "x", 1, 0, (struct sockaddr*)&to, sizeof to)));
    CHECK(connect(fd, (struct sockaddr*)&to, sizeof to) == 0);
    say("connected %s", outcome(send(fd, "x", 1, 0)));
    to.sin_port = htons(9);
    CHECK(inet_pton(AF_INET, "224.0.0.251", &to.sin_addr) == 1);
    say("to a group %s", outcome(sendto(fd, "x", 1, 0, (struct sockaddr*)&to, sizeof to)));
    close(fd);
    look_up();
}

int main(int argc, char** argv) { return serve(argc, argv, scenario); }
