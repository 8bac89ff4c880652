// Epolls inside epolls, as libraries with a loop of their own hand one out to be watched: over TCP inside the domain, pipes,
// timers and signals; by level, edge and once; in threads and in other processes; by poll and select.
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/select.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <sys/wait.h>

#include "serve.h"

static int events_of(int epoll, int timeout_ms) {
    struct epoll_event event[8];
    int count = epoll_wait(epoll, event, 8, timeout_ms);
    for (int n = 0; n < count; n++) say("  event %x data %d", event[n].events, event[n].data.fd);
    return count;
}

static int control(int epoll, int operation, int fd, unsigned events, int label) {
    struct epoll_event event = {.events = events, .data.fd = label};
    return epoll_ctl(epoll, operation, fd, &event);
}

static int add(int epoll, int fd, unsigned events, int label) { return control(epoll, EPOLL_CTL_ADD, fd, events, label); }

static void pair(int kind, int ends[2]) {
    if (kind == 0) {
        CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
        return;
    }
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(bind(listener, (struct sockaddr*)&address, size) == 0 && listen(listener, 1) == 0);
    CHECK(getsockname(listener, (struct sockaddr*)&address, &size) == 0);
    ends[0] = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(ends[0], (struct sockaddr*)&address, size) == 0);
    ends[1] = accept(listener, NULL, NULL);
    CHECK(ends[1] >= 0);
    close(listener);
}

static void* write_later(void* fd) {
    usleep(3000);
    CHECK(write(*(int*)fd, "x", 1) == 1);
    return NULL;
}

static void level_edge_once(int kind) {
    int ends[2], outer = epoll_create1(0), inner = epoll_create1(0);
    char buffer[8];
    pthread_t thread;
    pair(kind, ends);
    say("%s", kind ? "tcp" : "unix");
    CHECK(add(outer, inner, EPOLLIN, 1) == 0 && add(inner, ends[0], EPOLLIN, 2) == 0);  // what comes in later counts, too
    say("nothing %d", events_of(outer, 0));
    CHECK(pthread_create(&thread, NULL, write_later, &ends[1]) == 0);
    say("woken %d", events_of(outer, -1));
    pthread_join(thread, NULL);
    say("level %d", events_of(outer, 0));
    say("inside %d", events_of(inner, 0));
    CHECK(control(outer, EPOLL_CTL_MOD, inner, EPOLLIN | EPOLLET, 3) == 0);
    say("edge %d", events_of(outer, 0));
    say("edge again %d", events_of(outer, 5));
    CHECK(write(ends[1], "y", 1) == 1);
    say("edge after more %d", events_of(outer, 0));
    CHECK(control(outer, EPOLL_CTL_MOD, inner, EPOLLIN | EPOLLONESHOT, 4) == 0);
    say("once %d", events_of(outer, 0));
    say("once again %d", events_of(outer, 0));
    CHECK(control(outer, EPOLL_CTL_MOD, inner, EPOLLIN, 5) == 0);
    CHECK(read(ends[0], buffer, sizeof buffer) == 2);
    say("read %d", events_of(outer, 5));
    CHECK(write(ends[1], "z", 1) == 1);
    struct pollfd polled = {outer, POLLIN, 0};
    int count = poll(&polled, 1, -1);
    say("poll %d %x", count, polled.revents);
    fd_set set;
    FD_ZERO(&set);
    FD_SET(outer, &set);
    say("select %d", select(outer + 1, &set, NULL, NULL, NULL));
    say("delete %s", outcome(epoll_ctl(outer, EPOLL_CTL_DEL, inner, NULL)));
    say("deleted %d", events_of(outer, 0));
    CHECK(add(outer, inner, EPOLLIN, 6) == 0);
    int copy = dup(inner);
    close(inner);
    say("by its copy %d", events_of(outer, 0));
    close(copy);
    say("closed %d", events_of(outer, 0));
    close(outer), close(ends[0]), close(ends[1]);
}

