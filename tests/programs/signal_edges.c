// Signals at their edges: actions and timers set from the object that the old one goes to, abort() with its
// signal blocked, functions that timers call, waits that go on after a handler or end with the thread.
#include <fcntl.h>
#include <mqueue.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/epoll.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>

#include "serve.h"

/// The compiler knows that they should be two.
static struct sigaction both = {.sa_handler = SIG_IGN};
static struct itimerspec set;
static struct sigaction* volatile old_action = &both;
static struct itimerspec* volatile old_time = &set;

static void hear(int signal) {
    (void)signal;
}

// --- old and new in one object

static void swapped(void) {
    struct sigaction now;
    both.sa_handler = SIG_IGN;
    CHECK(sigaction(SIGUSR2, &both, old_action) == 0 && sigaction(SIGUSR2, NULL, &now) == 0);
    say("action: before default %d, now ignored %d", both.sa_handler == SIG_DFL, now.sa_handler == SIG_IGN);
    signal(SIGUSR2, SIG_DFL);
    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_NONE};
    const struct itimerspec hour = {{0, 0}, {3600, 0}};
    struct itimerspec left;
    set = hour;
    CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
    CHECK(timer_settime(timer, 0, &set, old_time) == 0 && timer_gettime(timer, &left) == 0);
    say("timer: before %d, now set %d", (int)set.it_value.tv_sec, left.it_value.tv_sec > 3000);
    CHECK(timer_delete(timer) == 0);
    const int fd = timerfd_create(CLOCK_MONOTONIC, 0);
    set = hour;
    CHECK(timerfd_settime(fd, 0, &set, old_time) == 0 && timerfd_gettime(fd, &left) == 0);
    say("timerfd: before %d, now set %d", (int)set.it_value.tv_sec, left.it_value.tv_sec > 3000);
    close(fd);
}

// --- abort

static void end_well(int signal) {
    (void)signal;
    _exit(5);
}

static void aborted(void) {
    int status;
    const pid_t child = fork();
    if (child == 0) {
        sigset_t all;
        signal(SIGABRT, end_well);
        sigfillset(&all), sigprocmask(SIG_SETMASK, &all, NULL);
        abort();
    }
    CHECK(waitpid(child, &status, 0) == child);
    say("abort with all blocked: %x", status);
}

// --- functions that are called

static sem_t called;

static void on_call(union sigval value) {
    sigset_t mask;
    int blocked = 0, status;
    pthread_sigmask(SIG_BLOCK, NULL, &mask);
    for (int number = 1; number < 65; number++) blocked += sigismember(&mask, number) == 1;
    const pid_t child = fork();
    if (child == 0) raise(SIGTERM), _exit(3);
    CHECK(waitpid(child, &status, 0) == child);
    say("%d: blocked %d, the child it started: %x", value.sival_int, blocked, status);
    sem_post(&called);
}

static void calls(mqd_t queue) {
    struct sigevent event = {.sigev_notify = SIGEV_THREAD, .sigev_value = {.sival_int = 1}};
    event.sigev_notify_function = on_call;
    const struct itimerspec once = {{0, 0}, {0, 1000000}};
    timer_t timer;
    CHECK(sem_init(&called, 0, 0) == 0);
    CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0 && timer_settime(timer, 0, &once, NULL) == 0);
    while (sem_wait(&called) != 0) continue;
    CHECK(timer_delete(timer) == 0);
    sigset_t some, before;
    sigemptyset(&some), sigaddset(&some, SIGUSR2);
    event.sigev_value.sival_int = 2;
    CHECK(pthread_sigmask(SIG_BLOCK, &some, &before) == 0);
    CHECK(mq_notify(queue, &event) == 0 && mq_send(queue, "x", 1, 0) == 0);
    while (sem_wait(&called) != 0) continue;
    char text[16];
    CHECK(mq_receive(queue, text, sizeof text, NULL) == 1);
    CHECK(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
}

// --- queues

static mqd_t queue;
static int other;
static char text[32];
static pthread_t main_thread;

