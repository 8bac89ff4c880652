// Holds a POSIX message queue, which no image of a process can have; counts what it was asked.
#include "serve.h"

#include <fcntl.h>
#include <mqueue.h>

static int asked;

static void scenario(void) {
    say("asked %d times", ++asked);
}

int main(int argc, char** argv) {
    CHECK(mq_open("/crane-queues", O_CREAT | O_RDWR, 0600, NULL) >= 0);
    return serve(argc, argv, scenario);
}
