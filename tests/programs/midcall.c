// A thread waits in each call that can wait. The first line that a client sends has them begin, the next one
// has all that they wait for come, and tells what each call returned; so an image that is taken in between is
// one from the middle of every call.
#include "serve.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <threads.h>

/// What one call waits for. A call uses what it needs of it.
struct wait {
    const char* name;
    long (*call)(struct wait*);
    void (*end)(struct wait*);
    int fds[2];  // it waits at the first
    pthread_t thread, other;
    pthread_mutex_t mutex;
    pthread_rwlock_t rwlock;
    pthread_cond_t cond;
    pthread_spinlock_t spin;
    pthread_barrier_t barrier;
    mtx_t mtx;
    cnd_t cnd;
    sem_t sem;
    atomic_int word;
    pid_t child;
    long result;
    int error;
};

static atomic_int entered;
static char bytes[1 << 20];
static struct timespec far(clockid_t clock) {
    return now_plus_ms(clock, 3600 * 1000L);
}

// --- locks ---

#define LOCKED(object, call, unlock)                                             \
    static long call##_(struct wait* w) {                                        \
        struct timespec limit __attribute__((unused)) = far(CLOCK_REALTIME),     \
                              up __attribute__((unused)) = far(CLOCK_MONOTONIC); \
        long error = call(&w->object LIMIT);                                     \
        if (error == 0) unlock(&w->object);                                      \
        return error;                                                            \
    }
#define LIMIT
LOCKED(mutex, pthread_mutex_lock, pthread_mutex_unlock)
LOCKED(rwlock, pthread_rwlock_rdlock, pthread_rwlock_unlock)
LOCKED(rwlock, pthread_rwlock_wrlock, pthread_rwlock_unlock)
LOCKED(spin, pthread_spin_lock, pthread_spin_unlock)
LOCKED(mtx, mtx_lock, mtx_unlock)
LOCKED(sem, sem_wait, sem_post)
#undef LIMIT
#define LIMIT , &limit
LOCKED(mutex, pthread_mutex_timedlock, pthread_mutex_unlock)
LOCKED(rwlock, pthread_rwlock_timedrdlock, pthread_rwlock_unlock)
LOCKED(rwlock, pthread_rwlock_timedwrlock, pthread_rwlock_unlock)
LOCKED(mtx, mtx_timedlock, mtx_unlock)
LOCKED(sem, sem_timedwait, sem_post)
#undef LIMIT
#define LIMIT , CLOCK_MONOTONIC, &up
LOCKED(mutex, pthread_mutex_clocklock, pthread_mutex_unlock)
LOCKED(rwlock, pthread_rwlock_clockrdlock, pthread_rwlock_unlock)
LOCKED(rwlock, pthread_rwlock_clockwrlock, pthread_rwlock_unlock)
LOCKED(sem, sem_clockwait, sem_post)

static void unlock_mutex(struct wait* w) {
    pthread_mutex_unlock(&w->mutex);
}
static void unlock_rwlock(struct wait* w) {
    pthread_rwlock_unlock(&w->rwlock);
}
static void unlock_spin(struct wait* w) {
    pthread_spin_unlock(&w->spin);
}
static void unlock_mtx(struct wait* w) {
    mtx_unlock(&w->mtx);
}
static void post(struct wait* w) {
    sem_post(&w->sem);
}

// --- conditions, barriers, threads ---

#define CONDITION(name, wait_for)                                                \
    static long name(struct wait* w) {                                           \
        struct timespec limit __attribute__((unused)) = far(CLOCK_REALTIME),     \
                              up __attribute__((unused)) = far(CLOCK_MONOTONIC); \
        long error = 0;                                                          \
        pthread_mutex_lock(&w->mutex);                                           \
        while (error == 0 && !w->word) error = wait_for;                         \
        pthread_mutex_unlock(&w->mutex);                                         \
        return error;                                                            \
    }
CONDITION(cond_wait, pthread_cond_wait(&w->cond, &w->mutex))
CONDITION(cond_timedwait, pthread_cond_timedwait(&w->cond, &w->mutex, &limit))
CONDITION(cond_clockwait, pthread_cond_clockwait(&w->cond, &w->mutex, CLOCK_MONOTONIC, &up))