static void* signal_then_send(void* unused) {
    usleep(100000), pthread_kill(main_thread, SIGUSR1);
    usleep(100000), mq_send(queue, "x", 1, 0);
    return unused;
}
static void* send_later(void* unused) {
    usleep(100000), mq_send(queue, "x", 1, 0);
    return unused;
}
static void* just_signal(void* unused) {
    usleep(100000), pthread_kill(main_thread, SIGUSR1);
    return unused;
}

static void* receive(void* by_msg) {
    if (by_msg)
        msgrcv(other, text, 8, 0, 0);
    else
        mq_receive(queue, text, sizeof text, NULL);
    return NULL;
}

static void queues(void) {
    pthread_t thread;
    main_thread = pthread_self();
    signal(SIGUSR1, hear);  // with SA_RESTART
    CHECK(pthread_create(&thread, NULL, signal_then_send, NULL) == 0);
    say("received over a handler: %s", outcome(mq_receive(queue, text, sizeof text, NULL)));
    pthread_join(thread, NULL);
    struct sigaction interrupts = {.sa_handler = hear};
    sigaction(SIGUSR1, &interrupts, NULL);
    CHECK(pthread_create(&thread, NULL, just_signal, NULL) == 0);
    say("without SA_RESTART: %s", outcome(mq_receive(queue, text, sizeof text, NULL)));
    pthread_join(thread, NULL);
    other = msgget(IPC_PRIVATE, 0600);
    for (long by_msg = 0; by_msg < 2; by_msg++) {
        void* result = NULL;
        CHECK(pthread_create(&thread, NULL, receive, (void*)by_msg) == 0);
        usleep(100000);
        CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0);
        say("cancelled %d", result == PTHREAD_CANCELED);
    }
    CHECK(msgctl(other, IPC_RMID, NULL) == 0);
}

static void polled_queues(void) {
    for (int by_epoll = 0; by_epoll < 2; by_epoll++) {
        pthread_t thread;
        struct pollfd one = {queue, POLLIN, 0};
        struct epoll_event event = {EPOLLIN, {0}};
        const int epoll = epoll_create1(0);
        CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, queue, &event) == 0);
        CHECK(pthread_create(&thread, NULL, send_later, NULL) == 0);
        say("polled %s", outcome(by_epoll ? epoll_wait(epoll, &event, 1, -1) : poll(&one, 1, -1)));
        say("received %s", outcome(mq_receive(queue, text, sizeof text, NULL)));
        pthread_join(thread, NULL);
        close(epoll);
    }
}

// --- threads and locks

static pthread_mutex_t lock;

static void* leave_locked(void* unused) {
    pthread_mutex_lock(&lock);
    return unused;
}

static void not_recoverable(void) {
    pthread_mutexattr_t kind;
    pthread_t thread;
    pthread_mutexattr_init(&kind), pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
    CHECK(pthread_mutex_init(&lock, &kind) == 0);
    CHECK(pthread_create(&thread, NULL, leave_locked, NULL) == 0 && pthread_join(thread, NULL) == 0);
    say("owner dead: %s", code(pthread_mutex_lock(&lock)));
    pthread_mutex_unlock(&lock);
    for (int i = 0; i < 2; i++) say("then %s", code(pthread_mutex_lock(&lock)));
    say("tried: %s", code(pthread_mutex_trylock(&lock)));
    CHECK(pthread_mutex_destroy(&lock) == 0);
}

static pthread_mutex_t plain = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t filled = PTHREAD_COND_INITIALIZER;
static int items;
static sem_t taken;

static void unlock(void* mutex) {
    pthread_mutex_unlock(mutex);
}

static void* take(void* unused) {
    pthread_mutex_lock(&plain);
    pthread_cleanup_push(unlock, &plain);
    while (items == 0) pthread_cond_wait(&filled, &plain);
    items--;
    pthread_cleanup_pop(1);
    sem_post(&taken);
    for (;;) pause();
    return unused;
}

