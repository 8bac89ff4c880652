// Threads and processes that wait for each other in loops which nobody could know for such beforehand: with
// calls, with locks tried in vain, with more instructions than one looks through.
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "serve.h"

// --- a table of workers under a lock of its own, asked again and again (as PostgreSQL waits for its workers)

enum { WORKERS = 3 };

struct table {
    atomic_int lock;
    atomic_int started[WORKERS], attached[WORKERS];
    char word[16];
};

__attribute__((noinline)) static void take(atomic_int* lock) {
    int expected = 0;
    while (!atomic_compare_exchange_weak(lock, &expected, 1)) expected = 0;
}
__attribute__((noinline)) static void give(atomic_int* lock) {
    atomic_fetch_sub(lock, 1);
}
__attribute__((noinline)) static int state_of(struct table* table, int worker, int* attached) {
    take(&table->lock);
    const int started = atomic_load(&table->started[worker]);
    *attached = atomic_load(&table->attached[worker]);
    give(&table->lock);
    return started;
}
__attribute__((noinline)) static void wait_for_workers(struct table* table) {
    int known[WORKERS] = {0};
    for (;;) {
        int found = 0;
        for (int n = 0; n < WORKERS; n++) {
            int attached = 0;
            if (!known[n] && state_of(table, n, &attached) && attached) known[n] = 1;
            found += known[n];
        }
        if (found == WORKERS) return;
    }
}

static void* attach(void* given) {
    struct table* table = given;
    for (int n = 0; n < WORKERS; n++) {
        take(&table->lock);
        atomic_store(&table->attached[n], 1);
        give(&table->lock);
        usleep(1000);
    }
    return NULL;
}

static void table_of_threads(void) {
    static struct table table;
    memset(&table, 0, sizeof table);
    for (int n = 0; n < WORKERS; n++) atomic_store(&table.started[n], 1);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, attach, &table) == 0);
    wait_for_workers(&table);
    CHECK(pthread_join(thread, NULL) == 0);
    say("all threads attached");
}

static void table_of_processes(void) {
    struct table* table = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(table != MAP_FAILED);
    for (int n = 0; n < WORKERS; n++) atomic_store(&table->started[n], 1);
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        attach(table);
        _exit(0);
    }
    wait_for_workers(table);
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    say("all processes attached, %d", status);
    munmap(table, 4096);
}

// --- locks that are nothing but tried

enum { ROUNDS = 20 };
static atomic_int latch;
static atomic_flag flag = ATOMIC_FLAG_INIT;
static int counted;
static char taken[2 * WORKERS * ROUNDS + 1];

static void* count(void* name) {
    for (int n = 0; n < ROUNDS; n++) {
        while (atomic_exchange(&latch, 1)) {
        }
        taken[counted] = *(const char*)name;
        usleep(1);
        counted++;
        atomic_store(&latch, 0);
        while (atomic_flag_test_and_set(&flag)) {
        }
        taken[counted] = *(const char*)name;
        usleep(1);
        counted++;
        atomic_flag_clear(&flag);
    }
    return NULL;
}

static void locks(void) {
    pthread_t threads[WORKERS];
    counted = 0;
    memset(taken, 0, sizeof taken);
    for (int n = 0; n < WORKERS; n++) CHECK(pthread_create(&threads[n], NULL, count, (void*)&"abc"[n]) == 0);
    for (int n = 0; n < WORKERS; n++) CHECK(pthread_join(threads[n], NULL) == 0);
    order("in the order %s", taken);
}

static atomic_int flag_word;

static void* raise_flag(void* unused) {
    usleep(2000);
    atomic_store(&flag_word, 5);
    return unused;
}

// --- words that the C library compares

static char shared_word[64];

static void* say_ready(void* unused) {
    usleep(2000);
    memcpy(shared_word, "ready", 6);
    return unused;
}

static void a_word(void) {
    pthread_t thread;
    memset(shared_word, 0, sizeof shared_word);
    CHECK(pthread_create(&thread, NULL, say_ready, NULL) == 0);
    while (strcmp(shared_word, "ready") != 0) atomic_signal_fence(memory_order_seq_cst);
    CHECK(pthread_join(thread, NULL) == 0);
    say("%s", shared_word);
}

// --- a sum over more than a short jump reaches

static volatile int parts[64];

