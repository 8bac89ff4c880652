// Signals as POSIX has them: what is known of each, queues, alternate stacks, masks over jumps, stops, what may run
// in a handler, and the older calls.
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdbool.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "serve.h"

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"  // the older calls are meant

static volatile sig_atomic_t told[64];
static volatile int told_count;

static void note(int signal, siginfo_t* info, void* context) {
    (void)context;
    if (told_count < 64) told[told_count++] = signal == SIGCHLD ? info->si_code : info->si_value.sival_int;
}

static void handle(int signal, int flags) {
    struct sigaction action = {.sa_sigaction = note, .sa_flags = SA_SIGINFO | flags};
    CHECK(sigaction(signal, &action, NULL) == 0);
}

static void leave(int signal) { CHECK(sigaction(signal, &(struct sigaction){.sa_handler = SIG_DFL}, NULL) == 0); }

static void say_told(const char* what) {
    char line[256] = "";
    for (int i = 0; i < told_count; ++i) snprintf(line + strlen(line), sizeof line - strlen(line), " %d", (int)told[i]);
    say("%s:%s", what, line);
    told_count = 0;
}

static sigset_t only(int signal) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, signal);
    return set;
}

// Real-time signals come each, in their order; of another one only the first.
static void queues(void) {
    const sigset_t realtime = only(SIGRTMIN + 1), plain = only(SIGUSR1);
    handle(SIGRTMIN + 1, 0);
    handle(SIGUSR1, 0);
    sigprocmask(SIG_BLOCK, &realtime, NULL);
    sigprocmask(SIG_BLOCK, &plain, NULL);
    for (int i = 1; i <= 4; ++i) {
        CHECK(sigqueue(getpid(), SIGRTMIN + 1, (union sigval){.sival_int = i}) == 0);
        CHECK(sigqueue(getpid(), SIGUSR1, (union sigval){.sival_int = 10 * i}) == 0);
    }
    siginfo_t info;
    CHECK(sigwaitinfo(&realtime, &info) == SIGRTMIN + 1);
    say("first %d, code %d, mine %d", info.si_value.sival_int, info.si_code, info.si_pid == getpid());
    const int fd = signalfd(-1, &realtime, SFD_NONBLOCK);
    struct signalfd_siginfo shown;
    CHECK(read(fd, &shown, sizeof shown) == sizeof shown);
    say("second %d, code %d", shown.ssi_int, shown.ssi_code);
    close(fd);
    sigprocmask(SIG_UNBLOCK, &realtime, NULL);
    say_told("queued");
    sigprocmask(SIG_UNBLOCK, &plain, NULL);
    say_told("not queued");
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    sigprocmask(SIG_BLOCK, &plain, NULL);
    raise(SIGUSR1);
    sigaction(SIGUSR1, &ignore, NULL);
    sigset_t pending;
    sigpending(&pending);
    say("ignored, pending %d", sigismember(&pending, SIGUSR1));
    sigprocmask(SIG_UNBLOCK, &plain, NULL);
}

static char* stack_low;
static int on_stack;
static void where(int signal) {
    (void)signal;
    char here;
    on_stack = &here >= stack_low && &here < stack_low + SIGSTKSZ;
}

static void stacks(void) {
    stack_low = malloc(SIGSTKSZ);
    CHECK(sigaltstack(&(stack_t){.ss_sp = stack_low, .ss_size = SIGSTKSZ}, NULL) == 0);
    for (int i = 0; i < 2; ++i) {
        struct sigaction action = {.sa_handler = where, .sa_flags = i ? SA_ONSTACK : 0};
        sigaction(SIGUSR2, &action, NULL);
        raise(SIGUSR2);
        say("SA_ONSTACK %d: %d", i, on_stack);
        sigaction(SIGSEGV, &action, NULL);
        raise(SIGSEGV);
        say("SIGSEGV %d: %d", i, on_stack);
    }
    leave(SIGSEGV);
    CHECK(sigaltstack(&(stack_t){.ss_flags = SS_DISABLE}, NULL) == 0);
    free(stack_low);
    struct sigaction once = {.sa_sigaction = note, .sa_flags = (int)(SA_RESETHAND | SA_SIGINFO)}, now;
    sigaction(SIGUSR2, &once, NULL);
    raise(SIGUSR2);
    sigaction(SIGUSR2, NULL, &now);
    say("SA_RESETHAND: %d", now.sa_handler == SIG_DFL);
    told_count = 0;
}

