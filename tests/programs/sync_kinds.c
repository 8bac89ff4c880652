// Read-write locks, semaphores, barriers, once, C11 threads, thread-specific data, the futex call.
#include "serve.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <threads.h>

static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;

static void* try_both(void* unused) {
    (void)unused;
    say("other tryrdlock %s", code(pthread_rwlock_tryrdlock(&rwlock)));
    return NULL;
}

static void* try_while_writing(void* unused) {
    (void)unused;
    struct timespec limit = now_plus_ms(CLOCK_REALTIME, 30);
    say("rdlock while written %s", code(pthread_rwlock_tryrdlock(&rwlock)));
    say("timedrdlock %s", code(pthread_rwlock_timedrdlock(&rwlock, &limit)));
    limit = now_plus_ms(CLOCK_REALTIME, 30);
    say("timedwrlock %s", code(pthread_rwlock_timedwrlock(&rwlock, &limit)));
    return NULL;
}

static void in_thread(void* (*body)(void*), void* argument) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, body, argument) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

static void rwlocks(void) {
    say("rdlock %s", code(pthread_rwlock_rdlock(&rwlock)));
    in_thread(try_both, NULL);
    say("trywrlock while read %s", code(pthread_rwlock_trywrlock(&rwlock)));
    pthread_rwlock_unlock(&rwlock);
    pthread_rwlock_unlock(&rwlock);
    say("wrlock %s", code(pthread_rwlock_wrlock(&rwlock)));
    in_thread(try_while_writing, NULL);
    say("wrlock twice %s", code(pthread_rwlock_wrlock(&rwlock)));
    pthread_rwlock_unlock(&rwlock);
}

static sem_t ping, pong;
static char exchanged[64];

static void* pong_body(void* unused) {
    for (int n = 0; n < 20; n++) {
        sem_wait(&ping);
        strcat(exchanged, "o");
        sem_post(&pong);
    }
    return unused;
}

static void semaphores(void) {
    sem_t semaphore;
    int value;
    sem_init(&semaphore, 0, 1);
    say("sem_wait %s", outcome(sem_wait(&semaphore)));
    say("sem_trywait %s", outcome(sem_trywait(&semaphore)));
    struct timespec limit = now_plus_ms(CLOCK_REALTIME, 30);
    say("sem_timedwait %s", outcome(sem_timedwait(&semaphore, &limit)));
    limit = now_plus_ms(CLOCK_MONOTONIC, 30);
    say("sem_clockwait %s", outcome(sem_clockwait(&semaphore, CLOCK_MONOTONIC, &limit)));
    sem_post(&semaphore);
    sem_post(&semaphore);
    sem_getvalue(&semaphore, &value);
    say("value %d", value);
    pthread_t thread;
    exchanged[0] = 0;
    sem_init(&ping, 0, 0);
    sem_init(&pong, 0, 0);
    CHECK(pthread_create(&thread, NULL, pong_body, NULL) == 0);
    for (int n = 0; n < 20; n++) {
        strcat(exchanged, "i");
        sem_post(&ping);
        sem_wait(&pong);
    }
    pthread_join(thread, NULL);
    say("exchanged %s", exchanged);
}

static pthread_barrier_t barrier;
static atomic_int serial, arrived, once_runs, destroyed;
static pthread_once_t once;
static pthread_key_t key;

static void run_once(void) { atomic_fetch_add(&once_runs, 1); }
static void destroy(void* value) { atomic_fetch_add(&destroyed, (int)(long)value); }

static void* meet(void* argument) {
    pthread_once(&once, run_once);
    pthread_setspecific(key, argument);
    for (int round = 0; round < 5; round++) {
        atomic_fetch_add(&arrived, 1);
        if (pthread_barrier_wait(&barrier) == PTHREAD_BARRIER_SERIAL_THREAD) atomic_fetch_add(&serial, 1);
        CHECK(atomic_load(&arrived) >= (round + 1) * 4);
        pthread_barrier_wait(&barrier);
    }
    pthread_exit((void*)((long)argument * 10));
}