static long cnd_wait_(struct wait* w) {
    mtx_lock(&w->mtx);
    while (!w->word) cnd_wait(&w->cnd, &w->mtx);
    mtx_unlock(&w->mtx);
    return 0;
}
static void unlock_for_wait(struct wait* w) {
    pthread_mutex_lock(&w->mutex);
    w->word = 1;
    pthread_cond_broadcast(&w->cond);
    pthread_mutex_unlock(&w->mutex);
}
static void signal_cnd(struct wait* w) {
    mtx_lock(&w->mtx);
    w->word = 1;
    cnd_broadcast(&w->cnd);
    mtx_unlock(&w->mtx);
}
static long barrier_wait(struct wait* w) {
    long got = pthread_barrier_wait(&w->barrier);
    return got == PTHREAD_BARRIER_SERIAL_THREAD ? 0 : got;
}
static void meet(struct wait* w) {
    pthread_barrier_wait(&w->barrier);
}
static void* until_posted(void* w) {
    sem_wait(&((struct wait*)w)->sem);
    return w;
}
static long join(struct wait* w) {
    void* got = NULL;
    CHECK(pthread_create(&w->other, NULL, until_posted, w) == 0);
    long error = pthread_join(w->other, &got);
    return got == w ? error : -2;
}
static long timedjoin(struct wait* w) {
    void* got = NULL;
    struct timespec limit = far(CLOCK_REALTIME);
    CHECK(pthread_create(&w->other, NULL, until_posted, w) == 0);
    long error = pthread_timedjoin_np(w->other, &got, &limit);
    return got == w ? error : -2;
}
static pthread_once_t once = PTHREAD_ONCE_INIT;
static sem_t* once_posted;
static void first(void) {
    sem_wait(once_posted);
}
static void* run_once(void* unused) {
    pthread_once(&once, first);
    return unused;
}
static long wait_once(struct wait* w) {
    static const pthread_once_t fresh = PTHREAD_ONCE_INIT;
    once = fresh;
    once_posted = &w->sem;
    CHECK(pthread_create(&w->other, NULL, run_once, NULL) == 0);
    run_once(NULL);
    return pthread_join(w->other, NULL);
}

// --- futexes ---

