// A library that has handlers for forks, loaded and unloaded by process_edges.c.
#include <pthread.h>

static int ran;

static void run(void) {
    ran++;
}

__attribute__((constructor)) static void loaded(void) {
    pthread_atfork(run, run, run);
}
