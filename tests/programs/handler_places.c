// Handlers that look at the place they interrupt, change it, or never come back to it: as collectors do that
// stop threads by a signal, runtimes that have something done before the thread goes on, and threads of a
// program's own that are switched in handlers.
#include <dlfcn.h>
#include <fenv.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/ucontext.h>
#include <ucontext.h>

#include "serve.h"

static void handle(int signal, void (*handler)(int, siginfo_t*, void*), int flags) {
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | flags};
    CHECK(sigaction(signal, &action, NULL) == 0);
}

// --- a collector: every thread waits in some call when it is stopped, and all that it uses is found

enum { stack_bytes = 256 * 1024 };
static const uint64_t treasure = 0x5afe5afe5afe5afe;
static uint8_t* low;
static sem_t stopped, asleep, never;
static _Atomic bool on_stack, in_code, has_numbers, found;

static bool among(const uint64_t* from, const uint64_t* to) {
    for (; from < to; ++from)
        if (*from == ~treasure) return true;
    return false;
}

static void stop_here(int signal, siginfo_t* info, void* given) {
    (void)signal, (void)info;
    const ucontext_t* place = given;
    const greg_t* registers = place->uc_mcontext.gregs;
    const uint8_t* top = (const uint8_t*)registers[REG_RSP];
    Dl_info about;
    on_stack = top > low && top < low + stack_bytes;
    in_code = dladdr((void*)registers[REG_RIP], &about) != 0 && about.dli_fname != NULL;
    has_numbers = place->uc_mcontext.fpregs != NULL && (place->uc_mcontext.fpregs->mxcsr & 0x1f80) == 0x1f80;
    found =
        on_stack && (among((const uint64_t*)registers, (const uint64_t*)registers + NGREG) ||
                     among((const uint64_t*)((uintptr_t)top & ~7ul), (const uint64_t*)(low + stack_bytes)));
    sem_post(&stopped);
}

// Has the treasure in a register alone, in a form that stands nowhere else, while `wait` runs.
__attribute__((noinline)) static void wait_with_it(void (*wait)(void)) {
    uint64_t kept = treasure;
    asm volatile(
        "movq %[kept], %%r12\n\tnotq %%r12\n\txorl %k[kept], %k[kept]\n\tcall *%[wait]\n\tnotq %%r12\n\tmovq "
        "%%r12, %[kept]"
        : [kept] "+&b"(kept)
        : [wait] "D"(wait)
        : "r12", "rax", "rcx", "rdx", "rsi", "r8", "r9", "r10", "r11", "xmm0", "xmm1", "memory", "cc");
    CHECK(kept == treasure);
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t nobody_signals = PTHREAD_COND_INITIALIZER;
static volatile bool over;
static int ends[2];

static void in_semaphore(void) {
    while (!over && sem_wait(&never) != 0) {
    }
}
static void in_condition(void) {
    pthread_mutex_lock(&lock);
    while (!over) pthread_cond_wait(&nobody_signals, &lock);
    pthread_mutex_unlock(&lock);
}
static void in_sleep(void) {
    while (!over) usleep(20000);
}
static void in_read(void) {
    char byte;
    while (!over && read(ends[0], &byte, 1) != 1) {
    }
}

static void* live(void* wait) {
    sem_post(&asleep);
    wait_with_it((void (*)(void))wait);
    return NULL;
}

static void collectors(void) {
    static const struct {
        const char* name;
        void (*wait)(void);
    } ways[] = {
        {"semaphore", in_semaphore}, {"condition", in_condition}, {"sleep", in_sleep}, {"read", in_read}};
    handle(SIGUSR2, stop_here, SA_RESTART);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; ++i) {
        over = false;
        CHECK(pipe(ends) == 0);
        CHECK((low = aligned_alloc(4096, stack_bytes)) != NULL);
        pthread_attr_t attributes;
        pthread_attr_init(&attributes);
        CHECK(pthread_attr_setstack(&attributes, low, stack_bytes) == 0);
        pthread_t thread;
        CHECK(pthread_create(&thread, &attributes, live, (void*)ways[i].wait) == 0);
        sem_wait(&asleep);
        usleep(10000);
        CHECK(pthread_kill(thread, SIGUSR2) == 0);
        sem_wait(&stopped);
        say("%s: stack %d, code %d, numbers %d, found %d", ways[i].name, on_stack, in_code, has_numbers,
            found);
        over = true;
        sem_post(&never);
        pthread_mutex_lock(&lock);
        pthread_cond_broadcast(&nobody_signals);
        pthread_mutex_unlock(&lock);
        CHECK(write(ends[1], "", 1) == 1);
        CHECK(pthread_join(thread, NULL) == 0);
        while (sem_trywait(&never) == 0) {
        }
        for (int end = 0; end < 2; ++end) close(ends[end]);
        free(low);
    }
}