static long futex(struct wait* w) {
    long got = 0;
    while (!w->word && got == 0) got = syscall(SYS_futex, &w->word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
    return got;
}
static long futex_bitset(struct wait* w) {
    long got = 0;
    struct timespec limit = far(CLOCK_MONOTONIC);
    while (!w->word && got == 0)
        got =
            syscall(SYS_futex, &w->word, FUTEX_WAIT_BITSET_PRIVATE, 0, &limit, NULL, FUTEX_BITSET_MATCH_ANY);
    return got;
}
static void wake(struct wait* w) {
    w->word = 1;
    syscall(SYS_futex, &w->word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

// --- reading and writing ---

static long read_(struct wait* w) {
    return read(w->fds[0], bytes, 4);
}
static long readv_(struct wait* w) {
    return readv(w->fds[0], &(struct iovec){bytes, 4}, 1);
}
static long recv_(struct wait* w) {
    return recv(w->fds[0], bytes, 4, 0);
}
static long recv_all(struct wait* w) {
    return recv(w->fds[0], bytes, 4, MSG_WAITALL);
}
static long recvfrom_(struct wait* w) {
    return recvfrom(w->fds[0], bytes, 4, 0, NULL, NULL);
}
static long recvmsg_(struct wait* w) {
    return recvmsg(w->fds[0], &(struct msghdr){.msg_iov = &(struct iovec){bytes, 4}, .msg_iovlen = 1}, 0);
}
static long recvmmsg_(struct wait* w) {
    struct mmsghdr one = {{.msg_iov = &(struct iovec){bytes, 4}, .msg_iovlen = 1}, 0};
    return recvmmsg(w->fds[0], &one, 1, 0, NULL);
}
static long splice_(struct wait* w) {
    int ends[2];
    CHECK(pipe(ends) == 0);
    long got = splice(w->fds[0], NULL, ends[1], NULL, 4, 0);
    close(ends[0]);
    close(ends[1]);
    return got;
}
static void put(struct wait* w) {
    write_all(w->fds[1], "some", 4);
}
static void put_twice(struct wait* w) {
    write_all(w->fds[1], "so", 2);
    write_all(w->fds[1], "me", 2);
}
static void fill(int fd) {
    const int flags = fcntl(fd, F_GETFL);
    fcntl(fd, F_SETFL, flags | O_NONBLOCK);
    while (write(fd, bytes, sizeof bytes) > 0) continue;
    while (write(fd, bytes, 1) > 0) continue;
    fcntl(fd, F_SETFL, flags);
}
static long write_(struct wait* w) {
    fill(w->fds[0]);
    return write(w->fds[0], bytes, 100000);
}
static long writev_(struct wait* w) {
    fill(w->fds[0]);
    return writev(w->fds[0], &(struct iovec){bytes, 100000}, 1);
}
static long send_(struct wait* w) {
    fill(w->fds[0]);
    return send(w->fds[0], bytes, 100000, 0);
}
static long sendmsg_(struct wait* w) {
    fill(w->fds[0]);
    return sendmsg(w->fds[0], &(struct msghdr){.msg_iov = &(struct iovec){bytes, 100000}, .msg_iovlen = 1},
                   0);
}
static void drain(struct wait* w) {
    fcntl(w->fds[1], F_SETFL, O_NONBLOCK);
    while (!w->word) {
        while (read(w->fds[1], bytes, 50000) > 0) continue;
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
}
static long read_eventfd(struct wait* w) {
    return read(w->fds[0], bytes, 8);
}
static void count(struct wait* w) {
    CHECK(write(w->fds[0], &(uint64_t){1}, 8) == 8);
}
static void set_off(struct wait* w) {
    CHECK(timerfd_settime(w->fds[0], 0, &(struct itimerspec){{0, 0}, {0, 1}}, NULL) == 0);
}

// --- connections inside ---

static long accept_(struct wait* w) {
    const int got = accept(w->fds[0], NULL, NULL);
    if (got >= 0) close(got);
    return got >= 0 ? 0 : -1;
}
static long accept4_(struct wait* w) {
    const int got = accept4(w->fds[0], NULL, NULL, SOCK_CLOEXEC);
    if (got >= 0) close(got);
    return got >= 0 ? 0 : -1;
}
static void connect_(struct wait* w) {
    struct sockaddr_in address;
    CHECK(getsockname(w->fds[0], (struct sockaddr*)&address, &(socklen_t){sizeof address}) == 0);
    w->fds[1] = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(w->fds[1], (struct sockaddr*)&address, sizeof address) == 0);
}

// --- waiting for descriptors ---

static long poll_(struct wait* w) {
    return poll(&(struct pollfd){w->fds[0], POLLIN, 0}, 1, -1);
}
static long poll_for_long(struct wait* w) {
    return poll(&(struct pollfd){w->fds[0], POLLIN, 0}, 1, 3600000);
}
static long ppoll_(struct wait* w) {
    return ppoll(&(struct pollfd){w->fds[0], POLLIN, 0}, 1, &(struct timespec){3600, 0}, NULL);
}
static long select_(struct wait* w) {
    fd_set set;
    FD_ZERO(&set);
    FD_SET(w->fds[0], &set);
    return select(w->fds[0] + 1, &set, NULL, NULL, NULL);
}
static long pselect_(struct wait* w) {
    fd_set set;
    FD_ZERO(&set);
    FD_SET(w->fds[0], &set);
    return pselect(w->fds[0] + 1, &set, NULL, NULL, &(struct timespec){3600, 0}, NULL);
}
static long in_epoll(struct wait* w, int which) {
    const int epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN};
    CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, w->fds[0], &event) == 0);
    const long got = which == 0   ? epoll_wait(epoll, &event, 1, -1)
                     : which == 1 ? epoll_pwait(epoll, &event, 1, 3600000, NULL)
                                  : epoll_pwait2(epoll, &event, 1, &(struct timespec){3600, 0}, NULL);
    close(epoll);
    return got;
}
static long epoll_wait_(struct wait* w) {
    return in_epoll(w, 0);
}
static long epoll_pwait_(struct wait* w) {
    return in_epoll(w, 1);
}
static long epoll_pwait2_(struct wait* w) {
    return in_epoll(w, 2);
}

// --- signals and sleeps ---

