// Threads and processes that wait for each other by looking at memory, with no `pause` and no call at all.
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "serve.h"

// --- a value that another thread sets, compared in several ways

static atomic_int stage;

static void* echo_stage(void* unused) {
    for (int n = 1; n <= 9; n += 2) {
        while (atomic_load(&stage) != n) {
        }
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
        if (n % 3 == 0)
            while (atomic_load(&stage) <= n) {
            }
        else
            while (!((unsigned)atomic_load(&stage) > (unsigned)n)) {
            }
    }
    CHECK(pthread_join(thread, NULL) == 0);
    say("by turns %d", atomic_load(&stage));
}

// --- a pool: who hands out work sums up what is left, workers count how often they look before they sleep

enum { WORKERS = 3, ROUNDS = 100 };

static atomic_ulong left_over[WORKERS];
static pthread_mutex_t held_back[WORKERS];
static volatile int workers = WORKERS;
static atomic_int done, over;
static char worked[WORKERS * ROUNDS + 1];

static void* work(void* number) {
    const long me = (long)number;
    for (;;) {
        for (int look = 0; look < 1000000; look++)
            if (atomic_load(&left_over[me]) != 0) break;
        if (atomic_load(&left_over[me]) == 0) {
            pthread_mutex_lock(&held_back[me]);
            pthread_mutex_unlock(&held_back[me]);
            if (atomic_load(&over)) return NULL;
            continue;
        }
        while (atomic_load(&left_over[me]) != 0) {
            worked[atomic_fetch_add(&done, 1)] = (char)('a' + me);
            sched_yield();
            atomic_fetch_sub(&left_over[me], 1);
        }
    }
}

__attribute__((noinline)) static void wait_for_all(void) {
    for (;;) {
        unsigned long left = 0;
        for (int n = 0; n < workers; n++) left += atomic_load(&left_over[n]);
        if (left == 0) break;
    }
}

static void pool(void) {
    pthread_t threads[WORKERS];
    atomic_store(&done, 0);
    atomic_store(&over, 0);
    memset(worked, 0, sizeof worked);
    for (long n = 0; n < WORKERS; n++) {
        CHECK(pthread_mutex_init(&held_back[n], NULL) == 0);
        pthread_mutex_lock(&held_back[n]);
        CHECK(pthread_create(&threads[n], NULL, work, (void*)n) == 0);
    }
    for (int n = 0; n < WORKERS; n++) pthread_mutex_unlock(&held_back[n]);
    for (int round = 0; round < ROUNDS; round++) {
        for (int n = 0; n < WORKERS; n++) atomic_store(&left_over[n], 1);
        wait_for_all();
    }
    atomic_store(&over, 1);
    for (int n = 0; n < WORKERS; n++) CHECK(pthread_join(threads[n], NULL) == 0);
    say("worked %d times", atomic_load(&done));
    order("in the order %s", worked);
}

// --- a lock of one's own, held over other calls: looked at until it seems to be free

static atomic_int latch;
static int counted;
static char taken[WORKERS * ROUNDS + 1];

static void* count(void* name) {
    for (int n = 0; n < ROUNDS; n++) {
        while (atomic_exchange(&latch, 1))
            while (atomic_load(&latch)) {
            }
        taken[counted] = *(const char*)name;
        usleep(1);
        counted++;
        atomic_store(&latch, 0);
    }
    return NULL;
}

static void home_made_lock(void) {
    pthread_t threads[WORKERS];
    counted = 0;
    for (int n = 0; n < WORKERS; n++) CHECK(pthread_create(&threads[n], NULL, count, (void*)&"abc"[n]) == 0);
    for (int n = 0; n < WORKERS; n++) CHECK(pthread_join(threads[n], NULL) == 0);
    say("counted %d", counted);
    order("in the order %s", taken);
}

// --- processes

static void in_children(void) {
    atomic_int* shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        while (atomic_load(shared) != 1) {
        }
        atomic_store(shared, 2);
        _exit(7);
    }
    atomic_store(shared, 1);
    while (atomic_load(shared) != 2) {
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    say("child %d", WEXITSTATUS(status));
    munmap(shared, 4096);
}

// --- time, signals

static atomic_int raised;
static volatile sig_atomic_t alarmed;

static void* sleep_and_raise(void* unused) {
    usleep(30000);
    atomic_store(&raised, 1);
    return unused;
}
static void on_alarm(int signal) {
    (void)signal;
    alarmed = 1;
}

