// Loops that wait for another thread by looking at memory, and read a clock meanwhile, as those with a time limit do.
#include <pthread.h>
#include <stdatomic.h>
#include <sys/time.h>

#include "serve.h"

static atomic_int stage;

static void* other(void* unused) {
    for (int n = 1; n <= 9; n += 2) {
        while (atomic_load(&stage) != n) {
            struct timespec now;
            clock_gettime(CLOCK_MONOTONIC, &now);
        }
        atomic_store(&stage, n + 1);
    }
    return unused;
}

static void await(int wanted, void (*look)(void)) {
    while (atomic_load(&stage) != wanted) look();
}

static void by_clock_gettime(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
}
static void by_gettimeofday(void) {
    struct timeval now;
    gettimeofday(&now, NULL);
}
static void by_time(void) {
    time(NULL);
}
static void by_timespec_get(void) {
    struct timespec now;
    timespec_get(&now, TIME_UTC);
}
static void by_clock(void) {
    clock();
}

static void scenario(void) {
    void (*const looks[])(void) = {by_clock_gettime, by_gettimeofday, by_time, by_timespec_get, by_clock};
    pthread_t thread;
    atomic_store(&stage, 0);
    CHECK(pthread_create(&thread, NULL, other, NULL) == 0);
    for (int n = 0; n < 5; n++) {
        atomic_store(&stage, 2 * n + 1);
        await(2 * n + 2, looks[n]);
        say("loop %d ended", n);
    }
    CHECK(pthread_join(thread, NULL) == 0);
}

int main(int argc, char** argv) { return serve(argc, argv, scenario); }
