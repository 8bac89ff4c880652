// A counter behind a home-made lock of atomics, and one with no lock at all: data races that the `serial`
// schedule orders. Each client's answer shows them.
#include "serve.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

enum { kThreads = 4, kRounds = 50 };

static atomic_flag held = ATOMIC_FLAG_INIT;
static int guarded, sequence[kThreads * kRounds], taken;
static volatile int unguarded;

static void* race(void* argument) {
    for (int round = 0; round < kRounds; round++) {
        while (atomic_flag_test_and_set(&held)) sched_yield();
        sequence[taken++] = (int)(long)argument;
        guarded++;
        atomic_flag_clear(&held);
        int before = unguarded;
        if (round % 7 == 0) sched_yield();
        unguarded = before + 1;
    }
    return NULL;
}

static void scenario(void) {
    pthread_t threads[kThreads];
    char text[kThreads * kRounds + 1] = {0};
    guarded = unguarded = taken = 0;
    for (long n = 0; n < kThreads; n++) CHECK(pthread_create(&threads[n], NULL, race, (void*)n) == 0);
    for (int n = 0; n < kThreads; n++) pthread_join(threads[n], NULL);
    for (int n = 0; n < taken; n++) text[n] = (char)('a' + sequence[n]);
    say("guarded %d", guarded);
    order("unguarded %d order %s", unguarded, text);
}

int main(int argc, char** argv) { return serve(argc, argv, scenario); }
