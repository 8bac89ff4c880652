// Threads end while others allocate: what libc frees at a thread's very end is part of the schedule, too.
#include "serve.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>

enum { kRounds = 40, kThreads = 4, kBlocks = 300 };

static sem_t working;
static _Atomic uint64_t seen;

static void note(const void* block) { seen = (seen ^ (uintptr_t)block) * 0x9e3779b97f4a7c15; }

// Leaves its cache full of small blocks, for libc to free after the program's last word.
static void* allocate_and_end(void* argument) {
    void* blocks[kBlocks];
    for (int n = 0; n < kBlocks; n++) note(blocks[n] = malloc((size_t)(n % 50 + 1) * 16));
    for (int n = 0; n < kBlocks; n++) free(blocks[n]);
    sem_post(&working);
    return argument;
}

static void scenario(void) {
    pthread_t threads[kThreads];
    int ended = 0;
    seen = 0;
    sem_init(&working, 0, 0);
    for (int round = 0; round < kRounds; round++) {
        for (int n = 0; n < kThreads; n++) {
            CHECK(pthread_create(&threads[n], NULL, allocate_and_end, NULL) == 0);
            if (n % 2) sem_wait(&working);
        }
        for (int n = 0; n < kThreads / 2; n++) sem_wait(&working);
        for (int n = 0; n < kThreads; n++) ended += pthread_join(threads[n], NULL) == 0;
    }
    say("ended %d", ended);
    order("addresses %lx", (unsigned long)seen);
    sem_destroy(&working);
}

int main(int argc, char** argv) { return serve(argc, argv, scenario); }
