// Threads and processes that wait for each other by spinning on memory, with `pause`, as spin locks do.
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "serve.h"

enum { THREADS = 3, ROUNDS = 200 };

static void relax(void) {
    __builtin_ia32_pause();
}

// --- a value that another thread sets

static atomic_int stage;

static void* echo_stage(void* unused) {
    for (int n = 1; n <= 9; n += 2) {
        while (atomic_load(&stage) != n) relax();
        atomic_store(&stage, n + 1);
    }
    return unused;
}

static void by_turns(void) {
    pthread_t thread;
    atomic_store(&stage, 0);
    CHECK(pthread_create(&thread, NULL, echo_stage, NULL) == 0);
    for (int n = 1; n <= 9; n += 2) {
        atomic_store(&stage, n);
        while (atomic_load(&stage) != n + 1) relax();
    }
    CHECK(pthread_join(thread, NULL) == 0);
    say("by turns %d", atomic_load(&stage));
}

// --- a lock of one's own, held over other calls

static atomic_flag latch = ATOMIC_FLAG_INIT;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int counted;
static char taken[THREADS * ROUNDS + 1];

static void* count(void* name) {
    for (int n = 0; n < ROUNDS; n++) {
        while (atomic_flag_test_and_set(&latch))
            for (int i = 0; i < 50; i++) relax();
        taken[counted] = *(const char*)name;
        pthread_mutex_lock(&mutex);
        pthread_mutex_unlock(&mutex);
        sched_yield();
        counted++;
        atomic_flag_clear(&latch);
    }
    return NULL;
}

static void home_made_lock(void) {
    pthread_t threads[THREADS];
    counted = 0;
    for (int n = 0; n < THREADS; n++) CHECK(pthread_create(&threads[n], NULL, count, (void*)&"abc"[n]) == 0);
    for (int n = 0; n < THREADS; n++) CHECK(pthread_join(threads[n], NULL) == 0);
    say("counted %d", counted);
    order("in the order %s", taken);
}

// --- a library that is loaded later: its threads spin for work, and for each other at the end of it

static atomic_int worked;

static void work(void* unused) {
    (void)unused;
    atomic_fetch_add(&worked, 1);
}

/// In a process of its own, since they would spin on afterwards.
static void loaded_library(void) {
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        setenv("OMP_WAIT_POLICY", "active", 1);
        void* library = dlopen("libgomp.so.1", RTLD_NOW);
        CHECK(library);
        void (*parallel)(void (*)(void*), void*, unsigned, unsigned);
        *(void**)&parallel = dlsym(library, "GOMP_parallel");
        CHECK(parallel);
        for (int n = 0; n < 10; n++) parallel(work, NULL, 3, 0);
        _exit(atomic_load(&worked));
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    say("worked %d times", WEXITSTATUS(status));
}

// --- processes

static void in_children(void) {
    atomic_int* shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        while (atomic_load(shared) != 1) relax();
        atomic_store(shared, 2);
        _exit(7);
    }
    atomic_store(shared, 1);
    while (atomic_load(shared) != 2) relax();
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    say("child %d", WEXITSTATUS(status));
    munmap(shared, 4096);
}

// --- time, signals

static atomic_int raised;

static void* sleep_and_raise(void* unused) {
    usleep(30000);
    atomic_store(&raised, 1);
    return unused;
}
static void on_alarm(int signal) {
    (void)signal;
    atomic_store(&raised, 1);
}

static void what_comes_by_itself(void) {
    pthread_t thread;
    atomic_store(&raised, 0);
    CHECK(pthread_create(&thread, NULL, sleep_and_raise, NULL) == 0);
    while (!atomic_load(&raised)) relax();
    CHECK(pthread_join(thread, NULL) == 0);
    say("slept");
    atomic_store(&raised, 0);
    signal(SIGALRM, on_alarm);
    const struct itimerval soon = {.it_value = {0, 30000}};
    CHECK(setitimer(ITIMER_REAL, &soon, NULL) == 0);
    while (!atomic_load(&raised)) relax();
    say("alarmed");
}

// --- what only looks like one; traps of the program's own

static atomic_int trapped;

static void on_trap(int signal) {
    (void)signal;
    atomic_fetch_add(&trapped, 1);
}

static void own_traps(void) {
    unsigned value;
    asm volatile("movl $0x1290f312, %0" : "=r"(value));
    signal(SIGTRAP, on_trap);
    asm volatile("int3");
    for (int n = 0; n < 100; n++) relax();
    asm volatile("int3; nop");
    signal(SIGTRAP, SIG_DFL);
    say("constant %x, trapped %d", value, atomic_exchange(&trapped, 0));
}

static void scenario(void) {
    by_turns();
    home_made_lock();
    loaded_library();
    in_children();
    what_comes_by_itself();
    own_traps();
}

int main(int argc, char** argv) {
    return serve(argc, argv, scenario);
}