static sigjmp_buf out;
static volatile int* volatile nowhere;
static void jump(int signal) { siglongjmp(out, signal); }

static int blocked(int signal) {
    sigset_t now;
    pthread_sigmask(SIG_BLOCK, NULL, &now);
    return sigismember(&now, signal);
}

static void jumps(void) {
    signal(SIGUSR2, jump);
    signal(SIGSEGV, jump);
    static volatile int round;
    for (round = 0; round < 3; ++round) {
        const int from = sigsetjmp(out, 1);
        if (from == 0) {
            if (round == 1) *nowhere = 1;
            raise(SIGUSR2);
        }
        say("out of %d, blocked %d %d", from, blocked(SIGUSR2), blocked(SIGSEGV));
    }
    leave(SIGSEGV);
    leave(SIGUSR2);
}

// A fault that its handler does not mend, but jumps out of, may come again; its mask is the program's.
static int seen_mask;
static void fault(int signal, siginfo_t* info, void* context) {
    (void)signal;
    (void)info;
    seen_mask = blocked(SIGSEGV) + 2 * blocked(SIGHUP) + 4 * sigismember(&((ucontext_t*)context)->uc_sigmask, SIGHUP);
    siglongjmp(out, 1);
}

static void faults(void) {
    struct sigaction action = {.sa_sigaction = fault, .sa_flags = SA_SIGINFO};
    sigaddset(&action.sa_mask, SIGHUP);
    sigaction(SIGSEGV, &action, NULL);
    static volatile int i;
    for (i = 0; i < 2; ++i) {
        if (sigsetjmp(out, 1) == 0) *nowhere = 1;
        say("in the handler %d, behind it %d", seen_mask, blocked(SIGSEGV) + blocked(SIGHUP));
    }
    leave(SIGSEGV);
}

static const char* state_of(int status) {
    static char text[40];
    if (WIFSTOPPED(status)) snprintf(text, sizeof text, "stopped by %d", WSTOPSIG(status));
    if (WIFCONTINUED(status)) snprintf(text, sizeof text, "continued");
    if (WIFEXITED(status)) snprintf(text, sizeof text, "exited %d", WEXITSTATUS(status));
    if (WIFSIGNALED(status)) snprintf(text, sizeof text, "killed by %d", WTERMSIG(status));
    return text;
}

// Until so many signals were told of: each is let in before the next can be sent, for two that wait become one.
static void let_in(const sigset_t* mask, int count) {
    while (told_count < count) sigsuspend(mask);
}

static void be_stopped(int go_on) {
    char byte = 0;
    raise(SIGTSTP);  // stops nobody: no shell in this session could make it go on
    for (int i = 0; i < 2; ++i) {
        raise(SIGSTOP);
        if (read(go_on, &byte, 1) != 1) _exit(99);
    }
    _exit(byte);
}

static void stops(void) {
    const sigset_t chld = only(SIGCHLD);
    sigset_t mask;
    handle(SIGCHLD, SA_RESTART);
    sigprocmask(SIG_BLOCK, &chld, &mask);
    int hold[2], status = 0;
    CHECK(pipe(hold) == 0);
    const pid_t child = fork();
    if (child == 0) {
        close(hold[1]);
        be_stopped(hold[0]);
    }
    close(hold[0]);
    for (int i = 0; i < 2; ++i) {
        CHECK(waitpid(child, &status, WUNTRACED) == child);
        say("child %s", state_of(status));
        say("and still: %d", (int)waitpid(child, &status, WNOHANG));
        let_in(&mask, 2 * i + 1);
        kill(child, SIGCONT);
        CHECK(waitpid(child, &status, WCONTINUED) == child);
        say("child %s", state_of(status));
        let_in(&mask, 2 * i + 2);
        CHECK(write(hold[1], i == 0 ? "\1" : "\7", 1) == 1);
    }
    siginfo_t info = {0};
    CHECK(waitid(P_PID, child, &info, WEXITED | WNOWAIT) == 0);
    say("waitid code %d, status %d", info.si_code, info.si_status);
    say("no state %s", outcome(waitid(P_PID, child, &info, WNOHANG)));
    CHECK(waitpid(child, &status, 0) == child);
    say("child %s", state_of(status));
    close(hold[1]);
    let_in(&mask, 5);
    say_told("SIGCHLD");
    sigprocmask(SIG_SETMASK, &mask, NULL);
    leave(SIGCHLD);
}

