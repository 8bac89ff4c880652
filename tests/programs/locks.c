// Mutexes, condition variables and their timed and try forms.
#include "serve.h"

#include <pthread.h>

enum { kThreads = 6, kRounds = 40 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int counter, turns[kThreads * kRounds], taken;

static void* count(void* argument) {
    for (int round = 0; round < kRounds; round++) {
        pthread_mutex_lock(&lock);
        turns[taken++] = (int)(long)argument;
        int before = counter;
        for (volatile int spin = 0; spin < 300; spin++) {
        }
        counter = before + 1;
        pthread_mutex_unlock(&lock);
    }
    return argument;
}

static void contention(void) {
    pthread_t threads[kThreads];
    counter = taken = 0;
    for (long n = 0; n < kThreads; n++) CHECK(pthread_create(&threads[n], NULL, count, (void*)n) == 0);
    for (long n = 0; n < kThreads; n++) {
        void* result;
        CHECK(pthread_join(threads[n], &result) == 0);
        say("thread %ld returned %ld", n, (long)result);
    }
    say("counter %d", counter);
    char sequence[kThreads * kRounds + 1];
    for (int n = 0; n < taken; n++) sequence[n] = (char)('a' + turns[n]);
    sequence[taken] = 0;
    order("order %s", sequence);
}

static pthread_mutex_t typed(int type) {
    pthread_mutexattr_t attributes;
    pthread_mutex_t mutex;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, type);
    pthread_mutex_init(&mutex, &attributes);
    return mutex;
}

static void* hold(void* argument) {
    pthread_mutex_lock(argument);
    pthread_mutex_lock(&lock);
    counter = 1;
    pthread_cond_broadcast(&changed);
    while (counter != 2) pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    pthread_mutex_unlock(argument);
    return NULL;
}

static void errors(void) {
    pthread_mutex_t checked = typed(PTHREAD_MUTEX_ERRORCHECK), recursive = typed(PTHREAD_MUTEX_RECURSIVE);
    say("unlock unowned %s", code(pthread_mutex_unlock(&checked)));
    say("lock %s", code(pthread_mutex_lock(&checked)));
    say("lock twice %s", code(pthread_mutex_lock(&checked)));
    say("trylock own %s", code(pthread_mutex_trylock(&checked)));
    say("unlock %s", code(pthread_mutex_unlock(&checked)));
    say("recursive %s", code(pthread_mutex_lock(&recursive)));
    say("recursive again %s", code(pthread_mutex_lock(&recursive)));
    say("recursive try %s", code(pthread_mutex_trylock(&recursive)));
    for (int n = 0; n < 4; n++) say("recursive unlock %s", code(pthread_mutex_unlock(&recursive)));
}

static void timed(void) {
    pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;
    pthread_t holder;
    pthread_mutex_lock(&lock);
    counter = 0;
    CHECK(pthread_create(&holder, NULL, hold, &held) == 0);
    while (counter != 1) pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    say("trylock held %s", code(pthread_mutex_trylock(&held)));
    struct timespec begin = now_plus_ms(CLOCK_MONOTONIC, 0), limit = now_plus_ms(CLOCK_REALTIME, 50);
    say("timedlock %s", code(pthread_mutex_timedlock(&held, &limit)));
    say("timedlock waited %d", ms_since(begin, CLOCK_MONOTONIC) >= 49);
    begin = limit = now_plus_ms(CLOCK_MONOTONIC, 0);
    limit = now_plus_ms(CLOCK_MONOTONIC, 50);
    say("clocklock %s", code(pthread_mutex_clocklock(&held, CLOCK_MONOTONIC, &limit)));
    pthread_mutex_lock(&lock);
    limit = now_plus_ms(CLOCK_REALTIME, 30);
    say("cond_timedwait %s", code(pthread_cond_timedwait(&changed, &lock, &limit)));
    limit = now_plus_ms(CLOCK_MONOTONIC, 30);
    say("cond_clockwait %s", code(pthread_cond_clockwait(&changed, &lock, CLOCK_MONOTONIC, &limit)));
    say("past deadline %s", code(pthread_cond_clockwait(&changed, &lock, CLOCK_MONOTONIC, &begin)));
    counter = 2;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    pthread_join(holder, NULL);
    limit = now_plus_ms(CLOCK_REALTIME, 50);
    say("timedlock free %s", code(pthread_mutex_timedlock(&held, &limit)));
    say("invalid time %s", code(pthread_mutex_timedlock(&held, &(struct timespec){0, -1})));
}