static void what_comes_by_itself(void) {
    pthread_t thread;
    atomic_store(&raised, 0);
    CHECK(pthread_create(&thread, NULL, sleep_and_raise, NULL) == 0);
    while (!atomic_load(&raised)) {
    }
    CHECK(pthread_join(thread, NULL) == 0);
    say("slept");
    alarmed = 0;
    signal(SIGALRM, on_alarm);
    const struct itimerval soon = {.it_value = {0, 30000}};
    CHECK(setitimer(ITIMER_REAL, &soon, NULL) == 0);
    while (!alarmed) {
    }
    say("alarmed");
}

// --- what falls through, again and again

static void nobody_to_wait_for(void) {
    long sum = 0;
    atomic_store(&stage, 5);
    for (int n = 0; n < 1000; n++) {
        while (atomic_load(&stage) != 5) {
        }
        while (atomic_load(&stage) < 5) {
        }
        sum += n;
    }
    say("sum %ld", sum);
}

// --- what is passed often, as a server passes it with each request, is waited in at last

static atomic_int state;
__attribute__((noinline)) static int step(void) {
    int found;
    while ((found = atomic_load(&state)) > 12) {
    }
    return found;
}

static void* leave_state(void* unused) {
    for (int n = 0; n < 3; n++) {
        usleep(1000);
        atomic_store(&state, n);
        while (atomic_load(&state) == n) {
        }
    }
    return unused;
}

static void passed_and_then_waited_in(void) {
    pthread_t thread;
    long sum = 0;
    atomic_store(&state, 3);
    for (int n = 0; n < 100000; n++) sum += step();
    atomic_store(&state, 13);
    CHECK(pthread_create(&thread, NULL, leave_state, NULL) == 0);
    for (int n = 0; n < 3; n++) {
        sum = sum * 10 + step();
        atomic_store(&state, 13 + n);
    }
    CHECK(pthread_join(thread, NULL) == 0);
    say("passed, and waited %ld", sum);
    if (fork() == 0) {
        for (int n = 0; n < 1000; n++) {
            atomic_store(&state, n % 10);
            sum += step();
        }
        _exit((int)(sum % 100));
    }
    int status;
    CHECK(wait(&status) > 0);
    say("child %d", WEXITSTATUS(status));
}

// Says nothing, and takes no register.
void serve_nothing(void);
asm(".text\nserve_nothing: ret\n");

// --- a walk with a jump back that no round comes by twice: who takes it for a wait naps at every node

enum { nodes = 40000, marked = 0x40 };
struct node {
    uint64_t unused;
    struct node* next;
    uint8_t more[17], flags;
};
static long walk(struct node* first, struct node* end) {
    long count = 0;
    struct node* next;
    asm volatile(
        "jmp 2f\n"
        "1:\n\ttest %[next], %[next]\n\tjne 3f\n\tcmp %[at], %[end]\n\tje 4f\n"
        "2:\n\tmov 8(%[at]), %[next]\n\ttestb $0x40, 0x21(%[at])\n\tjne 1b\n"
        "\tmov %[next], %[at]\n\tcmp %[at], %[end]\n\tjne 2b\n\tjmp 4f\n"
        ".skip 200, 0x90\n"
        "3:\n\tmov %[next], %[at]\n\tinc %[count]\n\tcall *%[same]\n\tcmp %[at], %[end]\n\tjne 2b\n"
        "4:\n"
        : [at] "+&b"(first), [count] "+&r"(count), [next] "=&r"(next)
        : [end] "r"(end), [same] "r"(serve_nothing)
        : "memory", "cc");
    return count;
}

static void* walk_all(void* all) {
    struct node* each = all;
    return (void*)walk(each, &each[nodes]);
}

static void walks(void) {
    struct node* all = calloc(nodes + 1, sizeof *all);
    for (int i = 0; i < nodes; i++) all[i] = (struct node){.next = &all[i + 1], .flags = marked};
    pthread_t thread;
    void* count;
    CHECK(pthread_create(&thread, NULL, walk_all, all) == 0);
    CHECK(pthread_join(thread, &count) == 0);
    say("walked %ld", (long)count);
    free(all);
}

static void scenario(void) {
    walks();
    by_turns();
    pool();
    home_made_lock();
    in_children();
    what_comes_by_itself();
    nobody_to_wait_for();
    passed_and_then_waited_in();
}

int main(int argc, char** argv) {
    return serve(argc, argv, scenario);
}