static void older(void) {
    say("sigset %d", sigset(SIGUSR1, SIG_HOLD) == SIG_IGN);
    say("held %d", blocked(SIGUSR1));
    sighold(SIGUSR2);
    say("sighold %d", blocked(SIGUSR2));
    sigrelse(SIGUSR2);
    say("sigrelse %d", blocked(SIGUSR2));
    const int was_held = sigset(SIGUSR1, SIG_DFL) == SIG_HOLD;
    say("sigset again %d, blocked %d", was_held, blocked(SIGUSR1));
    say("sigignore %s", outcome(sigignore(SIGUSR1)));
    say("bad %s", outcome(sighold(0)));
    leave(SIGUSR1);
}

// Handlers run in waits that no signal ends.
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t barrier;
static sem_t handled;
static void post(int signal) {
    (void)signal;
    sem_post(&handled);
}
static void* wait_for_mutex(void* nothing) {
    pthread_mutex_lock(&mutex);
    pthread_mutex_unlock(&mutex);
    return nothing;
}
static void* wait_at_barrier(void* nothing) {
    pthread_barrier_wait(&barrier);
    return nothing;
}

static void waits(void) {
    pthread_t waiting;
    signal(SIGUSR1, post);
    sem_init(&handled, 0, 0);
    pthread_barrier_init(&barrier, NULL, 2);
    pthread_mutex_lock(&mutex);
    pthread_create(&waiting, NULL, wait_for_mutex, NULL);
    sched_yield();
    say("to who waits for a mutex %s", code(pthread_kill(waiting, SIGUSR1)));
    sem_wait(&handled);
    pthread_mutex_unlock(&mutex);
    pthread_join(waiting, NULL);
    pthread_create(&waiting, NULL, wait_at_barrier, NULL);
    sched_yield();
    say("to who waits at a barrier %s", code(pthread_kill(waiting, SIGUSR1)));
    sem_wait(&handled);
    pthread_barrier_wait(&barrier);
    pthread_join(waiting, NULL);
    leave(SIGUSR1);
}

// A handler that ends its thread, in a call that says of itself that it throws nothing.
static void end_here(int signal) { pthread_exit((void*)(long)signal); }
static void* end_by_signal(void* nothing) {
    raise(SIGUSR2);
    return nothing;
}
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int tries;
static void try_once(void) {
    if (++tries == 1) pthread_exit(NULL);
}
static void* begin_once(void* nothing) {
    pthread_once(&once, try_once);
    return nothing;
}

static void ends(void) {
    pthread_t thread;
    void* result;
    signal(SIGUSR2, end_here);
    pthread_create(&thread, NULL, end_by_signal, NULL);
    pthread_join(thread, &result);
    say("ended by %ld", (long)result);
    pthread_create(&thread, NULL, begin_once, NULL);
    pthread_join(thread, NULL);
    pthread_once(&once, try_once);
    say("pthread_once after an end within: %d tries", tries);
    leave(SIGUSR2);
}

// A loop of calls that need no turn, until another thread has been there.
static volatile int go_on;
static void* stop_loop(void* nothing) {
    go_on = 0;
    return nothing;
}
static void loops(void) {
    pthread_t thread;
    go_on = 1;
    pthread_create(&thread, NULL, stop_loop, NULL);
    while (go_on) pthread_testcancel();
    pthread_join(thread, NULL);
    go_on = 1;
    pthread_create(&thread, NULL, stop_loop, NULL);
    while (go_on) pthread_sigmask(SIG_BLOCK, NULL, NULL);
    pthread_join(thread, NULL);
    for (int command = 0; command < 2; ++command) {
        go_on = 1;
        pthread_create(&thread, NULL, stop_loop, NULL);
        while (go_on) fcntl(0, command == 0 ? F_GETFD : F_SETLEASE, F_WRLCK);
        pthread_join(thread, NULL);
    }
    say("loops end");
}

