// Real signals (a child's death) that come while a thread looks at a pipe: nothing is taken for ready that is
// not.
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <sys/eventfd.h>
#include <sys/wait.h>

#include "serve.h"

enum { kRounds = 500, kLooks = 20 };
static int ends[2];
static sem_t go;

static void* writer(void* unused) {
    for (int round = 0; round < kRounds; round++) {
        while (sem_wait(&go) != 0) {
        }
        for (int n = 0; n < kLooks; n++) {
            close(eventfd(0, 0));  // each makes the reader look again
            sched_yield();
        }
        write_all(ends[1], "x", 1);
    }
    return unused;
}

static void scenario(void) {
    pthread_t thread;
    char byte;
    int got = 0;
    CHECK(pipe(ends) == 0 && sem_init(&go, 0, 0) == 0 && pthread_create(&thread, NULL, writer, NULL) == 0);
    for (int round = 0; round < kRounds; round++) {
        const pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) _exit(0);
        sem_post(&go);
        got += read(ends[0], &byte, 1) == 1;
        CHECK(waitpid(child, NULL, 0) == child);
    }
    pthread_join(thread, NULL);
    say("read %d", got);
    sem_destroy(&go);
    close(ends[0]);
    close(ends[1]);
}

int main(int argc, char** argv) {
    return serve(argc, argv, scenario);
}