static void nothing(int number) {
    (void)number;
}
static sigset_t only(int number) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, number);
    return set;
}
static long sigwait_(struct wait* w) {
    (void)w;
    int got = 0;
    const sigset_t set = only(SIGUSR1);
    return sigwait(&set, &got) == 0 ? got : -1;
}
static long sigwaitinfo_(struct wait* w) {
    (void)w;
    const sigset_t set = only(SIGUSR1);
    return sigwaitinfo(&set, NULL);
}
static long sigtimedwait_(struct wait* w) {
    (void)w;
    const sigset_t set = only(SIGUSR1);
    return sigtimedwait(&set, NULL, &(struct timespec){3600, 0});
}
static long sigsuspend_(struct wait* w) {
    (void)w;
    sigset_t none;
    sigemptyset(&none);
    return sigsuspend(&none);
}
static long read_signalfd(struct wait* w) {
    const sigset_t set = only(SIGUSR1);
    w->fds[0] = signalfd(-1, &set, SFD_CLOEXEC);
    struct signalfd_siginfo got;
    return read(w->fds[0], &got, sizeof got) == sizeof got ? (long)got.ssi_signo : -1;
}
static void usr1(struct wait* w) {
    CHECK(pthread_kill(w->thread, SIGUSR1) == 0);
}
static void usr2(struct wait* w) {
    CHECK(pthread_kill(w->thread, SIGUSR2) == 0);
}
static long pause_(struct wait* w) {
    (void)w;
    return pause();
}
static long nanosleep_(struct wait* w) {
    (void)w;
    struct timespec rest = {0, 0};
    const long got = nanosleep(&(struct timespec){3600, 0}, &rest);
    return rest.tv_sec > 3000 ? got : -2;
}
static long clock_nanosleep_(struct wait* w) {
    (void)w;
    struct timespec limit = far(CLOCK_MONOTONIC);
    return clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &limit, NULL);
}
static long sleep_(struct wait* w) {
    (void)w;
    return sleep(3600) > 3000;
}
static long usleep_(struct wait* w) {
    (void)w;
    return usleep(3600000000u);
}

// --- children ---

static void begin_child(struct wait* w) {
    CHECK(pipe(w->fds) == 0);
    w->child = fork();
    CHECK(w->child >= 0);
    if (w->child == 0) {
        close_range(3, w->fds[0] - 1, 0);  // the client's connection among them
        close_range(w->fds[0] + 1, ~0u, 0);
        const long got = read(w->fds[0], bytes, 4);
        _exit(got == 4 ? 7 : 8);
    }
}
static long waitpid_(struct wait* w) {
    int status = 0;
    begin_child(w);
    return waitpid(w->child, &status, 0) == w->child ? WEXITSTATUS(status) : -1;
}
static long wait4_(struct wait* w) {
    int status = 0;
    begin_child(w);
    return wait4(w->child, &status, 0, NULL) == w->child ? WEXITSTATUS(status) : -1;
}
static long waitid_(struct wait* w) {
    siginfo_t got;
    begin_child(w);
    return waitid(P_PID, w->child, &got, WEXITED) == 0 ? got.si_status : -1;
}

// --- locks of files ---

static int lock_file(void) {
    const int fd = open("locked", O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    CHECK(fd >= 0);
    return fd;
}
static long flock_(struct wait* w) {
    w->fds[0] = lock_file();
    w->fds[1] = lock_file();
    CHECK(flock(w->fds[1], LOCK_EX) == 0);
    return flock(w->fds[0], LOCK_EX);
}
static void unflock(struct wait* w) {
    flock(w->fds[1], LOCK_UN);
}
static struct flock whole(short type) {
    return (struct flock){.l_type = type, .l_whence = SEEK_SET};
}
static long open_file_lock(struct wait* w) {
    struct flock lock = whole(F_WRLCK);
    w->fds[0] = lock_file();
    w->fds[1] = lock_file();
    CHECK(fcntl(w->fds[1], F_OFD_SETLK, &lock) == 0);
    return fcntl(w->fds[0], F_OFD_SETLKW, &lock);
}
static void open_file_unlock(struct wait* w) {
    struct flock lock = whole(F_UNLCK);
    fcntl(w->fds[1], F_OFD_SETLK, &lock);
}

// --- all of them ---

static void make_pipe(struct wait* w) {
    CHECK(pipe(w->fds) == 0);
}
static void make_full_pipe(struct wait* w) {
    int ends[2];
    CHECK(pipe(ends) == 0);
    w->fds[0] = ends[1];
    w->fds[1] = ends[0];
}
static void make_pair(struct wait* w) {
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, w->fds) == 0);
}
static void make_datagrams(struct wait* w) {
    CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, w->fds) == 0);
}
static void make_listener(struct wait* w) {
    w->fds[0] = listen_on(0);
}
static void make_connection(struct wait* w) {
    struct wait listening = {.fds = {listen_on(0), -1}};
    connect_(&listening);
    w->fds[1] = listening.fds[1];
    w->fds[0] = accept(listening.fds[0], NULL, NULL);
    CHECK(w->fds[0] >= 0);
    close(listening.fds[0]);
}
static void make_eventfd(struct wait* w) {
    w->fds[0] = eventfd(0, EFD_CLOEXEC);
}
static void make_timerfd(struct wait* w) {
    w->fds[0] = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
}
static void none(struct wait* w) {
    (void)w;
}