static int queue, consumed[3], produced_all;

static void* consume(void* argument) {
    long me = (long)argument;
    pthread_mutex_lock(&lock);
    for (;;) {
        while (queue == 0 && !produced_all) pthread_cond_wait(&changed, &lock);
        if (queue == 0) break;
        queue--;
        consumed[me]++;
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

static void queueing(void) {
    pthread_t consumers[3];
    queue = produced_all = 0;
    memset(consumed, 0, sizeof consumed);
    for (long n = 0; n < 3; n++) CHECK(pthread_create(&consumers[n], NULL, consume, (void*)n) == 0);
    for (int n = 0; n < 300; n++) {
        pthread_mutex_lock(&lock);
        queue++;
        pthread_cond_signal(&changed);
        pthread_mutex_unlock(&lock);
    }
    pthread_mutex_lock(&lock);
    produced_all = 1;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    for (int n = 0; n < 3; n++) pthread_join(consumers[n], NULL);
    say("consumed %d", consumed[0] + consumed[1] + consumed[2]);
    order("by consumer %d %d %d", consumed[0], consumed[1], consumed[2]);
}

// Who writes comes before those who read and asked later, if the lock is made so.
static pthread_rwlock_t preferring = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
static char came[4];
static void* write_it(void* until) {
    if (until) return pthread_rwlock_timedwrlock(&preferring, until) == ETIMEDOUT ? until : NULL;
    CHECK(pthread_rwlock_wrlock(&preferring) == 0);
    strcat(came, "w");
    CHECK(pthread_rwlock_unlock(&preferring) == 0);
    return NULL;
}
static void* read_it(void* nothing) {
    CHECK(pthread_rwlock_rdlock(&preferring) == 0);
    strcat(came, "r");
    CHECK(pthread_rwlock_unlock(&preferring) == 0);
    return nothing;
}
static void until_one_waits_to_write(void) {
    while (pthread_rwlock_tryrdlock(&preferring) == 0) {
        CHECK(pthread_rwlock_unlock(&preferring) == 0);
        usleep(1000);
    }
}
static void joins(void) {
    pthread_t thread;
    void* result = NULL;
    CHECK(pthread_create(&thread, NULL, write_it, NULL) == 0);
    say("bad clock %d", pthread_clockjoin_np(thread, NULL, CLOCK_BOOTTIME, &(struct timespec){0, 0}));
    say("for ever %d", pthread_timedjoin_np(thread, &result, NULL));
}
static void preferred_writers(void) {
    pthread_t writer, reader;
    came[0] = 0;
    CHECK(pthread_rwlock_rdlock(&preferring) == 0);
    CHECK(pthread_create(&writer, NULL, write_it, NULL) == 0);
    until_one_waits_to_write();
    CHECK(pthread_create(&reader, NULL, read_it, NULL) == 0);
    usleep(2000);
    CHECK(pthread_rwlock_unlock(&preferring) == 0);
    CHECK(pthread_join(writer, NULL) == 0 && pthread_join(reader, NULL) == 0);
    say("preferred %s", came);
    // One that gives up holds nobody back.
    struct timespec until;
    void* gave_up;
    CHECK(pthread_rwlock_rdlock(&preferring) == 0 && clock_gettime(CLOCK_REALTIME, &until) == 0);
    until.tv_sec += 1;
    CHECK(pthread_create(&writer, NULL, write_it, &until) == 0);
    until_one_waits_to_write();
    CHECK(pthread_create(&reader, NULL, read_it, NULL) == 0);
    CHECK(pthread_join(reader, NULL) == 0 && pthread_join(writer, &gave_up) == 0);
    say("gave up %d, then %s", gave_up == &until, came);
    CHECK(pthread_rwlock_unlock(&preferring) == 0);
}

static void scenario(void) {
    contention();
    errors();
    timed();
    queueing();
    preferred_writers();
    joins();
}

int main(int argc, char** argv) { return serve(argc, argv, scenario); }
