// What crane verify is tried on: threads that draw, and say in which order; then its input. "roll" has it do
// what is not the same twice; "fail" ends it with status 3.
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { THREADS = 4, DRAWS = 500 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER, behind = PTHREAD_MUTEX_INITIALIZER;
static char drawn[THREADS * DRAWS + 1];
static int taken;

static void* draw(void* name) {
    for (int n = 0; n < DRAWS; n++) {
        pthread_mutex_lock(&lock);
        drawn[taken++] = *(const char*)name;
        pthread_mutex_unlock(&lock);
    }
    return NULL;
}

/// The processor's own random numbers: nobody makes them the same with CRANE_RDRAND=real.
static unsigned long roll(void) {
    unsigned long value = 0;
    asm volatile("1: rdrand %0; jnc 1b" : "+r"(value));
    return value;
}

int main(int argc, char** argv) {
    const int rolls = argc > 1 && strcmp(argv[1], "roll") == 0;
    pthread_t threads[THREADS];
    for (int n = 0; n < THREADS; n++) pthread_create(&threads[n], NULL, draw, (void*)&"abcd"[n]);
    for (int n = 0; n < THREADS; n++) pthread_join(threads[n], NULL);
    printf("%s\n", drawn);
    fflush(stdout);  // out before any run differs: one that does may be stopped at once
    char line[200];
    while (fgets(line, sizeof(line), stdin)) printf("read %s", line);
    // Another number of operations, then one that no run is merely the beginning of another; another output.
    if (rolls) {
        for (unsigned long n = roll() % 1000; n > 0; n--) {
            pthread_mutex_lock(&lock);
            pthread_mutex_unlock(&lock);
        }
        pthread_mutex_lock(&behind);
        pthread_mutex_unlock(&behind);
        printf("rolled %lx\n", roll());
    }
    return argc > 1 && strcmp(argv[1], "fail") == 0 ? 3 : 0;
}