// --- something is done before the thread goes on

static int detours;
void detour(void) {
    say("detour %d, the handler is over", ++detours);
}

// Comes by detour() and goes on behind the 128 bytes that a function may use below its stack.
void by_detour(void);
asm(".text\nby_detour:\n"
    "pushfq\npushq %rax\npushq %rcx\npushq %rdx\npushq %rsi\npushq %rdi\npushq %r8\npushq %r9\npushq "
    "%r10\npushq %r11\npushq %rbp\n"
    "movq %rsp, %rbp\nandq $-16, %rsp\ncall detour\nmovq %rbp, %rsp\n"
    "popq %rbp\npopq %r11\npopq %r10\npopq %r9\npopq %r8\npopq %rdi\npopq %rsi\npopq %rdx\npopq %rcx\npopq "
    "%rax\npopfq\n"
    "ret $128\n");

static void send_by_detour(int signal, siginfo_t* info, void* given) {
    (void)signal, (void)info;
    greg_t* registers = ((ucontext_t*)given)->uc_mcontext.gregs;
    registers[REG_RSP] -= 128 + 8;
    *(greg_t*)registers[REG_RSP] = registers[REG_RIP];
    registers[REG_RIP] = (greg_t)by_detour;
    say("handler");
}

static void changes(void) {
    handle(SIGUSR1, send_by_detour, 0);
    for (int i = 0; i < 3; ++i) say("raise %d", raise(SIGUSR1));
    pthread_kill(pthread_self(), SIGUSR1);
    char* text = NULL;
    say("then %d bytes", asprintf(&text, "%d detours", detours));
    free(text);
}

// --- how numbers are rounded

static int rounding_seen;
static void round_down(int signal, siginfo_t* info, void* given) {
    (void)signal, (void)info, (void)given;
    rounding_seen = fegetround();
    fesetround(FE_DOWNWARD);
}
static void round_there_to_zero(int signal, siginfo_t* info, void* given) {
    (void)signal, (void)info;
    ((ucontext_t*)given)->uc_mcontext.fpregs->mxcsr |= 0x6000;
}

static void numbers(void) {
    handle(SIGUSR1, round_down, 0);
    fesetround(FE_UPWARD);
    raise(SIGUSR1);
    say("in the handler to nearest %d, behind it upward %d", rounding_seen == FE_TONEAREST,
        fegetround() == FE_UPWARD);
    fesetround(FE_TONEAREST);
    handle(SIGUSR1, round_there_to_zero, 0);
    raise(SIGUSR1);
    unsigned mxcsr = __builtin_ia32_stmxcsr();
    say("by the handler to zero %d", (mxcsr & 0x6000) == 0x6000);
    fesetround(FE_TONEAREST);
}

// --- handlers that are left for good

static void* way_out[5];
static void leave(int signal, siginfo_t* info, void* given) {
    (void)signal, (void)info, (void)given;
    __builtin_longjmp(way_out, 1);
}

