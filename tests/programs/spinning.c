// Waits for another thread by spinning on memory, and writes to it meanwhile, which keeps the loop from being known
// for one: hangs under the schedule `serial`.
#include "serve.h"

#include <pthread.h>
#include <stdatomic.h>

static atomic_int raised;
static volatile long looks;

static void* raise_flag(void* argument) {
    (void)argument;
    atomic_store(&raised, 1);
    return NULL;
}

__attribute__((noinline)) static void spin_until_raised(void) {
    while (!atomic_load(&raised)) looks++;
}

static void scenario(void) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, raise_flag, NULL) == 0);
    spin_until_raised();
    pthread_join(thread, NULL);
    say("raised %d", atomic_load(&raised));
}

int main(int argc, char** argv) { return serve(argc, argv, scenario); }
