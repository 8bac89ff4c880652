// Several threads in sigwait() for the same signals, and as many signals at once: each takes one.
#include <pthread.h>

#include "serve.h"

enum { kThreads = 3 };

static int taken;

static void* take(void* set) {
    const struct timespec limit = {20, 0};
    int got;
    do got = sigtimedwait(set, NULL, &limit);
    while (got < 0 && errno == EINTR);  // another one has taken what it was woken for
    if (got > 0) __atomic_add_fetch(&taken, 1, __ATOMIC_RELAXED);
    return NULL;
}

static void* end_at_once(void* unused) {
    return unused;
}

static void scenario(void) {
    static const int kSignals[kThreads] = {SIGUSR1, SIGUSR2, SIGHUP};
    const struct timespec begin = now_plus_ms(CLOCK_MONOTONIC, 0);
    pthread_t threads[kThreads], other;
    sigset_t set;
    sigemptyset(&set);
    for (int i = 0; i < kThreads; i++) sigaddset(&set, kSignals[i]);
    CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
    taken = 0;
    for (int i = 0; i < kThreads; i++) CHECK(pthread_create(&threads[i], NULL, take, &set) == 0);
    // They wait by then, under the shim; natively what is pending waits for them.
    CHECK(pthread_create(&other, NULL, end_at_once, NULL) == 0 && pthread_join(other, NULL) == 0);
    for (int i = 0; i < kThreads; i++) CHECK(kill(getpid(), kSignals[i]) == 0);
    for (int i = 0; i < kThreads; i++) pthread_join(threads[i], NULL);
    say("taken %d, %s", taken, ms_since(begin, CLOCK_MONOTONIC) < 10000 ? "at once" : "late");
}

int main(int argc, char** argv) {
    return serve(argc, argv, scenario);
}
