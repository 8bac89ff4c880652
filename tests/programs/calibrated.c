// Finds out how much it can compute in a moment, as servers do that choose how often a password is hashed: it
// computes twice as much each time, until that has taken long enough. Says how the moment was measured, and not
// how much it was.
#include <pthread.h>
#include <stdint.h>
#include <sys/time.h>

#include "serve.h"

#define MOMENT_NS 20000000ULL

static uint64_t monotonic_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ULL + (uint64_t)now.tv_nsec;
}

static uint64_t day_ns(void) {
    struct timeval now;
    gettimeofday(&now, NULL);
    return (uint64_t)now.tv_sec * 1000000000ULL + (uint64_t)now.tv_usec * 1000;
}

static volatile uint64_t sink;
static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void compute(uint64_t rounds) {
    // As libraries do that look a method up by its name each time.
    CHECK(pthread_rwlock_rdlock(&lock) == 0 && pthread_rwlock_unlock(&lock) == 0);
    CHECK(pthread_mutex_lock(&mutex) == 0 && pthread_mutex_unlock(&mutex) == 0);
    uint64_t x = 88172645463325252ULL;
    for (uint64_t i = 0; i < rounds * 1000; ++i) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
    }
    sink = x;
}

static void calibrate(const char* name, uint64_t (*now)(void), int readings_before) {
    for (int i = 0; i < readings_before; ++i) now();
    uint64_t rounds = 1, took;
    do {
        const uint64_t begin = now();
        compute(rounds);
        took = now() - begin;
        rounds *= 2;
    } while (took < MOMENT_NS);
    say("%s, after %d readings: measured", name, readings_before);
}

static void scenario(void) {
    for (int before = 0; before < 2; ++before) {
        calibrate("monotonic", monotonic_ns, before);
        calibrate("wall", day_ns, before);
    }
    // All in one: the moment is counted from the first reading on.
    const uint64_t begin = monotonic_ns();
    uint64_t rounds = 1;
    while (monotonic_ns() - begin < MOMENT_NS) compute(rounds *= 2);
    say("from one reading on: measured");
}

int main(int argc, char** argv) { return serve(argc, argv, scenario); }
