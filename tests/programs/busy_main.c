// A server whose main thread has nothing to do, and does it for ever; others serve.
#include <pthread.h>

#include "serve.h"

static int count;
static char** words;

static void scenario(void) {
    say("served");
}

static void* serve_clients(void* unused) {
    serve(count, words, scenario);
    return unused;
}

int main(int argc, char** argv) {
    count = argc;
    words = argv;
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, serve_clients, NULL) == 0);
    for (;;) {}
}
