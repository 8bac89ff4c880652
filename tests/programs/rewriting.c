// Counts for ever in a file, with no call that waits for anybody. The server that comes after it says how far.
#include "serve.h"

#include <fcntl.h>
#include <stdint.h>
#include <unistd.h>

static const char file[] = "/var/tmp/crane-rewriting";

static void scenario(void) {
    uint64_t count = 0;
    const int fd = open(file, O_RDWR | O_CREAT, 0600);
    CHECK(fd >= 0);
    if (pread(fd, &count, sizeof count, 0) == sizeof count) {
        say("counted %s", count > 1000 ? "far" : "not far");
        say("to %llu", (unsigned long long)count);
        close(fd);
        return;
    }
    for (;;) {
        ++count;
        CHECK(pwrite(fd, &count, sizeof count, 0) == sizeof count);
    }
}

int main(int argc, char** argv) { return serve(argc, argv, scenario); }
