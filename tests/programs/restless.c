// A server that is never at rest: a thread of it works all the time, on memory, clocks and a file.
#include <fcntl.h>
#include <pthread.h>

#include "serve.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static unsigned long rounds, sum;
static int file;

static void* work(void* unused) {
    (void)unused;
    for (;;) {
        struct timespec t;
        CHECK(clock_gettime(CLOCK_MONOTONIC, &t) == 0);
        CHECK(pthread_mutex_lock(&mutex) == 0);
        sum = sum * 31 + (unsigned long)t.tv_nsec + ++rounds;
        if (rounds % 64 == 0) CHECK(pwrite(file, &sum, sizeof sum, rounds % 4096) == (ssize_t)sizeof sum);
        CHECK(pthread_mutex_unlock(&mutex) == 0);
        sched_yield();
    }
    return NULL;
}

static void scenario(void) {
    unsigned long written = 0;
    CHECK(pthread_mutex_lock(&mutex) == 0);
    CHECK(pread(file, &written, sizeof written, 64) >= 0);
    order("after %lu rounds %lx, in the file %lx", rounds, sum, written);
    CHECK(pthread_mutex_unlock(&mutex) == 0);
}

int main(int argc, char** argv) {
    file = open("/tmp/restless", O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(file >= 0);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, work, NULL) == 0);
    return serve(argc, argv, scenario);
}
