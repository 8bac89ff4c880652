// Sockets at their limits: a client for whom there is no descriptor, datagrams to a port that nobody has,
// ports that are taken, ends of various kinds.
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "serve.h"

static struct sockaddr_in near(int port) {
    return (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
}

static int bound(int type, int port) {
    const int fd = socket(AF_INET, type, 0);
    const struct sockaddr_in at = near(port);
    CHECK(fd >= 0 && bind(fd, (const struct sockaddr*)&at, sizeof at) == 0);
    return fd;
}

static int port_of(int fd) {
    struct sockaddr_in at;
    socklen_t length = sizeof at;
    CHECK(getsockname(fd, (struct sockaddr*)&at, &length) == 0);
    return ntohs(at.sin_port);
}

/// It goes on waiting.
static void client_without_descriptor(void) {
    const int listener = bound(SOCK_STREAM | SOCK_NONBLOCK, 0), client = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(listen(listener, 5) == 0);
    const struct sockaddr_in to = near(port_of(listener));
    CHECK(connect(client, (const struct sockaddr*)&to, sizeof to) == 0 && write(client, "hello", 5) == 5);
    struct rlimit before, low;
    CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
    low = before;
    const int first_free = dup(client);
    close(first_free);
    low.rlim_cur = first_free;
    CHECK(setrlimit(RLIMIT_NOFILE, &low) == 0);
    for (int i = 0; i < 2; i++) say("no descriptor: %s", outcome(accept(listener, NULL, NULL)));
    CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
    const int served = accept(listener, NULL, NULL);
    char text[9] = "";
    say("then: %d, %s %s", served == first_free, outcome(read(served, text, 5)), text);
    close(served);
    close(client);
    close(listener);
}

static void port_of_nobody(void) {
    const int gone = bound(SOCK_DGRAM, 0), fd = socket(AF_INET, SOCK_DGRAM, 0), queue = epoll_create1(0);
    const struct sockaddr_in to = near(port_of(gone));
    struct epoll_event event = {.events = EPOLLIN};
    char byte;
    close(gone);
    CHECK(connect(fd, (const struct sockaddr*)&to, sizeof to) == 0);
    CHECK(epoll_ctl(queue, EPOLL_CTL_ADD, fd, &event) == 0);
    say("sent: %s", outcome(send(fd, "x", 1, 0)));
    const int ready = epoll_wait(queue, &event, 1, 5000);
    say("ready: %d, error %d, input %d", ready, !!(event.events & EPOLLERR), !!(event.events & EPOLLIN));
    say("received: %s", outcome(recv(fd, &byte, 1, MSG_DONTWAIT)));
    say("ready: %d", epoll_wait(queue, &event, 1, 0));
    close(fd);
    close(queue);
}

/// More often than there are ports to give.
static void ports_go_round(void) {
    const int listener = bound(SOCK_STREAM, 0);
    int failed = 0;
    CHECK(listen(listener, 5) == 0);
    for (int i = 0; i < 17000; i++) {
        const int fd = socket(AF_INET, SOCK_STREAM, 0);
        const struct sockaddr_in any = near(0);
        failed += bind(fd, (const struct sockaddr*)&any, sizeof any) != 0;
        close(fd);
    }
    say("failed: %d", failed);
    close(listener);
}

static int error_of(int fd) {
    int error = -1;
    socklen_t length = sizeof error;
    CHECK(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0);
    return error;
}

static volatile sig_atomic_t broken_pipes;
static void count_broken_pipe(int signal) {
    (void)signal;
    broken_pipes++;
}

/// The other end closes with something unread, having said that it would send no more, or not.
static void reset_by_other_end(int says_end, const char* asks) {
    const int listener = bound(SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(listen(listener, 5) == 0);
    const struct sockaddr_in to = near(port_of(listener));
    CHECK(connect(client, (const struct sockaddr*)&to, sizeof to) == 0);
    const int served = accept(listener, NULL, NULL);
    CHECK(write(client, "last words", 10) == 10 && write(served, "unread", 6) == 6);
    if (says_end) CHECK(shutdown(client, SHUT_WR) == 0);
    close(client);
    char text[11] = "";
    broken_pipes = 0;
    say("%s, end said %d", asks, says_end);
    for (const char* next = asks; *next; next++) {
        if (*next == 'e') say("  error %s", strerror(error_of(served)));
        if (*next == 'r') say("  read %s %s", outcome(read(served, text, 10)), text);
        if (*next == 'w') say("  write %s", outcome(write(served, "x", 1)));
        text[0] = 0;
    }
    say("  signals %d", (int)broken_pipes);
    close(served);
    close(listener);
}

static void resets(void) {
    signal(SIGPIPE, count_broken_pipe);
    for (int says_end = 0; says_end < 2; says_end++) {
        const char* const orders[] = {"ww", "rrrw", "wrr", "ee", "rerw", "rwr"};
        for (unsigned i = 0; i < sizeof orders / sizeof *orders; i++) reset_by_other_end(says_end, orders[i]);
    }
    signal(SIGPIPE, SIG_IGN);
}

enum { kReuseAddress = 1, kReusePort = 2, kListens = 4 };

static int taking(int port, int how) {
    const int fd = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
    const struct sockaddr_in at = near(port);
    if (how & kReuseAddress) CHECK(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0);
    if (how & kReusePort) CHECK(setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &yes, sizeof yes) == 0);
    if (bind(fd, (const struct sockaddr*)&at, sizeof at) == 0 && (!(how & kListens) || listen(fd, 5) == 0))
        return fd;
    const int error = errno;
    close(fd);
    errno = error;
    return -1;
}

/// "Only one of us": a port that is bound, and never listened on.
static void bound_ports(void) {
    for (int first = 0; first < 8; first++) {
        for (int second = 0; second < 8; second++) {
            const int one = taking(0, first), port = port_of(one), other = taking(port, second);
            say("bound %d beside %d: %s", second, first, other < 0 ? strerrorname_np(errno) : "0");
            if (other >= 0) say("  then the first listens: %s", outcome(listen(one, 5)));
            close(one);
            if (other >= 0) close(other);
            const int again = taking(port, second);
            CHECK(again >= 0);
            close(again);
        }
    }
    const int held = taking(0, 0), port = port_of(held);
    fflush(NULL);
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) _exit(taking(port, 0) < 0 ? errno : 0);
    close(held);
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    say("the child: %s", WEXITSTATUS(status) ? "taken" : "has it");
}

