// What a call takes may lie where nothing can be written: by number, since libc itself copies some. And what
// a call takes and tells, as the kernel has it.
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/sched.h>
#include <linux/sched/types.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/un.h>

#include "in_children.h"

#define CALL(name, ...) TRY(syscall(SYS_##name, __VA_ARGS__))

/// A copy that can only be read.
#define KEPT(type, ...) ((type*)kept(&(type)__VA_ARGS__, sizeof(type)))

static void* kept(const void* what, size_t bytes) {
    char* page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(page != MAP_FAILED);
    memcpy(page, what, bytes);
    CHECK(mprotect(page, 4096, PROT_READ) == 0);
    return page;
}

static struct sockaddr_in* host(int port) {
    return KEPT(struct sockaddr_in,
                {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(INADDR_LOOPBACK)}});
}

static int port_of(int fd) {
    struct sockaddr_in at;
    socklen_t length = sizeof at;
    CHECK(getsockname(fd, (struct sockaddr*)&at, &length) == 0);
    return ntohs(at.sin_port);
}

static void sockets(void) {
    const int listener = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);
    const int datagrams = socket(AF_INET, SOCK_DGRAM, 0);
    int ends[2];
    CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) == 0);
    char* words = kept("text", 5);
    struct iovec* vector = KEPT(struct iovec, {words, 4});
    CALL(setsockopt, listener, SOL_SOCKET, SO_REUSEADDR, KEPT(int, {1}), sizeof(int));
    CALL(setsockopt, client, SOL_SOCKET, SO_RCVTIMEO, KEPT(struct timeval, {5, 0}), sizeof(struct timeval));
    CALL(bind, listener, host(0), sizeof(struct sockaddr_in));
    CALL(listen, listener, 5);
    CALL(connect, client, host(port_of(listener)), sizeof(struct sockaddr_in));
    CALL(ioctl, listener, FIONBIO, KEPT(int, {1}));
    CALL(ioctl, ends[0], FIONBIO, KEPT(int, {1}));
    CALL(ioctl, datagrams, FIONBIO, KEPT(int, {1}));
    CALL(accept, datagrams, NULL, NULL);
    CALL(write, client, words, 4);
    CALL(sendto, client, words, 4, 0, NULL, 0);
    CALL(sendmsg, client, KEPT(struct msghdr, {.msg_iov = vector, .msg_iovlen = 1}), 0);
    CALL(sendmsg, ends[1], KEPT(struct msghdr, {.msg_iov = vector, .msg_iovlen = 1}), 0);
    CALL(writev, client, vector, 1);
    CALL(bind, datagrams, host(0), sizeof(struct sockaddr_in));
    CALL(sendto, datagrams, words, 4, 0, host(port_of(datagrams)), sizeof(struct sockaddr_in));
    CALL(sendmsg, datagrams,
         KEPT(struct msghdr, {.msg_name = host(port_of(datagrams)),
                              .msg_namelen = sizeof(struct sockaddr_in),
                              .msg_iov = vector,
                              .msg_iovlen = 1}),
         0);
    CALL(recvfrom, datagrams, words, 4, 0, NULL, NULL);
    CALL(recvmsg, datagrams,
         KEPT(struct msghdr, {.msg_iov = KEPT(struct iovec, {(char[9]){0}, 9}), .msg_iovlen = 1}), 0);
    CALL(getsockname, client, host(0), KEPT(socklen_t, {sizeof(struct sockaddr_in)}));
    CALL(getsockopt, client, SOL_SOCKET, SO_TYPE, KEPT(int, {0}), KEPT(socklen_t, {sizeof(int)}));
    const int queue = epoll_create1(0);
    CALL(epoll_ctl, queue, EPOLL_CTL_ADD, listener, KEPT(struct epoll_event, {.events = EPOLLIN}));
    CALL(epoll_ctl, queue, EPOLL_CTL_MOD, listener, KEPT(struct epoll_event, {.events = EPOLLOUT}));
    CALL(epoll_wait, queue, KEPT(struct epoll_event, {.events = EPOLLIN}), 1, 0);
    CALL(ppoll, KEPT(struct pollfd, {client, POLLOUT, 0}), 1, KEPT(struct timespec, {0, 1000}), NULL, 8);
    CALL(ppoll, (&(struct pollfd){client, POLLIN, 0}), 1, KEPT(struct timespec, {0, 1000}),
         KEPT(sigset_t, {{1}}), 8);
    fd_set wanted;
    FD_ZERO(&wanted);
    FD_SET(client, &wanted);
    CALL(select, client + 1, &wanted, NULL, NULL, KEPT(struct timeval, {0, 1000}));
    FD_SET(client, &wanted);
    CALL(pselect6, client + 1, NULL, &wanted, NULL, KEPT(struct timespec, {0, 1000}), NULL);
    CALL(select, client + 1, NULL, kept(&wanted, sizeof wanted), NULL, KEPT(struct timeval, {0, 1000}));
    const int fds[] = {listener, client, datagrams, ends[0], ends[1], queue};
    for (size_t i = 0; i < sizeof fds / sizeof *fds; ++i) close(fds[i]);
}

static void nothing(int signal) {
    (void)signal;
}