static void* set_parts(void* unused) {
    for (int n = 0; n < 64; n++) {
        parts[n] = 1;
        if (n % 16 == 0) usleep(100);
    }
    return unused;
}

#define FOUR(n) parts[n] * 3 + parts[(n) + 1] * 5 + parts[(n) + 2] * 7 + parts[(n) + 3] * 11
#define SIXTEEN(n) FOUR(n) + FOUR((n) + 4) + FOUR((n) + 8) + FOUR((n) + 12)

static void a_long_sum(void) {
    pthread_t thread;
    for (int n = 0; n < 64; n++) parts[n] = 0;
    CHECK(pthread_create(&thread, NULL, set_parts, NULL) == 0);
    while (SIXTEEN(0) + SIXTEEN(16) + SIXTEEN(32) + SIXTEEN(48) != 26 * 16) {
    }
    CHECK(pthread_join(thread, NULL) == 0);
    say("summed up");
}

// --- code of no file

static void in_code_made_at_run_time(void) {
    static const unsigned char code[] = {0x87, 0x07, 0x85, 0xc0,
                                         0x74, 0xfa, 0xc3};  // 1: xchg, test, je 1b; ret
    void* const at = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    memcpy(at, code, sizeof code);
    pthread_t thread;
    atomic_store(&flag_word, 0);
    CHECK(pthread_create(&thread, NULL, raise_flag, NULL) == 0);
    int word = 0;
    asm volatile("call *%2" : "+a"(word) : "D"(&flag_word), "r"(at) : "memory", "cc");
    CHECK(pthread_join(thread, NULL) == 0);
    say("made code saw %d", word);
    munmap(at, 4096);
}

// --- a signal, waited for by asking a function

static volatile sig_atomic_t alarmed;
static void on_alarm(int signal) {
    (void)signal;
    alarmed = 1;
}
__attribute__((noinline)) static int is_alarmed(atomic_int* lock) {
    take(lock);
    const int is = alarmed;
    give(lock);
    return is;
}

static void an_alarm(void) {
    static atomic_int lock;
    alarmed = 0;
    signal(SIGALRM, on_alarm);
    const struct itimerval soon = {.it_value = {0, 30000}};
    CHECK(setitimer(ITIMER_REAL, &soon, NULL) == 0);
    while (!is_alarmed(&lock)) {
    }
    say("alarmed");
}

// --- an interpreter's loop: each jump back is taken for every instruction of its program (Perl's is one)

struct instruction {
    const struct instruction* (*work)(const struct instruction*);
};
static const struct instruction program[];

static const struct instruction* go_on(const struct instruction* at) {
    return at + 1;
}
static const struct instruction* look(const struct instruction* at) {
    (void)at;
    return alarmed ? NULL : program;
}
static const struct instruction program[] = {{go_on}, {go_on}, {go_on}, {look}};

__attribute__((noinline)) static void run(const struct instruction* at) {
    while (at) at = at->work(at);
}

static void a_program_that_waits(void) {
    alarmed = 0;
    const struct itimerval soon = {.it_value = {0, 30000}};
    CHECK(setitimer(ITIMER_REAL, &soon, NULL) == 0);
    run(program);
    say("the program has waited");
}

// Where one program has waited all others come by as well.

static long steps;
static const struct instruction* look_alone(const struct instruction* at) {
    return alarmed ? NULL : at;
}
static const struct instruction* count_on(const struct instruction* at) {
    return ++steps < 3000000 ? at : NULL;
}
static const struct instruction waiting[] = {{look_alone}}, counting[] = {{count_on}};

static void programs_that_do_not_wait(void) {
    alarmed = 0;
    const struct itimerval soon = {.it_value = {0, 30000}};
    CHECK(setitimer(ITIMER_REAL, &soon, NULL) == 0);
    run(waiting);
    steps = 0;
    run(counting);
    say("%ld steps", steps);
    alarmed = 0;
    CHECK(setitimer(ITIMER_REAL, &soon, NULL) == 0);
    run(waiting);
    say("waited again");
}

static void scenario(void) {
    table_of_threads();
    table_of_processes();
    locks();
    a_word();
    a_long_sum();
    in_code_made_at_run_time();
    an_alarm();
    a_program_that_waits();
    programs_that_do_not_wait();
}

int main(int argc, char** argv) {
    return serve(argc, argv, scenario);
}