static void other_transports(void) {
    const int kinds[][3] = {{AF_INET, SOCK_STREAM, IPPROTO_UDP},
                            {AF_INET, SOCK_DGRAM, IPPROTO_TCP},
                            {AF_INET6, SOCK_STREAM, IPPROTO_UDP},
                            {AF_INET, SOCK_STREAM, IPPROTO_SCTP},
                            {AF_INET, SOCK_STREAM, 262},
                            {AF_INET, SOCK_STREAM, -1},
                            {AF_INET, SOCK_STREAM, 5000},
                            {AF_INET, SOCK_SEQPACKET, 0},
                            {AF_INET, SOCK_SEQPACKET, IPPROTO_SCTP}};
    for (unsigned i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const int fd = socket(kinds[i][0], kinds[i][1], kinds[i][2]);
        // Whether there is SCTP and MPTCP is for the kernel's modules to say.
        (kinds[i][2] == IPPROTO_SCTP || kinds[i][2] == 262 ? order : say)(
            "transport %u: %s", i, fd < 0 ? strerrorname_np(errno) : "0");
        if (fd >= 0) close(fd);
    }
}

static int receiver;

static void* receive(void* result) {
    char byte;
    *(long*)result = recvfrom(receiver, &byte, 1, 0, NULL, NULL);
    return NULL;
}