static void barriers(void) {
    pthread_t threads[4];
    once = (pthread_once_t)PTHREAD_ONCE_INIT;
    serial = arrived = once_runs = destroyed = 0;
    pthread_key_create(&key, destroy);
    pthread_barrier_init(&barrier, NULL, 4);
    for (long n = 0; n < 4; n++) CHECK(pthread_create(&threads[n], NULL, meet, (void*)(n + 1)) == 0);
    for (int n = 0; n < 4; n++) {
        void* result;
        pthread_join(threads[n], &result);
        say("exited with %ld", (long)result);
    }
    say("serial %d once %d destroyed %d", serial, once_runs, destroyed);
    pthread_barrier_destroy(&barrier);
    pthread_key_delete(key);
    say("join twice of self %s", code(pthread_join(pthread_self(), NULL)));
}

static atomic_uint word;
static atomic_int woken;

static long futex(int operation, unsigned value, const struct timespec* limit) {
    return syscall(SYS_futex, &word, operation | FUTEX_PRIVATE_FLAG, value, limit, NULL, 0);
}

static void* futex_wait(void* unused) {
    while (atomic_load(&word) == 0) futex(FUTEX_WAIT, 0, NULL);
    atomic_fetch_add(&woken, 1);
    return unused;
}

static void futexes(void) {
    pthread_t threads[3];
    word = 0;
    woken = 0;
    say("futex wait, other value %s", outcome(futex(FUTEX_WAIT, 7, NULL)));
    say("futex wait, timeout %s", outcome(futex(FUTEX_WAIT, 0, &(struct timespec){0, 20000000})));
    say("futex wake nobody %s", outcome(futex(FUTEX_WAKE, 1, NULL)));
    for (int n = 0; n < 3; n++) CHECK(pthread_create(&threads[n], NULL, futex_wait, NULL) == 0);
    atomic_store(&word, 1);
    order("woke %ld", futex(FUTEX_WAKE, INT_MAX, NULL));
    for (int n = 0; n < 3; n++) pthread_join(threads[n], NULL);
    say("woken %d", woken);
}

static mtx_t c11_lock;
static cnd_t c11_changed;
static int c11_ready;

static int c11_body(void* argument) {
    mtx_lock(&c11_lock);
    c11_ready++;
    cnd_signal(&c11_changed);
    mtx_unlock(&c11_lock);
    return *(int*)argument;
}

static void c11(void) {
    thrd_t thread;
    int argument = 42, result = 0;
    c11_ready = 0;
    mtx_init(&c11_lock, mtx_timed);
    cnd_init(&c11_changed);
    mtx_lock(&c11_lock);
    CHECK(thrd_create(&thread, c11_body, &argument) == thrd_success);
    while (!c11_ready) cnd_wait(&c11_changed, &c11_lock);
    struct timespec limit = now_plus_ms(CLOCK_REALTIME, 20);
    say("cnd_timedwait %d", cnd_timedwait(&c11_changed, &c11_lock, &limit) == thrd_timedout);
    mtx_unlock(&c11_lock);
    thrd_join(thread, &result);
    say("thrd_join %d", result);
}

static atomic_int detached;
static void* detached_body(void* unused) {
    atomic_store(&detached, 1);
    return unused;
}

static void detaching(void) {
    pthread_attr_t attributes;
    pthread_t thread;
    detached = 0;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    CHECK(pthread_create(&thread, &attributes, detached_body, NULL) == 0);
    while (!atomic_load(&detached)) usleep(1000);
    say("detached ran");
}

static void scenario(void) {
    rwlocks();
    semaphores();
    barriers();
    futexes();
    c11();
    detaching();
}

int main(int argc, char** argv) { return serve(argc, argv, scenario); }
