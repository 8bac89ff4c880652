// Streams of a random device that are opened and closed beside another thread's calls, which is for a
// schedule where threads run in parallel: closing one is one operation.
#include <pthread.h>

#include "serve.h"

static void* copy_and_close(void* unused) {
    (void)unused;
    for (int i = 0; i < 5000; i++) close(dup(0));
    return NULL;
}

static void scenario(void) {
    pthread_t thread;
    int closed = 0;
    CHECK(pthread_create(&thread, NULL, copy_and_close, NULL) == 0);
    for (int i = 0; i < 3000; i++) {
        FILE* const stream = fopen("/dev/urandom", "r");
        closed += stream && getc(stream) != EOF && fclose(stream) == 0;
    }
    CHECK(pthread_join(thread, NULL) == 0);
    say("closed: %d", closed);
}

int main(int argc, char** argv) {
    return serve(argc, argv, scenario);
}
