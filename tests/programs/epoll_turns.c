// epoll when much is ready and there is little room, and when what it watches is armed while somebody sleeps
// in it; select() over a whole table of descriptors.
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>

#include "serve.h"

static void add(int queue, int fd, uint32_t events) {
    struct epoll_event event = {.events = events, .data.fd = fd};
    CHECK(epoll_ctl(queue, EPOLL_CTL_ADD, fd, &event) == 0);
}

/// Room for one event, and a socket that is always ready beside a pipe, timers and a signal.
static void with_little_room(void) {
    enum { kKinds = 5, kRounds = 100 };
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t length = sizeof at;
    const int listener = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);
    const int queue = epoll_create1(0);
    int pipes[2], met[kKinds] = {0};
    sigset_t set;
    CHECK(bind(listener, (struct sockaddr*)&at, length) == 0 && listen(listener, 5) == 0);
    CHECK(getsockname(listener, (struct sockaddr*)&at, &length) == 0);
    CHECK(connect(client, (struct sockaddr*)&at, length) == 0);
    CHECK(pipe(pipes) == 0 && write(pipes[1], "x", 1) == 1);
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0 && kill(getpid(), SIGUSR1) == 0);
    const int kinds[kKinds] = {client, pipes[0], timerfd_create(CLOCK_MONOTONIC, 0),
                               timerfd_create(CLOCK_MONOTONIC, 0), signalfd(-1, &set, 0)};
    const struct itimerspec soon = {.it_value = {0, 1000}};
    for (int i = 2; i < 4; i++) CHECK(timerfd_settime(kinds[i], 0, &soon, NULL) == 0);
    usleep(20000);
    for (int i = 0; i < kKinds; i++) add(queue, kinds[i], i == 0 ? EPOLLOUT : EPOLLIN);
    for (int round = 0; round < kRounds; round++) {
        struct epoll_event event;
        CHECK(epoll_wait(queue, &event, 1, -1) == 1);
        for (int i = 0; i < kKinds; i++) met[i] += event.data.fd == kinds[i];
    }
    for (int i = 0; i < kKinds; i++) say("kind %d met often: %d", i, met[i] >= kRounds / 10);
    order("met %d %d %d %d %d", met[0], met[1], met[2], met[3], met[4]);
    struct signalfd_siginfo taken;
    CHECK(read(kinds[4], &taken, sizeof taken) == sizeof taken);
    for (int i = 0; i < kKinds; i++) close(kinds[i]);
    close(pipes[1]);
    close(queue);
    close(listener);
}

static int queue, ticks;
static sem_t work;

static void* rearm(void* unused) {
    (void)unused;
    for (int i = 0; i < 5; i++) {
        uint64_t times;
        CHECK(sem_wait(&work) == 0);
        usleep(20000);  // the other one sleeps by now, and the item is disabled
        CHECK(read(ticks, &times, sizeof times) == sizeof times);
        struct epoll_event event = {.events = EPOLLIN | EPOLLONESHOT};
        CHECK(epoll_ctl(queue, EPOLL_CTL_MOD, ticks, &event) == 0);
    }
    return NULL;
}

/// By another thread than the one that sleeps.
static void armed_again(void) {
    pthread_t thread;
    CHECK(sem_init(&work, 0, 0) == 0);
    queue = epoll_create1(0);
    ticks = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    const struct itimerspec often = {{0, 40000000}, {0, 40000000}};
    CHECK(timerfd_settime(ticks, 0, &often, NULL) == 0);
    add(queue, ticks, EPOLLIN | EPOLLONESHOT);
    CHECK(pthread_create(&thread, NULL, rearm, NULL) == 0);
    for (int i = 0; i < 5; i++) {
        struct epoll_event event;
        say("tick %d: %d", i, epoll_wait(queue, &event, 1, -1));
        CHECK(sem_post(&work) == 0);
    }
    CHECK(pthread_join(thread, NULL) == 0);
    close(ticks);
    close(queue);
}

static void* wait_for_two(void* met) {
    for (int i = 0; i < 2; i++) {
        struct epoll_event event;
        CHECK(epoll_wait(queue, &event, 1, -1) == 1);
        ((int*)met)[i] = event.data.fd;
    }
    return NULL;
}

static void added_late(void) {
    sigset_t set;
    int met[2];
    pthread_t thread;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    CHECK(kill(getpid(), SIGUSR1) == 0);  // blocked since before
    const int signals = signalfd(-1, &set, 0), timer = timerfd_create(CLOCK_MONOTONIC, 0);
    const struct itimerspec once = {.it_value = {0, 100000000}};
    CHECK(timerfd_settime(timer, 0, &once, NULL) == 0);
    queue = epoll_create1(0);
    CHECK(pthread_create(&thread, NULL, wait_for_two, met) == 0);
    usleep(50000);
    add(queue, signals, EPOLLIN | EPOLLONESHOT);
    add(queue, timer, EPOLLIN | EPOLLONESHOT);
    CHECK(pthread_join(thread, NULL) == 0);
    say("both met: %d %d", met[0] == signals, met[1] == timer);
    struct signalfd_siginfo taken;
    CHECK(read(signals, &taken, sizeof taken) == sizeof taken);
    close(signals);
    close(timer);
    close(queue);
}

static void* wait_cancelled(void* unused) {
    struct epoll_event event;
    (void)unused;
    pthread_cancel(pthread_self());
    say("not reached: %d", epoll_wait(queue, &event, 1, 0));
    return NULL;
}

/// What is told once is not told to a thread that is to end.
static void cancelled(void) {
    struct epoll_event event;
    pthread_t thread;
    void* result;
    int pipes[2];
    queue = epoll_create1(0);
    CHECK(pipe(pipes) == 0 && write(pipes[1], "x", 1) == 1);
    add(queue, pipes[0], EPOLLIN | EPOLLONESHOT);
    CHECK(pthread_create(&thread, NULL, wait_cancelled, NULL) == 0 && pthread_join(thread, &result) == 0);
    say("cancelled %d, still there: %d", result == PTHREAD_CANCELED, epoll_wait(queue, &event, 1, 0));
    close(pipes[0]);
    close(pipes[1]);
    close(queue);
}

static struct {
    fd_set set;
    unsigned char behind[8192];
} selected;

/// As old daemons have it: up to the limit, with a set that is shorter.
static void whole_table(void) {
    struct rlimit limit;
    int pipes[2], whole = 1;
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    limit.rlim_cur = limit.rlim_max < 32768 ? limit.rlim_max : 32768;
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    CHECK(pipe(pipes) == 0 && write(pipes[1], "x", 1) == 1);
    FD_ZERO(&selected.set);
    FD_SET(pipes[0], &selected.set);
    memset(selected.behind, 0xff, sizeof selected.behind);
    struct timeval at_most = {1, 0};
    say("selected: %s", outcome(select(getdtablesize(), &selected.set, NULL, NULL, &at_most)));
    for (unsigned i = 0; i < sizeof selected.behind; i++) whole &= selected.behind[i] == 0xff;
    say("ready %d, what is behind whole %d", !!FD_ISSET(pipes[0], &selected.set), whole);
    close(pipes[0]);
    close(pipes[1]);
}

static void scenario(void) {
    with_little_room();
    armed_again();
    added_late();
    cancelled();
    whole_table();
}

int main(int argc, char** argv) {
    return serve(argc, argv, scenario);
}