static void shut_down(void) {
    char text[4] = "";
    const int from = socket(AF_INET, SOCK_DGRAM, 0);
    receiver = bound(SOCK_DGRAM, 0);
    const struct sockaddr_in to = near(port_of(receiver));
    pthread_t thread;
    long received = -1;
    CHECK(pthread_create(&thread, NULL, receive, &received) == 0);
    usleep(50000);
    say("shut: %s", outcome(shutdown(receiver, SHUT_RDWR)));
    CHECK(pthread_join(thread, NULL) == 0);
    say("who waited received %ld", received);
    struct pollfd poll_for = {receiver, POLLIN | POLLRDHUP, 0};
    CHECK(poll(&poll_for, 1, 0) == 1);
    say("events %x", poll_for.revents);
    say("not waiting: %s", outcome(recv(receiver, text, 3, MSG_DONTWAIT)));
    say("waiting: %s", outcome(recv(receiver, text, 3, 0)));
    CHECK(sendto(from, "abc", 3, 0, (const struct sockaddr*)&to, sizeof to) == 3);
    say("what comes all the same: %s %s", outcome(recv(receiver, text, 3, 0)), text);
    say("to nobody: %s", outcome(send(receiver, "x", 1, 0)));
    say("to somebody: %s", outcome(sendto(receiver, "x", 1, 0, (const struct sockaddr*)&to, sizeof to)));
    struct iovec one = {"x", 1};
    struct msghdr message = {.msg_name = (void*)&to, .msg_iov = &one, .msg_iovlen = 1};
    say("to a name of no bytes: %s", outcome(sendmsg(from, &message, 0)));
    CHECK(connect(from, (const struct sockaddr*)&to, sizeof to) == 0);
    say("connected: %s", outcome(sendmsg(from, &message, 0)));
    close(from);
    close(receiver);
    const int listener = bound(SOCK_STREAM | SOCK_NONBLOCK, 0);
    CHECK(listen(listener, 5) == 0);
    say("a listener for writing: %s", outcome(shutdown(listener, SHUT_WR)));
    say("still listens: %s", outcome(accept(listener, NULL, NULL)));
    say("for reading: %s", outcome(shutdown(listener, SHUT_RD)));
    say("no more: %s", outcome(accept(listener, NULL, NULL)));
    close(listener);
}

static void disconnected(void) {
    const struct sockaddr nobody = {.sa_family = AF_UNSPEC};
    const int listener = bound(SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);
    const struct sockaddr_in to = near(port_of(listener));
    char text[4] = "";
    CHECK(listen(listener, 5) == 0);
    say("never connected: %s", outcome(connect(client, &nobody, sizeof nobody)));
    CHECK(connect(client, (const struct sockaddr*)&to, sizeof to) == 0);
    int served = accept(listener, NULL, NULL);
    CHECK(write(client, "abc", 3) == 3);
    say("disconnected: %s", outcome(connect(client, &nobody, sizeof nobody)));
    say("its end: %s", outcome(read(client, text, 3)));
    say("then: %s", outcome(read(client, text, 3)));
    say("and: %s", outcome(write(client, "x", 1)));
    say("the other: %s %s", outcome(read(served, text, 3)), text);
    say("then: %s", outcome(read(served, text, 3)));
    close(served);
    CHECK(connect(client, (const struct sockaddr*)&to, sizeof to) == 0 && write(client, "def", 3) == 3);
    served = accept(listener, NULL, NULL);
    say("again: %s %s", outcome(read(served, text, 3)), text);
    close(served);
    close(client);
    say("too short: %s", outcome(connect(listener, &nobody, 1)));
    say("a listener: %s", outcome(connect(listener, &nobody, sizeof nobody)));
    say("accepts: %s", outcome(accept(listener, NULL, NULL)));
    close(listener);
}

static void timeouts(void) {
    const int fd = bound(SOCK_DGRAM, 0);
    const struct timeval given[] = {{1, 1000000}, {1, -1}, {-1, 0}, {0, 20000}};
    char byte;
    for (unsigned i = 0; i < sizeof given / sizeof *given; i++) {
        const int set = setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &given[i], sizeof *given);
        say("timeout %u: %s", i, outcome(set));
        if (set == 0) say("  %s", outcome(recv(fd, &byte, 1, 0)));
    }
    close(fd);
}

