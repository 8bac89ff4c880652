// poll, ppoll, select, epoll (level, edge, one-shot), eventfd, pipes and socket pairs inside the domain.
#include "serve.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/wait.h>

static int events_of(int epoll, int timeout_ms) {
    struct epoll_event event[8];
    int count = epoll_wait(epoll, event, 8, timeout_ms);
    for (int n = 0; n < count; n++) say("  event %x data %d", event[n].events, event[n].data.fd);
    return count;
}

static void add(int epoll, int fd, unsigned events, int label, int operation) {
    struct epoll_event event = {.events = events, .data.fd = label};
    CHECK(epoll_ctl(epoll, operation, fd, &event) == 0);
}

static void epolls(void) {
    int ends[2], epoll = epoll_create1(EPOLL_CLOEXEC);
    char buffer[64];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    add(epoll, ends[0], EPOLLIN, 1, EPOLL_CTL_ADD);
    say("add twice %s", outcome(epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], &(struct epoll_event){0})));
    say("nothing %d", events_of(epoll, 0));
    say("timeout %d", events_of(epoll, 20));
    write_all(ends[1], "abc", 3);
    say("level %d", events_of(epoll, -1));
    say("level again %d", events_of(epoll, -1));
    add(epoll, ends[0], EPOLLIN | EPOLLET, 2, EPOLL_CTL_MOD);
    say("edge %d", events_of(epoll, 0));
    say("edge again %d", events_of(epoll, 0));
    write_all(ends[1], "d", 1);
    say("edge after more %d", events_of(epoll, 0));
    say("read %s", outcome(read(ends[0], buffer, sizeof buffer)));
    add(epoll, ends[0], EPOLLIN | EPOLLONESHOT, 3, EPOLL_CTL_MOD);
    write_all(ends[1], "e", 1);
    say("oneshot %d", events_of(epoll, 0));
    write_all(ends[1], "f", 1);
    say("oneshot again %d", events_of(epoll, 0));
    add(epoll, ends[0], EPOLLIN | EPOLLOUT | EPOLLONESHOT, 4, EPOLL_CTL_MOD);
    say("rearmed %d", events_of(epoll, 0));
    add(epoll, ends[0], EPOLLIN | EPOLLRDHUP, 5, EPOLL_CTL_MOD);
    shutdown(ends[1], SHUT_WR);
    say("half closed %d", events_of(epoll, 0));
    close(ends[1]);
    say("closed %d", events_of(epoll, 0));
    say("delete %s", outcome(epoll_ctl(epoll, EPOLL_CTL_DEL, ends[0], NULL)));
    say("delete twice %s", outcome(epoll_ctl(epoll, EPOLL_CTL_DEL, ends[0], NULL)));
    close(ends[0]);
    close(epoll);
}

static void* write_later(void* fd) {
    usleep(20000);
    write_all((int)(long)fd, "x", 1);
    return NULL;
}

static void polls(void) {
    int ends[2];
    char buffer[8];
    pthread_t thread;
    CHECK(pipe2(ends, O_NONBLOCK) == 0);
    say("read empty %s", outcome(read(ends[0], buffer, 8)));
    struct pollfd fds[2] = {{.fd = ends[0], .events = POLLIN}, {.fd = ends[1], .events = POLLOUT}};
    say("poll %s", outcome(poll(fds, 2, 0)));
    say("revents %x %x", fds[0].revents, fds[1].revents);
    say("poll timeout %s", outcome(poll(fds, 1, 20)));
    CHECK(pthread_create(&thread, NULL, write_later, (void*)(long)ends[1]) == 0);
    say("poll woken %s", outcome(poll(fds, 1, 5000)));
    pthread_join(thread, NULL);
    say("read %s", outcome(read(ends[0], buffer, 8)));
    say("ppoll %s", outcome(ppoll(fds, 1, &(struct timespec){0, 10000000}, NULL)));
    fd_set readable;
    FD_ZERO(&readable);
    FD_SET(ends[0], &readable);
    struct timeval limit = {0, 20000};
    say("select %s set %d", outcome(select(ends[0] + 1, &readable, NULL, NULL, &limit)),
        FD_ISSET(ends[0], &readable));
    write_all(ends[1], "yz", 2);
    FD_SET(ends[0], &readable);
    say("pselect %s", outcome(pselect(ends[0] + 1, &readable, NULL, NULL, NULL, NULL)));
    int waiting = 0;
    say("FIONREAD %s", outcome(ioctl(ends[0], FIONREAD, &waiting)));
    say("waiting %d", waiting);
    close(ends[1]);
    say("read rest %s", outcome(read(ends[0], buffer, 8)));
    say("end of file %s", outcome(read(ends[0], buffer, 8)));
    fds[0].revents = 0;
    poll(fds, 1, 0);
    say("revents at end %x", fds[0].revents);
    close(ends[0]);
    say("poll bad fd %s", outcome(poll(fds, 1, 0)));
    say("revents bad fd %x", fds[0].revents);
}

