// Whom a signal is for, and what it cuts short: of a process's threads the one that it wakes, no call by what is
// ignored, every call on a socket with a timeout, no futex's wait over SA_RESTART, no stopped process by its end.
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "serve.h"

static volatile sig_atomic_t handled, handler_tid;
static int main_tid;

static void note(int signal) {
    handled = signal;
    handler_tid = gettid();
}

static void handle(int signal, int flags) {
    CHECK(sigaction(signal, &(struct sigaction){.sa_handler = note, .sa_flags = flags}, NULL) == 0);
}

static sigset_t only(int signal) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, signal);
    return set;
}

static void pause_ms(int ms) {
    struct timespec left = {ms / 1000, ms % 1000 * 1000000L};
    while (nanosleep(&left, &left) != 0) continue;
}

// --- of several threads

static int ends[2];
static pthread_t main_thread;
static volatile sig_atomic_t handled_in_time;

/// It could take the signal itself, and does much before the one who sleeps comes to run.
static void* signal_process(void* with_data) {
    pause_ms(50);
    CHECK(kill(getpid(), SIGUSR1) == 0);
    pause_ms(50);
    handled_in_time = handled == SIGUSR1 && handler_tid == main_tid;
    if (with_data)
        CHECK(write(ends[1], "x", 1) == 1);
    else if (!handled_in_time)
        CHECK(pthread_kill(main_thread, SIGUSR2) == 0);  // or it would sleep for ever
    return NULL;
}

static void cut_short(const char* what, int flags, long (*call)(void)) {
    pthread_t thread;
    handle(SIGUSR1, flags);
    handle(SIGUSR2, 0);
    handled = handler_tid = handled_in_time = 0;
    CHECK(pthread_create(&thread, NULL, signal_process, flags ? "" : NULL) == 0);
    const long rc = call();
    const int error = errno;
    CHECK(pthread_join(thread, NULL) == 0);
    errno = error;
    say("%s%s: %s, by the main thread %d", what, flags ? " with SA_RESTART" : "", outcome(rc), handled_in_time);
}

static int listener;
static pid_t child;
static sem_t never;

static long by_pause(void) { return pause(); }
static long by_suspend(void) {
    const sigset_t set = only(SIGWINCH);
    return sigsuspend(&set);
}
static long by_accept(void) { return accept(listener, NULL, NULL); }
static long by_recv(void) {
    char byte;
    return recv(ends[0], &byte, 1, 0);
}
static long by_read(void) {
    char byte;
    return read(ends[0], &byte, 1);
}
static long by_wait(void) { return waitpid(child, NULL, 0); }
static long by_sem(void) { return sem_wait(&never); }
static long by_poll(void) { return poll(NULL, 0, -1); }
static long by_sigwaitinfo(void) {
    const sigset_t set = only(SIGWINCH);
    return sigwaitinfo(&set, NULL);
}
static long by_sleep(void) { return nanosleep(&(struct timespec){60, 0}, NULL); }

static int any_listener(void) {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(fd >= 0 && listen(fd, 4) == 0);
    return fd;
}

static void threads(void) {
    main_tid = gettid();
    main_thread = pthread_self();
    listener = any_listener();
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0 && sem_init(&never, 0, 0) == 0);
    child = fork();
    if (child == 0) {
        signal(SIGUSR1, SIG_DFL);
        for (;;) pause();
    }
    cut_short("pause", 0, by_pause);
    cut_short("sigsuspend", 0, by_suspend);
    cut_short("accept", 0, by_accept);
    cut_short("recv", 0, by_recv);
    cut_short("waitpid", 0, by_wait);
    cut_short("sem_wait", 0, by_sem);
    cut_short("poll", 0, by_poll);
    cut_short("sigwaitinfo", 0, by_sigwaitinfo);
    cut_short("nanosleep", 0, by_sleep);
    cut_short("recv", SA_RESTART, by_recv);
    close(ends[0]), close(ends[1]);
    CHECK(pipe(ends) == 0);
    cut_short("read", 0, by_read);
    cut_short("read", SA_RESTART, by_read);
    close(ends[0]), close(ends[1]), close(listener);
    CHECK(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child && sem_destroy(&never) == 0);
}

/// One that has the signal blocked before it comes to take it leaves it to the other.
static sem_t may_block, blocked;
static void* block_later(void* unused) {
    const sigset_t set = only(SIGUSR1);
    while (sem_wait(&may_block) != 0) continue;
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    sem_post(&blocked);
    return unused;
}

static void* await_one(void* unused) {
    const sigset_t set = only(SIGRTMIN);
    int got;
    (void)unused;
    do got = sigtimedwait(&set, NULL, &(struct timespec){3, 0});
    while (got == -1 && errno == EINTR);  // Linux may have woken it in vain
    return (void*)(intptr_t)got;
}