/// The first of two that wait is woken, and cancelled before it runs: what there is, one of them takes.
static void cancelled_as_it_is_woken(void) {
    pthread_t first, second;
    CHECK(sem_init(&taken, 0, 0) == 0);
    CHECK(pthread_create(&first, NULL, take, NULL) == 0);
    usleep(50000);
    CHECK(pthread_create(&second, NULL, take, NULL) == 0);
    usleep(50000);
    pthread_mutex_lock(&plain);
    items++;
    pthread_cond_signal(&filled);
    pthread_cancel(first);
    pthread_mutex_unlock(&plain);
    const struct timespec until = now_plus_ms(CLOCK_REALTIME, 5000);
    say("taken: %s", outcome(sem_timedwait(&taken, &until)));
    pthread_cancel(second);
    CHECK(pthread_join(first, NULL) == 0 && pthread_join(second, NULL) == 0);
    items = 0;
}

static void* nothing(void* unused) {
    return unused;
}

static void ended(void) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, nothing, NULL) == 0);
    usleep(100000);
    say("signal for a thread that has ended: %s", code(pthread_kill(thread, SIGUSR1)));
    CHECK(pthread_join(thread, NULL) == 0);
    sem_t never;
    const struct timespec until = now_plus_ms(CLOCK_REALTIME, 2000);
    CHECK(sem_init(&never, 0, 0) == 0);
    signal(SIGUSR1, hear);
    CHECK(pthread_create(&thread, NULL, just_signal, NULL) == 0);
    say("wait with a timeout: %s", outcome(sem_timedwait(&never, &until)));
    pthread_join(thread, NULL);
    const pid_t child = fork();
    if (child == 0) _exit(0);
    const int fd = (int)syscall(SYS_pidfd_open, child, 0);
    siginfo_t info;
    CHECK(waitid(P_PIDFD, (id_t)fd, &info, WEXITED) == 0);
    say("waited for again: %s", outcome(waitid(P_PIDFD, (id_t)fd, &info, WEXITED)));
    close(fd);
}

// --- files that grow beyond their limit

static volatile sig_atomic_t grown;
static void hear_growth(int signal) {
    grown = signal;
}

/// 0: the call went on to an error, with what was to be seen of the signal.
static int grow(int how, int fd) {
    char bytes[100] = "";
    sigset_t set, pending;
    sigemptyset(&set);
    sigaddset(&set, SIGXFSZ);
    grown = 0;
    if (how == 1) sigprocmask(SIG_BLOCK, &set, NULL);
    if (how == 2) signal(SIGXFSZ, hear_growth);
    if (how == 3) signal(SIGXFSZ, SIG_IGN);
    if (lseek(fd, 4050, SEEK_SET) != 4050 || write(fd, bytes, sizeof bytes) != 46) return 1;
    if (write(fd, bytes, 1) != -1 || errno != EFBIG) return 2;
    if (how == 2 && grown != SIGXFSZ) return 3;
    if (how == 1 && (sigpending(&pending) != 0 || !sigismember(&pending, SIGXFSZ))) return 4;
    grown = 0;
    if (truncate("/proc/self/fd/0", 1 << 20) != -1 || errno != EFBIG) return 5;
    if (how == 2 && grown != SIGXFSZ) return 6;
    if (ftruncate(fd, 1 << 20) != -1 || errno != EFBIG) return 7;
    return 0;
}

static void limited(void) {
    static const char* const kHow[] = {"by default", "blocked", "handled", "ignored"};
    for (int how = 0; how < 4; how++) {
        const pid_t child = fork();
        if (child == 0) {
            const struct rlimit limit = {4096, 4096};
            FILE* const file = tmpfile();
            if (!file || dup2(fileno(file), 0) != 0 || setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(9);
            _exit(grow(how, 0));
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child);
        say("too large, %s: signal %d, exit %d", kHow[how], WTERMSIG(status), WEXITSTATUS(status));
    }
}

static void scenario(void) {
    limited();
    const struct mq_attr attributes = {.mq_maxmsg = 4, .mq_msgsize = 16};
    queue = mq_open("/signal-edges", O_CREAT | O_RDWR, 0600, &attributes);
    CHECK(queue >= 0 && mq_unlink("/signal-edges") == 0);
    swapped();
    aborted();
    calls(queue);
    queues();
    polled_queues();
    not_recoverable();
    cancelled_as_it_is_woken();
    ended();
    mq_close(queue);
}

int main(int argc, char** argv) {
    return serve(argc, argv, scenario);
}