static void timers_and_signals(void) {
    int outer = epoll_create1(0), inner = epoll_create1(0), timer = timerfd_create(CLOCK_MONOTONIC, 0);
    uint64_t count;
    CHECK(add(outer, inner, EPOLLIN | EPOLLET, 1) == 0 && add(inner, timer, EPOLLIN, 2) == 0);
    struct itimerspec soon = {{0, 0}, {0, 4000000}};
    CHECK(timerfd_settime(timer, 0, &soon, NULL) == 0);
    say("timer %d", events_of(outer, 1000));
    say("timer again %d", events_of(outer, 5));
    struct pollfd polled = {inner, POLLIN, 0};
    say("poll %d", poll(&polled, 1, 1000));
    CHECK(read(timer, &count, sizeof count) == sizeof count);
    CHECK(timerfd_settime(timer, 0, &soon, NULL) == 0);
    say("timer once more %d", events_of(outer, 1000));
    close(timer);
    sigset_t set, before;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, &before);
    int signals = signalfd(-1, &set, 0);
    CHECK(add(inner, signals, EPOLLIN, 3) == 0);
    say("no signal %d", events_of(outer, 3));
    pid_t child = fork();
    if (child == 0) {
        usleep(3000);
        kill(getppid(), SIGUSR1);
        _exit(0);
    }
    say("signal %d", events_of(outer, 2000));
    struct signalfd_siginfo info;
    CHECK(read(signals, &info, sizeof info) == sizeof info);
    waitpid(child, NULL, 0);
    sigprocmask(SIG_SETMASK, &before, NULL);
    close(signals), close(inner), close(outer);
}

static void timer_two_below(void) {
    int outer = epoll_create1(0), middle = epoll_create1(0), inner = epoll_create1(0), timer = timerfd_create(CLOCK_MONOTONIC, 0);
    CHECK(add(outer, middle, EPOLLIN | EPOLLET, 1) == 0 && add(middle, inner, EPOLLIN, 2) == 0 && add(inner, timer, EPOLLIN, 3) == 0);
    struct itimerspec soon = {{0, 0}, {0, 4000000}};
    for (int round = 0; round < 2; round++) {
        uint64_t count;
        CHECK(timerfd_settime(timer, 0, &soon, NULL) == 0);
        say("two below %d", events_of(outer, 1000));
        CHECK(read(timer, &count, sizeof count) == sizeof count);
    }
    close(timer), close(inner), close(middle), close(outer);
}

static void a_child_writes(void) {
    int pipes[2], counter = eventfd(0, 0), outer = epoll_create1(0), middle = epoll_create1(0), inner = epoll_create1(0);
    CHECK(pipe(pipes) == 0);
    CHECK(add(inner, pipes[0], EPOLLIN, 1) == 0 && add(middle, inner, EPOLLIN, 2) == 0 && add(outer, middle, EPOLLIN, 3) == 0);
    CHECK(add(middle, counter, EPOLLIN, 4) == 0);
    pid_t child = fork();
    if (child == 0) {
        usleep(3000);
        CHECK(write(pipes[1], "c", 1) == 1);
        _exit(0);
    }
    say("child %d", events_of(outer, -1));
    waitpid(child, NULL, 0);
    say("middle %d", events_of(middle, 0));
    char byte;
    CHECK(read(pipes[0], &byte, 1) == 1);
    say("empty %d", events_of(outer, 0));
    uint64_t one = 1;
    CHECK(write(counter, &one, sizeof one) == sizeof one);
    say("counter %d", events_of(outer, -1));
    close(pipes[0]), close(pipes[1]), close(counter), close(inner), close(middle), close(outer);
}

static void refusals(void) {
    int epolls[7];
    for (int n = 0; n < 7; n++) epolls[n] = epoll_create1(0);
    for (int n = 0; n < 6; n++) say("upwards %d: %s", n, outcome(add(epolls[n + 1], epolls[n], EPOLLIN, 0)));
    say("twice %s", outcome(add(epolls[1], epolls[0], EPOLLIN, 0)));
    say("itself %s", outcome(add(epolls[0], epolls[0], EPOLLIN, 0)));
    say("a ring %s", outcome(add(epolls[0], epolls[2], EPOLLIN, 0)));
    say("exclusive %s", outcome(add(epolls[6], epolls[0], EPOLLIN | EPOLLEXCLUSIVE, 0)));
    say("none there %s", outcome(epoll_ctl(epolls[6], EPOLL_CTL_DEL, epolls[0], NULL)));
    for (int n = 0; n < 7; n++) close(epolls[n]);
    for (int n = 0; n < 7; n++) epolls[n] = epoll_create1(0);
    for (int n = 5; n >= 0; n--) say("downwards %d: %s", n, outcome(add(epolls[n + 1], epolls[n], EPOLLIN, 0)));
    for (int n = 0; n < 7; n++) close(epolls[n]);
}

static void scenario(void) {
    level_edge_once(0);
    level_edge_once(1);
    timers_and_signals();
    timer_two_below();
    a_child_writes();
    refusals();
}

int main(int argc, char** argv) { return serve(argc, argv, scenario); }