static const struct kind {
    const char* name;
    void (*make)(struct wait*);
    long (*call)(struct wait*);
    void (*end)(struct wait*);
} kinds[] = {
    {"pthread_mutex_lock", none, pthread_mutex_lock_, unlock_mutex},
    {"pthread_mutex_timedlock", none, pthread_mutex_timedlock_, unlock_mutex},
    {"pthread_mutex_clocklock", none, pthread_mutex_clocklock_, unlock_mutex},
    {"pthread_rwlock_rdlock", none, pthread_rwlock_rdlock_, unlock_rwlock},
    {"pthread_rwlock_wrlock", none, pthread_rwlock_wrlock_, unlock_rwlock},
    {"pthread_rwlock_timedrdlock", none, pthread_rwlock_timedrdlock_, unlock_rwlock},
    {"pthread_rwlock_timedwrlock", none, pthread_rwlock_timedwrlock_, unlock_rwlock},
    {"pthread_rwlock_clockrdlock", none, pthread_rwlock_clockrdlock_, unlock_rwlock},
    {"pthread_rwlock_clockwrlock", none, pthread_rwlock_clockwrlock_, unlock_rwlock},
    {"pthread_spin_lock", none, pthread_spin_lock_, unlock_spin},
    {"mtx_lock", none, mtx_lock_, unlock_mtx},
    {"mtx_timedlock", none, mtx_timedlock_, unlock_mtx},
    {"sem_wait", none, sem_wait_, post},
    {"sem_timedwait", none, sem_timedwait_, post},
    {"sem_clockwait", none, sem_clockwait_, post},
    {"pthread_cond_wait", none, cond_wait, unlock_for_wait},
    {"pthread_cond_timedwait", none, cond_timedwait, unlock_for_wait},
    {"pthread_cond_clockwait", none, cond_clockwait, unlock_for_wait},
    {"cnd_wait", none, cnd_wait_, signal_cnd},
    {"pthread_barrier_wait", none, barrier_wait, meet},
    {"pthread_join", none, join, post},
    {"pthread_timedjoin_np", none, timedjoin, post},
    {"pthread_once", none, wait_once, post},
    {"futex wait", none, futex, wake},
    {"futex wait_bitset", none, futex_bitset, wake},
    {"read from a pipe", make_pipe, read_, put},
    {"readv from a pipe", make_pipe, readv_, put},
    {"splice from a pipe", make_pipe, splice_, put},
    {"read from a pair", make_pair, read_, put},
    {"recv from a pair", make_pair, recv_, put},
    {"recv of all from a pair", make_pair, recv_all, put_twice},
    {"recvmsg from a pair", make_pair, recvmsg_, put},
    {"recvfrom of a datagram", make_datagrams, recvfrom_, put},
    {"recvmmsg of a datagram", make_datagrams, recvmmsg_, put},
    {"read from a connection", make_connection, read_, put},
    {"recv of all from a connection", make_connection, recv_all, put_twice},
    {"recvmsg from a connection", make_connection, recvmsg_, put},
    {"write to a pipe", make_full_pipe, write_, drain},
    {"writev to a pipe", make_full_pipe, writev_, drain},
    {"write to a pair", make_pair, write_, drain},
    {"sendmsg to a pair", make_pair, sendmsg_, drain},
    {"send to a connection", make_connection, send_, drain},
    {"writev to a connection", make_connection, writev_, drain},
    {"read of an eventfd", make_eventfd, read_eventfd, count},
    {"read of a timerfd", make_timerfd, read_eventfd, set_off},
    {"read of a signalfd", none, read_signalfd, usr1},
    {"accept", make_listener, accept_, connect_},
    {"accept4", make_listener, accept4_, connect_},
    {"poll of a pipe", make_pipe, poll_, put},
    {"poll of a connection", make_connection, poll_for_long, put},
    {"poll of a listener", make_listener, poll_, connect_},
    {"ppoll of a pair", make_pair, ppoll_, put},
    {"select of a pipe", make_pipe, select_, put},
    {"pselect of a connection", make_connection, pselect_, put},
    {"epoll_wait of a pipe", make_pipe, epoll_wait_, put},
    {"epoll_pwait of a connection", make_connection, epoll_pwait_, put},
    {"epoll_pwait2 of an eventfd", make_eventfd, epoll_pwait2_, count},
    {"sigwait", none, sigwait_, usr1},
    {"sigwaitinfo", none, sigwaitinfo_, usr1},
    {"sigtimedwait", none, sigtimedwait_, usr1},
    {"sigsuspend", none, sigsuspend_, usr2},
    {"pause", none, pause_, usr2},
    {"nanosleep", none, nanosleep_, usr2},
    {"clock_nanosleep", none, clock_nanosleep_, usr2},
    {"sleep", none, sleep_, usr2},
    {"usleep", none, usleep_, usr2},
    {"waitpid", none, waitpid_, put},
    {"wait4", none, wait4_, put},
    {"waitid", none, waitid_, put},
    {"flock", none, flock_, unflock},
    {"fcntl F_OFD_SETLKW", none, open_file_lock, open_file_unlock},
};
enum { kinds_count = sizeof kinds / sizeof kinds[0] };

