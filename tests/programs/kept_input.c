// What a client sent before it reset its connection: a line that begins with "r" comes from one that will,
// and is read when the reset is there. Any other line is answered with what was read then. Each client is
// greeted first, so that it can wait for having been accepted.
#include <poll.h>

#include "serve.h"

static char read_then[256];

static void read_behind_reset(int client) {
    struct pollfd reset = {client, 0, 0};
    char text[64];
    CHECK(poll(&reset, 1, -1) == 1 && reset.revents & POLLHUP);
    int at = 0;
    for (int i = 0; i < 3; i++) {
        memset(text, 0, sizeof text);
        const char* const got = outcome(read(client, text, sizeof text - 1));
        text[strcspn(text, "\n")] = 0;
        at += snprintf(read_then + at, sizeof read_then - (size_t)at, "read %s %s\n", got, text);
    }
}

int main(int argc, char** argv) {
    CHECK(argc == 2);
    signal(SIGPIPE, SIG_IGN);
    const int listener = listen_on(atoi(argv[1]));
    for (;;) {
        const int client = accept(listener, NULL, NULL);
        char first = 0;
        CHECK(client >= 0 && write(client, "hello\n", 6) == 6);
        if (recv(client, &first, 1, MSG_PEEK) != 1) {
            snprintf(read_then, sizeof read_then, "nothing to read\n");
        } else if (first == 'r') {
            read_behind_reset(client);
        } else {
            char line[64];
            read_line(client, line, sizeof line);
            write_all(client, read_then, strlen(read_then));
        }
        close(client);
    }
}