static void many_wait(void) {
    pthread_t waiting[3];
    const sigset_t set = only(SIGRTMIN);
    int got = 0;
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    for (int i = 0; i < 3; i++) CHECK(pthread_create(&waiting[i], NULL, await_one, NULL) == 0);
    pause_ms(50);
    for (int i = 0; i < 3; i++) CHECK(sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = i}) == 0);
    for (int i = 0; i < 3; i++) {
        void* result;
        CHECK(pthread_join(waiting[i], &result) == 0);
        got += (intptr_t)result == SIGRTMIN;
    }
    say("three wait for three: %d", got);
    signal(SIGRTMIN, SIG_IGN);  // what is left
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    signal(SIGRTMIN, SIG_DFL);
}

/// Ends or blocks what it was chosen for: another one that sleeps is woken instead.
static void* sleep_unblocked(void* unused) {
    const sigset_t set = only(SIGUSR1);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    const struct timespec begin = now_plus_ms(CLOCK_MONOTONIC, 0);
    usleep(3000000);
    handled_in_time = ms_since(begin, CLOCK_MONOTONIC) < 2500 && handler_tid == gettid();
    return unused;
}

static void hear_and_signal(int signal) {
    note(signal);
    kill(getpid(), SIGUSR1);  // blocked here for as long as this runs
    pause_ms(100);
}