static struct wait waits[kinds_count];

static void* run(void* argument) {
    struct wait* w = argument;
    entered++;
    w->result = w->call(w);
    w->error = errno;
    w->word = 1;
    return NULL;
}

static void begin(const struct kind* kind, struct wait* w) {
    memset(w, 0, sizeof *w);
    w->name = kind->name;
    w->call = kind->call;
    w->end = kind->end;
    w->fds[0] = w->fds[1] = -1;
    pthread_mutex_init(&w->mutex, NULL);
    pthread_rwlock_init(&w->rwlock, NULL);
    pthread_cond_init(&w->cond, NULL);
    pthread_spin_init(&w->spin, 0);
    pthread_barrier_init(&w->barrier, NULL, 2);
    mtx_init(&w->mtx, mtx_timed);
    cnd_init(&w->cnd);
    sem_init(&w->sem, 0, 0);
    kind->make(w);
    // What it wants is taken, unless it waits for something else with it.
    if (w->end == unlock_mutex) pthread_mutex_lock(&w->mutex);
    if (w->end == unlock_rwlock) pthread_rwlock_wrlock(&w->rwlock);
    if (w->end == unlock_spin) pthread_spin_lock(&w->spin);
    if (w->end == unlock_mtx) mtx_lock(&w->mtx);
    CHECK(pthread_create(&w->thread, NULL, run, w) == 0);
}

static void end(struct wait* w) {
    const int returned = w->word;
    w->end(w);
    CHECK(pthread_join(w->thread, NULL) == 0);
    errno = w->error;
    say("%s: %s%s", w->name, outcome(w->result), returned ? ", before" : "");
    for (int i = 0; i < 2; i++)
        if (w->fds[i] >= 0) close(w->fds[i]);
}

static void scenario(void) {
    static int looks;
    if (looks++ % 2 == 0) {
        entered = 0;
        for (int i = 0; i < kinds_count; i++) begin(&kinds[i], &waits[i]);
        while (entered < kinds_count) nanosleep(&(struct timespec){0, 1000000}, NULL);
        nanosleep(&(struct timespec){0, 50000000}, NULL);  // all have come to wait
        say("%d wait", kinds_count);
    } else {
        for (int i = 0; i < kinds_count; i++) end(&waits[i]);
    }
}

int main(int argc, char** argv) {
    const struct sigaction action = {.sa_handler = nothing};
    sigaction(SIGUSR2, &action, NULL);
    const sigset_t set = only(SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, NULL);
    return serve(argc, argv, scenario);
}
