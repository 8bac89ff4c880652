// Locks that are only tried, by threads that would meet in the same phase for ever: who passes the turn on does it with the
// lock in its hand.
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>

#include "serve.h"

enum { MOST_ROUNDS = 300000 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER, other = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_spinlock_t spinlock;
static sem_t semaphore;

static int try_mutex(void) { return pthread_mutex_trylock(&mutex); }
static void unlock_mutex(void) { pthread_mutex_unlock(&mutex); }
static int try_rwlock(void) { return pthread_rwlock_trywrlock(&rwlock); }
static void unlock_rwlock(void) { pthread_rwlock_unlock(&rwlock); }
static int try_spinlock(void) { return pthread_spin_trylock(&spinlock); }
static void unlock_spinlock(void) { pthread_spin_unlock(&spinlock); }
static int try_semaphore(void) { return sem_trywait(&semaphore); }
static void unlock_semaphore(void) { sem_post(&semaphore); }

static const struct lock {
    const char* name;
    int (*attempt)(void);
    void (*unlock)(void);
} locks[] = {{"mutex", try_mutex, unlock_mutex},
             {"rwlock", try_rwlock, unlock_rwlock},
             {"spinlock", try_spinlock, unlock_spinlock},
             {"semaphore", try_semaphore, unlock_semaphore}};

static const struct lock* tried;
static atomic_int got;

static void* poll_lock(void* unused) {
    while (tried->attempt() != 0) {
    }
    atomic_store(&got, 1);
    tried->unlock();
    return unused;
}

/// Lets others in only with the lock in its hand.
static void against_a_hog(const struct lock* lock) {
    pthread_t thread;
    tried = lock;
    atomic_store(&got, 0);
    CHECK(lock->attempt() == 0);
    CHECK(pthread_create(&thread, NULL, poll_lock, NULL) == 0);
    int rounds = 0;
    for (; rounds < MOST_ROUNDS && !atomic_load(&got); rounds++) {
        sched_yield();
        lock->unlock();
        while (lock->attempt() != 0) sched_yield();
    }
    lock->unlock();
    order("%s: %s", lock->name, rounds < MOST_ROUNDS ? "got" : "locked out");
    pthread_join(thread, NULL);
}

/// Each takes one, tries the other's, lets go and begins again.
static void take_both(pthread_mutex_t* first, pthread_mutex_t* second, int* rounds) {
    for (*rounds = 0; *rounds < MOST_ROUNDS; ++*rounds) {
        pthread_mutex_lock(first);
        sched_yield();
        if (pthread_mutex_trylock(second) == 0) {
            pthread_mutex_unlock(second);
            pthread_mutex_unlock(first);
            return;
        }
        pthread_mutex_unlock(first);
    }
}

static void* take_the_other_way(void* rounds) {
    take_both(&other, &mutex, rounds);
    return NULL;
}

static void against_each_other(void) {
    pthread_t thread;
    int one, two;
    CHECK(pthread_create(&thread, NULL, take_the_other_way, &two) == 0);
    take_both(&mutex, &other, &one);
    pthread_join(thread, NULL);
    order("both: %s", one < MOST_ROUNDS && two < MOST_ROUNDS ? "got" : "never");
}

static void scenario(void) {
    pthread_spin_init(&spinlock, 0);
    sem_init(&semaphore, 0, 1);
    for (size_t n = 0; n < sizeof(locks) / sizeof(*locks); n++) against_a_hog(&locks[n]);
    against_each_other();
    sem_destroy(&semaphore);
}

int main(int argc, char** argv) {
    return serve(argc, argv, scenario);
}
