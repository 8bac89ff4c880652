// Threads that are cancelled while they wait: on a condition, a semaphore, a read, a sleep; asynchronously or not.
#include "serve.h"

#include <pthread.h>
#include <semaphore.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static sem_t gate, waits;
static int ends[2];
static int held;

static void leave_condition(void* unused) {
    (void)unused;
    held = pthread_mutex_trylock(&lock) == EBUSY;
    pthread_mutex_unlock(&lock);
}

static void* on_condition(void* unused) {
    pthread_mutex_lock(&lock);
    pthread_cleanup_push(leave_condition, NULL);
    sem_post(&waits);
    for (;;) pthread_cond_wait(&changed, &lock);
    pthread_cleanup_pop(1);
    return unused;
}

static void* on_timed_condition(void* unused) {
    const struct timespec until = now_plus_ms(CLOCK_REALTIME, 3600 * 1000);
    pthread_mutex_lock(&lock);
    pthread_cleanup_push(leave_condition, NULL);
    sem_post(&waits);
    for (;;) pthread_cond_timedwait(&changed, &lock, &until);
    pthread_cleanup_pop(1);
    return unused;
}

static void* on_semaphore(void* unused) {
    sem_post(&waits);
    while (sem_wait(&gate) != 0) {
    }
    return unused;
}

static void* on_read(void* unused) {
    char byte;
    sem_post(&waits);
    while (read(ends[0], &byte, 1) < 0) {
    }
    return unused;
}

static void* on_sleep(void* unused) {
    sem_post(&waits);
    for (;;) sleep(3600);
    return unused;
}

// libc writes what it has gathered, and can be cancelled there, in the midst of a system call of its own.
static void* inside_libc(void* unused) {
    FILE* file = fopen("/dev/null", "w");
    CHECK(file != NULL);
    sem_post(&waits);
    for (;;) fprintf(file, "something");
    return unused;
}

static void* put_off(void* unused) {
    CHECK(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL) == 0);
    sem_post(&waits);
    held = usleep(20000);  // to its end
    CHECK(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL) == 0);
    pthread_testcancel();
    return unused;
}

static void* before_it_takes(void* unused) {
    sem_t free;
    CHECK(sem_init(&free, 0, 1) == 0 && pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL) == 0);
    sem_post(&waits);
    usleep(20000);
    CHECK(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL) == 0);
    sem_wait(&free);
    return unused;
}

static void* by_itself(void* unused) {
    CHECK(pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL) == 0);
    sem_post(&waits);
    CHECK(pthread_cancel(pthread_self()) == 0);
    return unused;
}

static void* asynchronously(void* body) {
    int old = -1;
    CHECK(pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &old) == 0 && old == PTHREAD_CANCEL_DEFERRED);
    return ((void* (*)(void*))body)(NULL);
}

static void cancel_one(const char* what, void* (*body)(void*), void* argument) {
    pthread_t thread;
    void* result = NULL;
    held = 0;
    CHECK(pthread_create(&thread, NULL, body, argument) == 0);
    sem_wait(&waits);
    usleep(1000);
    CHECK(pthread_cancel(thread) == 0);
    CHECK(pthread_join(thread, &result) == 0);
    CHECK(pthread_mutex_trylock(&lock) == 0);
    pthread_mutex_unlock(&lock);
    say("%s: cancelled %d, mutex held %d", what, result == PTHREAD_CANCELED, held);
}

static void scenario(void) {
    static const struct {
        const char* name;
        void* (*body)(void*);
    } kinds[] = {{"condition", on_condition}, {"timed condition", on_timed_condition}, {"semaphore", on_semaphore},
                 {"read", on_read}, {"sleep", on_sleep}};
    CHECK(sem_init(&gate, 0, 0) == 0 && sem_init(&waits, 0, 0) == 0 && pipe(ends) == 0);
    for (size_t n = 0; n < sizeof(kinds) / sizeof(kinds[0]); n++) {
        cancel_one(kinds[n].name, kinds[n].body, NULL);
        cancel_one("asynchronously", asynchronously, (void*)kinds[n].body);
    }
    cancel_one("inside libc", inside_libc, NULL);
    cancel_one("put off", put_off, NULL);
    cancel_one("before it takes", before_it_takes, NULL);
    cancel_one("by itself", by_itself, NULL);
    say("bad type %s", code(pthread_setcanceltype(77, NULL)));
    close(ends[0]);
    close(ends[1]);
}

int main(int argc, char** argv) { return serve(argc, argv, scenario); }