static void fill_pipe(void) {
    int ends[2];
    char block[4096] = {0};
    CHECK(pipe2(ends, O_NONBLOCK) == 0);
    long total = 0;
    ssize_t written;
    while ((written = write(ends[1], block, sizeof block)) > 0) total += written;
    say("full after %ld %s", total, outcome(written));
    close(ends[0]);
    say("write to closed %s", outcome(write(ends[1], block, 1)));
    close(ends[1]);
}

static void eventfds(void) {
    uint64_t value = 5;
    int counter = eventfd(3, EFD_NONBLOCK), semaphore = eventfd(2, EFD_NONBLOCK | EFD_SEMAPHORE);
    say("eventfd write %s", outcome(write(counter, &value, 8)));
    say("eventfd read %s", outcome(read(counter, &value, 8)));
    say("value %lu", (unsigned long)value);
    say("eventfd empty %s", outcome(read(counter, &value, 8)));
    for (int n = 0; n < 3; n++) say("semaphore %s", outcome(read(semaphore, &value, 8)));
    say("short read %s", outcome(read(semaphore, &value, 4)));
    close(counter);
    close(semaphore);
}

static void timers(void) {
    uint64_t expirations = 0;
    int timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    struct itimerspec every = {.it_interval = {0, 10000000}, .it_value = {0, 10000000}};
    say("timerfd early %s", outcome(read(timer, &expirations, 8)));
    CHECK(timerfd_settime(timer, 0, &every, NULL) == 0);
    struct pollfd wait = {.fd = timer, .events = POLLIN};
    say("timerfd poll %s", outcome(poll(&wait, 1, 1000)));
    say("timerfd read %s", outcome(read(timer, &expirations, 8)));
    say("expired %d", expirations >= 1);
    order("expirations %lu", (unsigned long)expirations);
    close(timer);
}

// Blocked signals, read through descriptors: from this process, and from a child that finds its parent
// waiting.
static void signal_descriptors(void) {
    struct signalfd_siginfo seen[3];
    struct epoll_event event = {.events = EPOLLIN | EPOLLET}, got;
    sigset_t set, one, before;
    sigemptyset(&set);
    sigaddset(&set, SIGURG);  // ignored by default, yet kept while it is blocked
    sigaddset(&set, SIGUSR1);
    sigemptyset(&one);
    sigaddset(&one, SIGUSR2);
    sigprocmask(SIG_BLOCK, &set, &before);
    int fd = signalfd(-1, &one, SFD_NONBLOCK | SFD_CLOEXEC), epoll = epoll_create1(0);
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    CHECK(fd >= 0 && epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0);
    say("signalfd empty %s", outcome(read(fd, seen, sizeof seen)));
    raise(SIGUSR1);
    say("signalfd of others %s", outcome(poll(&wait, 1, 0)));
    say("signalfd again %d", signalfd(fd, &set, 0) == fd);
    say("signalfd on a pipe %s", outcome(signalfd(epoll, &set, 0)));
    say("signalfd short %s", outcome(read(fd, seen, 8)));
    kill(getpid(), SIGURG);
    say("signalfd edge %s", outcome(epoll_wait(epoll, &got, 1, 0)));
    say("signalfd no edge %s", outcome(epoll_wait(epoll, &got, 1, 0)));
    say("signalfd read %ld", (long)(read(fd, seen, sizeof seen) / (ssize_t)sizeof *seen));
    say("signalfd saw %u %u", seen[0].ssi_signo, seen[1].ssi_signo);
    for (int round = 0; round < 3; round++) {
        pid_t parent = getpid(), child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            usleep(20000);
            kill(parent, SIGURG);
            _exit(0);
        }
        if (round == 0) say("signalfd poll %s", outcome(poll(&wait, 1, 5000)));
        if (round == 1) say("signalfd epoll %s", outcome(epoll_wait(epoll, &got, 1, 5000)));
        if (round == 2) fcntl(fd, F_SETFL, 0);
        say("signalfd took %s", outcome(read(fd, seen, sizeof seen)));
        say("signalfd child %u", seen[0].ssi_signo);
        waitpid(child, NULL, 0);
    }
    close(fd);
    close(epoll);
    sigprocmask(SIG_SETMASK, &before, NULL);
}

