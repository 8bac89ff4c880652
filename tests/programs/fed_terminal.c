// A thread writes more to a terminal than it takes at once; another one reads it.
#include <pthread.h>
#include <pty.h>

#include "serve.h"

static void* feed(void* terminal) {
    static char bytes[8192];
    memset(bytes, 'x', sizeof bytes);
    for (int n = 0; n < 8; n++) CHECK(write(*(int*)terminal, bytes, sizeof bytes) == sizeof bytes);
    close(*(int*)terminal);
    return NULL;
}

// More than it takes at once, read by another thread.
static void fed_by_a_thread(int also_small) {
    int own, terminal;
    long got = 0, more;
    char bytes[300];
    pthread_t thread;
    CHECK(openpty(&own, &terminal, NULL, NULL, NULL) == 0);
    if (also_small)
        for (int n = 0; n < 3; n++) CHECK(write(terminal, "some", 4) == 4);
    CHECK(pthread_create(&thread, NULL, feed, &terminal) == 0);
    while ((more = read(own, bytes, sizeof bytes)) > 0) got += more;
    CHECK(pthread_join(thread, NULL) == 0);
    say("fed with %ld, then %s", got, outcome(more));
    close(own);
}

static void scenario(void) {
    fed_by_a_thread(0);
    fed_by_a_thread(1);
}

int main(int argc, char** argv) {
    return serve(argc, argv, scenario);
}