// A process is named by each of its threads.
static volatile int thread_id;
static void* wait_for_end(void* lock) {
    thread_id = (int)syscall(SYS_gettid);
    pthread_mutex_lock(lock);
    return NULL;
}
static void by_thread(void) {
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_t thread;
    pthread_mutex_lock(&lock);
    thread_id = 0;
    handle(SIGUSR1, 0);
    CHECK(pthread_create(&thread, NULL, wait_for_end, &lock) == 0);
    while (!thread_id) usleep(1000);
    say("kill a thread's number %s", outcome(kill(thread_id, SIGUSR1)));
    while (!told_count) usleep(1000);
    say_told("told");
    pthread_mutex_unlock(&lock);
    pthread_join(thread, NULL);
    leave(SIGUSR1);
}

// A thread that begins with signals blocked, whatever its maker blocks.
static void* told_late(void* nothing) {
    say("blocked at first %d %d", blocked(SIGUSR1), blocked(SIGUSR2));
    raise(SIGUSR1);
    say_told("not yet");
    pthread_sigmask(SIG_SETMASK, &(sigset_t){0}, NULL);
    say_told("told");
    return nothing;
}
static void blocked_from_the_start(void) {
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t all;
    sigfillset(&all);
    sigdelset(&all, SIGUSR2);
    handle(SIGUSR1, 0);
    CHECK(pthread_attr_init(&attributes) == 0 && pthread_attr_setsigmask_np(&attributes, &all) == 0);
    for (int i = 0; i < 2; ++i) {
        CHECK(pthread_create(&thread, &attributes, told_late, NULL) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
    }
    pthread_attr_destroy(&attributes);
    leave(SIGUSR1);
}

// The same by the kernel's numbers.
static void by_number(void) {
    handle(SIGRTMIN + 2, 0);
    siginfo_t info = {.si_signo = SIGRTMIN + 2, .si_code = SI_QUEUE, .si_value.sival_int = 77};
    say("rt_sigqueueinfo %s", outcome(syscall(SYS_rt_sigqueueinfo, getpid(), SIGRTMIN + 2, &info)));
    say_told("told");
    info.si_value.sival_int = 78;
    say("rt_tgsigqueueinfo %s",
        outcome(syscall(SYS_rt_tgsigqueueinfo, getpid(), syscall(SYS_gettid), SIGRTMIN + 2, &info)));
    say_told("told");
    say("to a group %s", outcome(syscall(SYS_rt_sigqueueinfo, 0, SIGRTMIN + 2, &info)));
    say("sigqueue to a group %s", outcome(sigqueue(-getpid(), SIGRTMIN + 2, (union sigval){0})));
    info.si_code = SI_USER;
    say("of another's name %s", outcome(syscall(SYS_rt_sigqueueinfo, getppid(), SIGRTMIN + 2, &info)));
    unsigned long set = 1UL << (SIGUSR1 - 1), old = 0;
    say("rt_sigprocmask %s", outcome(syscall(SYS_rt_sigprocmask, SIG_BLOCK, &set, &old, 8L)));
    say("blocked %d", blocked(SIGUSR1));
    say("tgkill %s", outcome(syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), SIGUSR1)));
    struct timespec none = {0};
    say("rt_sigtimedwait %d", (int)syscall(SYS_rt_sigtimedwait, &set, NULL, &none, 8L) == SIGUSR1);
    say("rt_sigprocmask %s", outcome(syscall(SYS_rt_sigprocmask, SIG_UNBLOCK, &set, NULL, 8L)));
    say("no such signal %s", outcome(syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), 65)));
    say("no such thread %s", outcome(syscall(SYS_tgkill, getpid(), 1 << 22, 0)));
    leave(SIGRTMIN + 2);
}

static void scenario(void) {
    queues();
    stacks();
    jumps();
    faults();
    stops();
    older();
    waits();
    ends();
    loops();
    by_thread();
    blocked_from_the_start();
    by_number();
}

int main(int argc, char** argv) { return serve(argc, argv, scenario); }