static void passed_on(void) {
    pthread_t thread;
    struct sigaction action = {.sa_handler = hear_and_signal};
    sigaddset(&action.sa_mask, SIGUSR1);
    sigaction(SIGUSR2, &action, NULL);
    handle(SIGUSR1, 0);
    handled_in_time = 0;
    CHECK(sem_init(&may_block, 0, 0) == 0 && sem_init(&blocked, 0, 0) == 0);
    CHECK(pthread_create(&thread, NULL, sleep_unblocked, NULL) == 0);
    pause_ms(50);
    raise(SIGUSR2);
    CHECK(pthread_join(thread, NULL) == 0);
    say("while the main thread's handler blocks it: the other %d", handled_in_time);
    pthread_t early;
    const sigset_t set = only(SIGUSR1);
    CHECK(pthread_create(&early, NULL, block_later, NULL) == 0);
    handled = handled_in_time = 0;
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    sem_post(&may_block);
    while (sem_wait(&blocked) != 0) continue;
    CHECK(pthread_join(early, NULL) == 0);
    CHECK(pthread_create(&thread, NULL, sleep_unblocked, NULL) == 0);
    pause_ms(50);
    CHECK(kill(getpid(), SIGUSR1) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    say("while the main thread blocks it: the other %d", handled_in_time);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    CHECK(sem_destroy(&may_block) == 0 && sem_destroy(&blocked) == 0);
}

// --- what is ignored

static void* alarm_later(void* unused) {
    pause_ms(100);
    CHECK(pthread_kill(main_thread, SIGUSR2) == 0);
    return unused;
}

static long masked_poll(const sigset_t* mask) { return ppoll(NULL, 0, NULL, mask); }
static long masked_select(const sigset_t* mask) { return pselect(0, NULL, NULL, NULL, NULL, mask); }
static long masked_suspend(const sigset_t* mask) { return sigsuspend(mask); }

static void sleeps_on(const char* what, int ignored, long (*call)(const sigset_t*)) {
    pthread_t thread;
    sigset_t before, pending, all;
    sigfillset(&all);
    handle(SIGUSR2, 0);
    handled = 0;
    pthread_sigmask(SIG_BLOCK, &all, &before);
    CHECK(kill(getpid(), ignored) == 0);
    CHECK(pthread_create(&thread, NULL, alarm_later, NULL) == 0);
    sigset_t mask = before;
    sigdelset(&mask, ignored);
    const long rc = call(&mask);
    const int by_handler = handled == SIGUSR2, error = errno;
    sigpending(&pending);
    CHECK(pthread_join(thread, NULL) == 0);
    errno = error;
    say("%s, signal %d ignored: %s, by the handler %d, pending %d", what, ignored, outcome(rc), by_handler,
        sigismember(&pending, ignored));
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void ignored(void) {
    signal(SIGUSR1, SIG_IGN);
    for (int i = 0; i < 2; i++) {
        const int signal = i ? SIGCHLD : SIGUSR1;
        sleeps_on("sigsuspend", signal, masked_suspend);
        sleeps_on("ppoll", signal, masked_poll);
        sleeps_on("pselect", signal, masked_select);
        }
}

// --- sockets with timeouts

static volatile sig_atomic_t returned, late;

static void* hear_later(void* unused) {
    pause_ms(100);
    CHECK(pthread_kill(main_thread, SIGUSR1) == 0);
    for (int i = 0; i < 50 && !returned; i++) pause_ms(50);
    if (returned) return unused;
    late = 1;  // or it would wait for ever
    handle(SIGUSR1, 0);
    CHECK(pthread_kill(main_thread, SIGUSR1) == 0);
    return unused;
}

static void never_restarted(const char* what, long (*call)(void)) {
    pthread_t thread;
    handle(SIGUSR1, SA_RESTART);
    returned = late = 0;
    CHECK(pthread_create(&thread, NULL, hear_later, NULL) == 0);
    const long rc = call();
    const int error = errno;
    returned = 1;
    CHECK(pthread_join(thread, NULL) == 0);
    errno = error;
    say("%s with a timeout: %s, late %d", what, outcome(rc), late);
}

static void limit(int fd, int option, int ms) {
    const struct timeval time = {ms / 1000, ms % 1000 * 1000};
    CHECK(setsockopt(fd, SOL_SOCKET, option, &time, sizeof time) == 0);
}

static char much[1 << 16];
static struct sockaddr_un name;
static socklen_t name_length;

static void fill(int fd) {
    while (send(fd, much, sizeof much, MSG_DONTWAIT) > 0) continue;
}
static long by_send(void) { return send(ends[0], much, sizeof much, 0); }
static long by_write(void) { return write(ends[0], much, sizeof much); }

static int to_listener(int more_flags) {
    const int fd = socket(AF_UNIX, SOCK_STREAM | more_flags, 0);
    CHECK(fd >= 0);
    limit(fd, SO_SNDTIMEO, 2000);
    return fd;
}
static long connect_one(int fd) {
    const long rc = connect(fd, (struct sockaddr*)&name, name_length);
    const int error = errno;
    close(fd);
    errno = error;
    return rc;
}
static long by_connect(void) { return connect_one(to_listener(0)); }

static void with_timeouts(void) {
    listener = any_listener();
    limit(listener, SO_RCVTIMEO, 2000);
    never_restarted("accept", by_accept);
    struct sockaddr_in address;
    socklen_t length = sizeof address;
    CHECK(getsockname(listener, (struct sockaddr*)&address, &length) == 0);
    ends[0] = socket(AF_INET, SOCK_STREAM, 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(connect(ends[0], (struct sockaddr*)&address, sizeof address) == 0);
    limit(ends[0], SO_RCVTIMEO, 2000), limit(ends[0], SO_SNDTIMEO, 2000);
    never_restarted("recv", by_recv);
    never_restarted("read", by_read);
    fill(ends[0]);
    never_restarted("send", by_send);
    close(ends[0]), close(listener);
    ends[0] = socket(AF_INET, SOCK_DGRAM, 0);
    address.sin_port = 0;
    CHECK(bind(ends[0], (struct sockaddr*)&address, sizeof address) == 0);
    limit(ends[0], SO_RCVTIMEO, 2000);
    never_restarted("recv of a datagram", by_recv);
    close(ends[0]);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    limit(ends[0], SO_RCVTIMEO, 2000), limit(ends[0], SO_SNDTIMEO, 2000);
    never_restarted("unix recv", by_recv);
    never_restarted("unix read", by_read);
    fill(ends[0]);
    never_restarted("unix send", by_send);
    never_restarted("unix write", by_write);
    close(ends[0]), close(ends[1]);
    name.sun_family = AF_UNIX;
    memcpy(name.sun_path, "\0signal-targets", 15);
    name_length = offsetof(struct sockaddr_un, sun_path) + 15;
    listener = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(bind(listener, (struct sockaddr*)&name, name_length) == 0 && listen(listener, 0) == 0);
    limit(listener, SO_RCVTIMEO, 2000);
    never_restarted("unix accept", by_accept);
    const int first = to_listener(0);
    CHECK(connect(first, (struct sockaddr*)&name, name_length) == 0);
    never_restarted("unix connect", by_connect);
    const int hurried = to_listener(0);
    limit(hurried, SO_SNDTIMEO, 50);
    pthread_t thread;
    returned = 0;
    CHECK(pthread_create(&thread, NULL, hear_later, NULL) == 0);
    const long rc = connect_one(hurried);
    const int error = errno;
    returned = 1;
    CHECK(pthread_join(thread, NULL) == 0);
    errno = error;
    say("unix connect for too long: %s", outcome(rc));
    close(first), close(listener);
}

// --- futexes

static uint32_t* word;

static long futex(int operation, uint32_t value, const struct timespec* timeout) {
    return syscall(SYS_futex, word, operation, value, timeout, NULL, FUTEX_BITSET_MATCH_ANY);
}

static void* hear_and_wake(void* last) {
    pause_ms(50);
    CHECK(pthread_kill(main_thread, SIGUSR1) == 0);
    pause_ms(50);
    if (last) __atomic_store_n(word, 1, __ATOMIC_SEQ_CST);
    futex(FUTEX_WAKE_PRIVATE, 1, NULL);
    return NULL;
}

static void set_word(int signal) {
    note(signal);
    __atomic_store_n(word, 2, __ATOMIC_SEQ_CST);
}

static void wait_over_handler(const char* what, int operation, int flags, void (*handler)(int),
                              const struct timespec* timeout) {
    pthread_t thread;
    sigaction(SIGUSR1, &(struct sigaction){.sa_handler = handler, .sa_flags = flags}, NULL);
    *word = 0;
    CHECK(pthread_create(&thread, NULL, hear_and_wake, NULL) == 0);
    const long rc = futex(operation, 0, timeout);
    const int error = errno;
    CHECK(pthread_join(thread, NULL) == 0);
    errno = error;
    say("futex, %s: %s", what, outcome(rc));
}

static void* wait_for_word(void* unused) {
    while (__atomic_load_n(word, __ATOMIC_SEQ_CST) == 0) futex(FUTEX_WAIT, 0, NULL);
    return unused;
}

static void futexes(void) {
    uint32_t here = 0;
    word = &here;
    const struct timespec long_time = {5, 0};
    wait_over_handler("SA_RESTART", FUTEX_WAIT_PRIVATE, SA_RESTART, note, NULL);
    wait_over_handler("by bits, SA_RESTART", FUTEX_WAIT_BITSET_PRIVATE, SA_RESTART, note, NULL);
    wait_over_handler("changed by the handler", FUTEX_WAIT_PRIVATE, SA_RESTART, set_word, NULL);
    wait_over_handler("interrupted", FUTEX_WAIT_PRIVATE, 0, note, NULL);
    wait_over_handler("timeout, SA_RESTART", FUTEX_WAIT_PRIVATE, SA_RESTART, note, &long_time);
    pthread_t waiting[4];
    *word = 0;
    for (int i = 0; i < 4; i++) CHECK(pthread_create(&waiting[i], NULL, wait_for_word, NULL) == 0);
    pause_ms(50);
    say("woken, most 0: %s", outcome(futex(FUTEX_WAKE, 0, NULL)));
    pause_ms(50);
    say("woken, most 1: %s", outcome(futex(FUTEX_WAKE, 1, NULL)));
    pause_ms(50);
    say("woken, most 2, by bits: %s", outcome(futex(FUTEX_WAKE_BITSET, 2, NULL)));
    pause_ms(50);
    uint32_t other = 0;
    say("woken 1 and moved 1: %s", outcome(syscall(SYS_futex, word, FUTEX_REQUEUE, 1, 1, &other, 0)));
    *word = 1;
    futex(FUTEX_WAKE, INT_MAX, NULL);
    syscall(SYS_futex, &other, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    for (int i = 0; i < 4; i++) CHECK(pthread_join(waiting[i], NULL) == 0);
}

// --- a stopped process

static void* wait_too(void* unused) {
    for (;;) pause();
    return unused;
}

static void stopped_then(const char* what, int by_task, int threads, int number) {
    int status;
    const pid_t stopped = fork();
    if (stopped == 0) {
        pthread_t thread;
        signal(SIGUSR1, SIG_DFL);
        for (int i = 0; i < threads; i++) CHECK(pthread_create(&thread, NULL, wait_too, NULL) == 0);
        for (;;) pause();
    }
    pause_ms(50);
    CHECK(kill(stopped, SIGSTOP) == 0 && waitpid(stopped, &status, WUNTRACED) == stopped && WIFSTOPPED(status));
    CHECK((by_task ? tgkill(stopped, stopped, number) : kill(stopped, number)) == 0);
    pause_ms(100);
    const pid_t ended = waitpid(stopped, &status, WNOHANG);
    say("%s to a stopped process: ended %d", what, ended == stopped);
    if (ended == stopped) return;
    CHECK(kill(stopped, SIGCONT) == 0 && waitpid(stopped, &status, 0) == stopped);
    say("and when it may go on: signal %d", WIFSIGNALED(status) ? WTERMSIG(status) : 0);
}

static void stopped(void) {
    stopped_then("SIGTERM", 0, 0, SIGTERM);
    stopped_then("SIGTERM, threads", 0, 2, SIGTERM);
    stopped_then("SIGUSR1 by tgkill", 1, 0, SIGUSR1);
    stopped_then("SIGKILL", 0, 0, SIGKILL);
}

static void scenario(void) {
    threads();
    many_wait();
    passed_on();
    ignored();
    with_timeouts();
    futexes();
    stopped();
    signal(SIGUSR1, SIG_DFL), signal(SIGUSR2, SIG_DFL);
}

int main(int argc, char** argv) {
    return serve(argc, argv, scenario);
}
