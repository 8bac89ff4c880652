// A thread that takes a lock again and again, with other calls in between: those who want it, too, get it.
// For each kind of lock; what InnoDB's latches are made of first.
#include "serve.h"

#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <sys/syscall.h>

enum { CLAIMANTS = 3, CLAIMS = 20, MOST_ROUNDS = 3000000 };

static pthread_mutex_t inner = PTHREAD_MUTEX_INITIALIZER;

/// Its lowest bit: held; the rest: who wants it.
static atomic_uint latch;

static void latch_lock(void) {
    unsigned seen = 0;
    if (atomic_compare_exchange_strong(&latch, &seen, 1)) return;
    seen = atomic_fetch_add(&latch, 2) + 2;
    for (;;) {
        if (seen & 1) {
            syscall(SYS_futex, &latch, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
            seen = atomic_load(&latch);
        } else if (!((seen = atomic_fetch_or(&latch, 1)) & 1)) {
            atomic_fetch_sub(&latch, 2);
            return;
        }
    }
}
static void latch_unlock(void) {
    if (atomic_fetch_sub(&latch, 1) != 1) syscall(SYS_futex, &latch, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static void mutex_lock(void) {
    CHECK(pthread_mutex_lock(&mutex) == 0);
}
static void mutex_unlock(void) {
    CHECK(pthread_mutex_unlock(&mutex) == 0);
}

static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static void rwlock_lock(void) {
    CHECK(pthread_rwlock_wrlock(&rwlock) == 0);
}
static void rwlock_unlock(void) {
    CHECK(pthread_rwlock_unlock(&rwlock) == 0);
}

static sem_t semaphore;
static void semaphore_lock(void) {
    CHECK(sem_wait(&semaphore) == 0);
}
static void semaphore_unlock(void) {
    CHECK(sem_post(&semaphore) == 0);
}

struct lock {
    const char* name;
    void (*lock)(void);
    void (*unlock)(void);
};
static const struct lock* tried;
static atomic_int served;

static void work_inside(int calls) {
    for (int n = 0; n < calls; n++) {
        pthread_mutex_lock(&inner);
        pthread_mutex_unlock(&inner);
    }
}

static void* claim(void* unused) {
    for (int n = 0; n < CLAIMS; n++) {
        tried->lock();
        work_inside(1);
        tried->unlock();
        atomic_fetch_add(&served, 1);
    }
    return unused;
}

/// The loop's length is another one each time: one of them passes the turn on with the lock in hand always.
static void hog(const struct lock* lock, int calls) {
    pthread_t claimants[CLAIMANTS];
    tried = lock;
    atomic_store(&served, 0);
    lock->lock();
    for (int n = 0; n < CLAIMANTS; n++) CHECK(pthread_create(&claimants[n], NULL, claim, NULL) == 0);
    work_inside(1000);
    lock->unlock();
    int rounds = 0;
    for (; rounds < MOST_ROUNDS && atomic_load(&served) < CLAIMANTS * CLAIMS; rounds++) {
        lock->lock();
        work_inside(calls);
        lock->unlock();
    }
    say("%s, %d calls inside: %d served%s", lock->name, calls, atomic_load(&served),
        rounds == MOST_ROUNDS ? ", locked out" : "");
    for (int n = 0; n < CLAIMANTS; n++) pthread_join(claimants[n], NULL);
}

static void locked_out(void) {
    static const struct lock locks[] = {{"latch", latch_lock, latch_unlock},
                                        {"mutex", mutex_lock, mutex_unlock},
                                        {"rwlock", rwlock_lock, rwlock_unlock},
                                        {"semaphore", semaphore_lock, semaphore_unlock}};
    sem_init(&semaphore, 0, 1);
    for (size_t kind = 0; kind < sizeof(locks) / sizeof(*locks); kind++) {
        for (int calls = 1; calls <= 4; calls++) hog(&locks[kind], calls);
    }
    sem_destroy(&semaphore);
}

int main(int argc, char** argv) {
    return serve(argc, argv, locked_out);
}