__attribute__((noinline)) static bool left_by_jump(int signal) {
    if (__builtin_setjmp(way_out) != 0) return true;
    raise(signal);
    return false;
}

static void leave_by_registers(int signal, siginfo_t* info, void* given) {
    (void)signal, (void)info;
    ucontext_t* place = given;
    extern void go_out(void);
    place->uc_mcontext.gregs[REG_RIP] = (greg_t)go_out;
    place->uc_mcontext.gregs[REG_RSP] = (place->uc_mcontext.gregs[REG_RSP] - 256) & -16l;
    place->uc_mcontext.gregs[REG_RSP] -= 8;
}
void go_out(void) {
    __builtin_longjmp(way_out, 1);
}

static void leaving(void) {
    static char stack[64 * 1024];
    stack_t given = {.ss_sp = stack, .ss_size = sizeof stack}, none = {.ss_flags = SS_DISABLE};
    CHECK(sigaltstack(&given, NULL) == 0);
    handle(SIGUSR1, leave, SA_NODEFER);
    handle(SIGUSR2, leave_by_registers, SA_ONSTACK);
    int jumps = 0, switches = 0;
    for (int i = 0; i < 500; ++i) jumps += left_by_jump(SIGUSR1);
    for (int i = 0; i < 500; ++i) switches += left_by_jump(SIGUSR2);
    sigset_t blocked;
    pthread_sigmask(SIG_BLOCK, NULL, &blocked);
    say("left %d times by a jump, %d times by registers, blocked %d %d", jumps, switches,
        sigismember(&blocked, SIGUSR1), sigismember(&blocked, SIGUSR2));
    CHECK(sigaltstack(&none, NULL) == 0);
}

// --- threads of the program's own, switched by a signal

enum { threads = 3, rounds = 4 };
static greg_t saved[threads + 1][NGREG];
static int current = threads, next, steps;

static void switch_to(int signal, siginfo_t* info, void* given) {
    (void)signal, (void)info;
    greg_t* registers = ((ucontext_t*)given)->uc_mcontext.gregs;
    memcpy(saved[current], registers, sizeof saved[current]);
    memcpy(registers, saved[next], sizeof saved[next]);
    current = next;
}
static void yield_to(int which) {
    next = which;
    raise(SIGUSR1);
}
static void work(void) {
    const int self = current;
    for (int i = 0; i < rounds; ++i) {
        char text[32];
        snprintf(text, sizeof text, "%d.%d", self, i);
        say("thread %s, step %d", text, ++steps);
        yield_to((self + 1) % threads);
    }
    yield_to(threads);
    abort();
}

static void switches(void) {
    char* stacks[threads];
    ucontext_t first;
    handle(SIGUSR1, switch_to, 0);
    for (int i = 0; i < threads; ++i) {
        CHECK((stacks[i] = aligned_alloc(4096, stack_bytes)) != NULL);
        CHECK(getcontext(&first) == 0);
        memcpy(saved[i], first.uc_mcontext.gregs, sizeof saved[i]);
        saved[i][REG_RIP] = (greg_t)work;
        saved[i][REG_RSP] = (greg_t)(stacks[i] + stack_bytes - 64 - 8);
        saved[i][REG_EFL] = 0x202;
        saved[i][REG_CSGSFS] = 0x33 | 0x2bl << 48;
    }
    yield_to(0);
    say("back after %d steps", steps);
    for (int i = 0; i < threads; ++i) free(stacks[i]);
}

static void scenario(void) {
    detours = 0;
    steps = 0;
    current = threads;
    sem_init(&stopped, 0, 0);
    sem_init(&asleep, 0, 0);
    sem_init(&never, 0, 0);
    collectors();
    changes();
    numbers();
    leaving();
    switches();
}

int main(int argc, char** argv) {
    return serve(argc, argv, scenario);
}