static void times(void) {
    timer_t timer = NULL;
    struct itimerspec left;
    CHECK(timer_create(CLOCK_MONOTONIC, &(struct sigevent){.sigev_notify = SIGEV_NONE}, &timer) == 0);
    TRY(timer_settime(timer, 0, KEPT(struct itimerspec, {{0, 0}, {9, 0}}), &left));
    timer_delete(timer);
    const int fd = timerfd_create(CLOCK_MONOTONIC, 0),
              signals = signalfd(-1, &(sigset_t){{1 << (SIGUSR1 - 1)}}, 0);
    unsigned char room[128];
    CALL(ioctl, fd, FIONBIO, KEPT(int, {1}));
    CALL(ioctl, signals, FIONBIO, KEPT(int, {1}));
    CALL(read, fd, room, sizeof room);
    CALL(read, signals, room, sizeof room);
    say("flags %x %x", fcntl(fd, F_GETFL) & O_NONBLOCK, fcntl(signals, F_GETFL) & O_NONBLOCK);
    close(signals);
    CALL(timerfd_settime, fd, 0, KEPT(struct itimerspec, {{0, 0}, {9, 0}}), NULL);
    close(fd);
    CALL(setitimer, ITIMER_REAL, KEPT(struct itimerval, {{0, 0}, {9, 0}}), NULL);
    CALL(setitimer, ITIMER_REAL, KEPT(struct itimerval, {{0, 0}, {0, 0}}), NULL);
    CALL(nanosleep, KEPT(struct timespec, {0, 1000}), NULL);
    CALL(clock_nanosleep, CLOCK_MONOTONIC, 0, KEPT(struct timespec, {0, 1000}), NULL);
    CALL(futex, KEPT(int, {3}), FUTEX_WAIT_PRIVATE, 4, NULL, NULL, 0);
    CALL(futex, KEPT(int, {3}), FUTEX_WAIT_PRIVATE, 3, KEPT(struct timespec, {0, 1000}), NULL, 0);
    CALL(futex, KEPT(int, {3}), FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
    CALL(utimensat, AT_FDCWD, "/tmp", KEPT(struct timespec, {0, UTIME_OMIT}), 0);
}

/// By number, what was not slept is left in place.
static void left(void) {
    struct timespec time = {5, 0}, slept = {0, 1000};
    struct pollfd ready = {0};
    const int ends[] = {epoll_create1(0), timerfd_create(CLOCK_MONOTONIC, 0)};
    ready.fd = ends[1];
    ready.events = POLLIN;
    CHECK(timerfd_settime(ends[1], 0, &(struct itimerspec){{0, 0}, {0, 1000000}}, NULL) == 0);
    say("ppoll %ld", syscall(SYS_ppoll, &ready, 1, &time, NULL, 8));
    say("left: less %d, most %d", time.tv_sec < 5, time.tv_sec == 4 && time.tv_nsec > 0);
    say("pselect6 %ld", syscall(SYS_pselect6, 0, NULL, NULL, NULL, &slept, NULL));
    say("left: %ld.%09ld", slept.tv_sec, slept.tv_nsec);
    close(ends[0]);
    close(ends[1]);
}

static void processes(void) {
    const struct sigaction act = {.sa_handler = nothing};
    TRY(sigaction(SIGUSR1, kept(&act, sizeof act), NULL));
    CALL(rt_sigprocmask, SIG_BLOCK, KEPT(sigset_t, {{1 << (SIGUSR2 - 1)}}), NULL, 8);
    CALL(rt_sigtimedwait, KEPT(sigset_t, {{1 << (SIGUSR2 - 1)}}), NULL, KEPT(struct timespec, {0, 1000}), 8);
    CALL(kill, getpid(), SIGUSR2);
    CALL(rt_sigtimedwait, KEPT(sigset_t, {{1 << (SIGUSR2 - 1)}}), NULL, KEPT(struct timespec, {5, 0}), 8);
    CALL(prlimit64, 0, RLIMIT_NOFILE, KEPT(struct rlimit, {900, 900}), NULL);
    CALL(sched_setscheduler, 0, 0, KEPT(int, {0}));
    CALL(sched_setattr, 0, KEPT(struct sched_attr, {.size = sizeof(struct sched_attr)}), 0);
    stack_t stack = {malloc(65536), 0, 65536};
    CALL(sigaltstack, kept(&stack, sizeof stack), NULL);
}

static void others(void) {
    const int file = open("/tmp", O_TMPFILE | O_RDWR, 0600);
    const struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    CHECK(file >= 0);
    CALL(fcntl, file, F_SETLK, kept(&whole, sizeof whole));
    CALL(fcntl, file, F_OFD_SETLK, kept(&whole, sizeof whole));
    CALL(pwritev, file, KEPT(struct iovec, {kept("some", 4), 4}), 1, 0, 0);
    int ends[2];
    CHECK(pipe(ends) == 0);
    CALL(ioctl, ends[0], FIONBIO, KEPT(int, {1}));
    CALL(read, ends[0], (char[9]){0}, 9);
    CALL(splice, file, KEPT(long, {0}), ends[1], NULL, 4, 0);
    CALL(sendfile, ends[1], file, KEPT(long, {0}), 4);
    const int queue = msgget(IPC_PRIVATE, 0600), count = semget(IPC_PRIVATE, 1, 0600);
    struct {
        long type;
        char text[4];
    } message = {1, "abc"};
    CALL(msgsnd, queue, kept(&message, sizeof message), 4, 0);
    CALL(semop, count, KEPT(struct sembuf, {0, 1, 0}), 1);
    CALL(semtimedop, count, KEPT(struct sembuf, {0, 0, 0}), 1, KEPT(struct timespec, {0, 1000}));
    msgctl(queue, IPC_RMID, NULL);
    semctl(count, 0, IPC_RMID);
    close(file);
    close(ends[0]);
    close(ends[1]);
}

static void scenario(void) {
    sockets();
    times();
    left();
    processes();
    others();
}

int main(int argc, char** argv) {
    return serve(argc, argv, scenario);
}
