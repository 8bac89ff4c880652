// A server that sends where nobody has asked it.
#include "serve.h"

static void scenario(void) {
    const int fd = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(9)};
    CHECK(inet_pton(AF_INET, "192.0.2.1", &to.sin_addr) == 1);
    say("to the outside %s", outcome(sendto(fd, "x", 1, 0, (struct sockaddr*)&to, sizeof to)));
    CHECK(inet_pton(AF_INET, "224.0.0.251", &to.sin_addr) == 1);
    say("to a group %s", outcome(sendto(fd, "x", 1, 0, (struct sockaddr*)&to, sizeof to)));
    close(fd);
}

int main(int argc, char** argv) { return serve(argc, argv, scenario); }