static void vectors(void) {
    int ends[2];
    char a[4] = {0}, b[6] = {0};
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    struct iovec out[3] = {{"one", 3}, {"", 0}, {"three", 5}}, in[2] = {{a, 3}, {b, 5}};
    say("writev %s", outcome(writev(ends[0], out, 3)));
    say("readv %s", outcome(readv(ends[1], in, 2)));
    say("got %s %s", a, b);
    close(ends[0]);
    close(ends[1]);
}

static int all_done;

static void* watch_main(void* unused) {
    char text[512], state = '?';
    while (state != 'S') {
        usleep(1000);
        FILE* file = fopen("/proc/self/stat", "r");
        CHECK(file && fgets(text, sizeof text, file));
        fclose(file);
        state = strrchr(text, ')')[2];
    }
    CHECK(write(all_done, "x", 1) == 1);
    return unused;
}

// As tests do that want to be sure that somebody waits.
static void seen_asleep(void) {
    int pipes[2];
    char byte;
    pthread_t thread;
    CHECK(pipe(pipes) == 0);
    all_done = pipes[1];
    CHECK(pthread_create(&thread, NULL, watch_main, NULL) == 0);
    say("seen asleep: %s", outcome(read(pipes[0], &byte, 1)));
    pthread_join(thread, NULL);
    close(pipes[0]);
    close(pipes[1]);
}

/// As a server has them that gives each of its connections one.
static void many_timers(void) {
    enum { kMany = 600 };
    int fds[kMany], due = 0, epoll = epoll_create1(0);
    for (int i = 0; i < kMany; i++) {
        fds[i] = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
        CHECK(fds[i] >= 0);
        const struct itimerspec soon = {{0, 0}, {0, i % 2 ? 5000000 : 0}};
        CHECK(timerfd_settime(fds[i], 0, &soon, NULL) == 0);
        add(epoll, fds[i], EPOLLIN | EPOLLONESHOT, i, EPOLL_CTL_ADD);
    }
    struct epoll_event events[64];
    while (due < kMany / 2) {
        const int count = epoll_wait(epoll, events, 64, 5000);
        CHECK(count > 0);
        due += count;
    }
    say("due: %d, then %d", due, epoll_wait(epoll, events, 64, 20));
    for (int i = 0; i < kMany; i++) close(fds[i]);
    close(epoll);
}

// An end or an error is none of what is exceptional: it is told to who asked whether there is something to read,
// or room to write.
static int select_exceptional(int fd, int writes, fd_set* left) {
    struct timeval limit = {0, 50000};
    fd_set writable;
    FD_ZERO(left);
    FD_ZERO(&writable);
    FD_SET(fd, left);
    FD_SET(fd, &writable);
    return select(fd + 1, NULL, writes ? &writable : NULL, left, &limit);
}

static void exceptional(void) {
    int ends[2], pair[2];
    fd_set left;
    CHECK(pipe(ends) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    close(ends[1]);
    close(pair[1]);
    struct timespec begin;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    say("a pipe's end: %s", outcome(select_exceptional(ends[0], 0, &left)));
    say("slept: %d", ms_since(begin, CLOCK_MONOTONIC) >= 50);
    say("its end for who writes: %s", outcome(select_exceptional(ends[0], 1, &left)));
    say("a socket's: %s", outcome(select_exceptional(pair[0], 0, &left)));
    say("with room to write: %s, %d", outcome(select_exceptional(pair[0], 1, &left)), FD_ISSET(pair[0], &left) != 0);
    const int client = socket(AF_INET, SOCK_STREAM, 0), listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t length = sizeof at;
    CHECK(bind(listener, (struct sockaddr*)&at, length) == 0 && listen(listener, 5) == 0);
    CHECK(getsockname(listener, (struct sockaddr*)&at, &length) == 0);
    CHECK(connect(client, (struct sockaddr*)&at, length) == 0);
    const int served = accept(listener, NULL, NULL);
    CHECK(served >= 0 && shutdown(served, SHUT_RDWR) == 0 && shutdown(client, SHUT_WR) == 0);
    say("a connection's: %s", outcome(select_exceptional(client, 0, &left)));
    close(served);
    close(client);
    close(listener);
    close(ends[0]);
    close(pair[0]);
}

static void scenario(void) {
    many_timers();
    seen_asleep();
    epolls();
    polls();
    exceptional();
    fill_pipe();
    eventfds();
    timers();
    signal_descriptors();
    vectors();
}

int main(int argc, char** argv) {
    return serve(argc, argv, scenario);
}