/// How much a unix socket takes is not the host's business.
static void unix_room(void) {
    static char bytes[4096];
    int ends[2], size = 0, much = 1 << 24;
    socklen_t length = sizeof size;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
    CHECK(getsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &size, &length) == 0);
    long all = 0;
    for (long n; (n = write(ends[0], bytes, sizeof bytes)) > 0;) all += n;
    order("room %d, took %ld", size, all);
    CHECK(setsockopt(ends[1], SOL_SOCKET, SO_SNDBUF, &much, sizeof much) == 0);
    CHECK(getsockopt(ends[1], SOL_SOCKET, SO_SNDBUF, &size, &length) == 0);
    order("at most %d", size);
    close(ends[0]);
    close(ends[1]);
}

/// A unix socket's name that the kernel chooses.
static void chosen_name(void) {
    const int fd = socket(AF_UNIX, SOCK_DGRAM, 0), other = socket(AF_UNIX, SOCK_DGRAM, 0);
    const struct sockaddr_un none = {.sun_family = AF_UNIX};
    struct sockaddr_un at = none;
    socklen_t length = sizeof at;
    CHECK(bind(fd, (const struct sockaddr*)&none, sizeof none.sun_family) == 0);
    CHECK(bind(other, (const struct sockaddr*)&none, sizeof none.sun_family) == 0);
    CHECK(getsockname(fd, (struct sockaddr*)&at, &length) == 0);
    say("a name of %u bytes, abstract %d", (unsigned)length, at.sun_path[0] == 0);
    order("name %.5s", at.sun_path + 1);
    say("again: %s", outcome(bind(fd, (const struct sockaddr*)&none, sizeof none.sun_family)));
    CHECK(sendto(other, "abc", 3, 0, (const struct sockaddr*)&at, length) == 3);
    char text[4] = "";
    say("reached: %s %s", outcome(recv(fd, text, 3, 0)), text);
    close(fd);
    close(other);
}

// Descriptors of timers and of signals are none.
static void no_sockets(int fd, const char* what) {
    struct sockaddr_in at = near(0);
    struct msghdr message = {0};
    struct stat info;
    socklen_t length = sizeof at;
    int value = 1;
    socklen_t size = sizeof value;
    say("%s: bind %s", what, outcome(bind(fd, (struct sockaddr*)&at, sizeof at)));
    say("listen %s", outcome(listen(fd, 1)));
    say("accept %s", outcome(accept(fd, NULL, NULL)));
    say("connect %s", outcome(connect(fd, (struct sockaddr*)&at, sizeof at)));
    say("shutdown %s", outcome(shutdown(fd, 77)));
    say("getsockname %s", outcome(getsockname(fd, (struct sockaddr*)&at, &length)));
    say("getpeername %s", outcome(getpeername(fd, (struct sockaddr*)&at, &length)));
    say("setsockopt %s", outcome(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &value, sizeof value)));
    say("getsockopt %s", outcome(getsockopt(fd, SOL_SOCKET, SO_TYPE, &value, &size)));
    say("send %s", outcome(send(fd, "x", 1, MSG_NOSIGNAL)));
    say("recv %s", outcome(recv(fd, &value, 1, MSG_DONTWAIT)));
    say("sendmsg %s", outcome(sendmsg(fd, &message, 0)));
    say("recvmsg %s", outcome(recvmsg(fd, &message, MSG_DONTWAIT)));
    say("write %s", outcome(write(fd, "12345678", 8)));
    CHECK(fstat(fd, &info) == 0);
    say("mode %o", info.st_mode);
    close(fd);
}

static void scenario(void) {
    sigset_t none;
    sigemptyset(&none);
    no_sockets(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK), "a timer");
    no_sockets(signalfd(-1, &none, SFD_NONBLOCK), "signals");
    bound_ports();
    other_transports();
    shut_down();
    disconnected();
    timeouts();
    unix_room();
    chosen_name();
    resets();
    client_without_descriptor();
    port_of_nobody();
    ports_go_round();
}

int main(int argc, char** argv) {
    return serve(argc, argv, scenario);
}
