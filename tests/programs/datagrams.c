// UDP between sockets of one server: what comes whole, cut, peeked at, to whom, from whom, and what is refused.
#include <poll.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/wait.h>

#include "serve.h"

static int make(int family, int flags) {
    const int fd = socket(family, SOCK_DGRAM | flags, 0);
    CHECK(fd >= 0);
    return fd;
}

static struct sockaddr_in local(int port) {
    return (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
}

static struct sockaddr_in bound(int fd) {
    struct sockaddr_in address = local(0);
    socklen_t length = sizeof address;
    CHECK(bind(fd, (struct sockaddr*)&address, sizeof address) == 0);
    CHECK(getsockname(fd, (struct sockaddr*)&address, &length) == 0);
    return address;
}

static int port_of(int fd) {
    struct sockaddr_in address;
    socklen_t length = sizeof address;
    CHECK(getsockname(fd, (struct sockaddr*)&address, &length) == 0);
    return ntohs(address.sin_port);
}

static long to(int fd, const char* text, struct sockaddr_in where) {
    return sendto(fd, text, strlen(text), 0, (struct sockaddr*)&where, sizeof where);
}

static void whole(void) {
    const int a = make(AF_INET, 0), b = make(AF_INET, SOCK_NONBLOCK);
    const struct sockaddr_in at_b = bound(b);
    char text[64] = "";
    say("nothing there: %s", outcome(recv(b, text, sizeof text, 0)));
    say("sent %s", outcome(to(a, "first", at_b)));
    say("sent %s", outcome(to(a, "second one", at_b)));
    say("sent %s", outcome(to(a, "", at_b)));
    int next = -1;
    say("FIONREAD %s: %d", outcome(ioctl(b, FIONREAD, &next)), next);
    struct sockaddr_in from;
    socklen_t length = sizeof from;
    say("peeked %s", outcome(recv(b, text, 3, MSG_PEEK | MSG_TRUNC)));
    say("got %s", outcome(recvfrom(b, text, sizeof text, 0, (struct sockaddr*)&from, &length)));
    say("%.5s, from the other: %d, %d", text, from.sin_port == htons(port_of(a)),
        from.sin_addr.s_addr == htonl(INADDR_LOOPBACK));
    struct iovec pieces[2] = {{text, 2}, {text + 10, 4}};
    struct msghdr message = {.msg_iov = pieces, .msg_iovlen = 2, .msg_name = &from, .msg_namelen = sizeof from};
    say("got %s", outcome(recvmsg(b, &message, 0)));
    say("%.2s %.4s, cut %d, name of %d bytes", text, text + 10, (message.msg_flags & MSG_TRUNC) != 0,
        (int)message.msg_namelen);
    say("an empty one %s", outcome(read(b, text, sizeof text)));
    say("then nothing %s", outcome(read(b, text, sizeof text)));
    close(a);
    close(b);
}

static void connected(void) {
    const int a = make(AF_INET, 0), b = make(AF_INET, 0), c = make(AF_INET, 0);
    const struct sockaddr_in at_a = bound(a), at_b = bound(b);
    char text[64] = "";
    struct sockaddr_in peer;
    socklen_t length = sizeof peer;
    say("no peer: %s", outcome(send(a, "x", 1, 0)));
    say("getpeername %s", outcome(getpeername(a, (struct sockaddr*)&peer, &length)));
    say("connect %s", outcome(connect(a, (struct sockaddr*)&at_b, sizeof at_b)));
    say("getpeername %s", outcome(getpeername(a, (struct sockaddr*)&peer, &length)));
    say("it is %d", peer.sin_port == at_b.sin_port);
    say("write %s", outcome(write(a, "hello", 5)));
    say("read %s", outcome(read(b, text, sizeof text)));
    to(c, "from a stranger", at_a);
    say("a stranger's: %s", outcome(recv(a, text, sizeof text, MSG_DONTWAIT)));
    to(b, "from the peer", at_a);
    say("the peer's: %s", outcome(recv(a, text, sizeof text, MSG_DONTWAIT)));
    close(b);
    say("to nobody %s", outcome(send(a, "x", 1, 0)));
    struct pollfd look = {.fd = a, .events = POLLIN};
    say("poll %s: error %d", outcome(poll(&look, 1, 1000)), (look.revents & POLLERR) != 0);
    int error = 0;
    length = sizeof error;
    getsockopt(a, SOL_SOCKET, SO_ERROR, &error, &length);
    say("SO_ERROR %s", code(error));
    to(a, "x", at_b);
    say("and again %s", outcome(recv(a, text, sizeof text, 0)));
    const struct sockaddr nobody = {.sa_family = AF_UNSPEC};
    say("dissolved %s", outcome(connect(a, &nobody, sizeof nobody)));
    const int any = make(AF_INET, 0);
    struct sockaddr_in own = {.sin_family = AF_INET};
    CHECK(bind(any, (struct sockaddr*)&own, sizeof own) == 0);
    for (int i = 0; i < 3; ++i) {
        length = sizeof own;
        CHECK(getsockname(any, (struct sockaddr*)&own, &length) == 0);
        say("bound to %s", inet_ntoa(own.sin_addr));
        if (i < 2) connect(any, i ? &nobody : (struct sockaddr*)&at_a, sizeof at_a);
    }
    close(any);
    say("no peer: %s", outcome(send(a, "x", 1, 0)));
    say("not connected %s", outcome(to(c, "x", at_b)));
    say("listen %s", outcome(listen(a, 1)));
    say("accept %s", outcome(accept(a, NULL, NULL)));
    say("shutdown %s", outcome(shutdown(a, SHUT_RDWR)));
    close(a);
    close(c);
}

static void names(void) {
    const int a = make(AF_INET, 0), b = make(AF_INET, 0);
    const struct sockaddr_in at_a = bound(a);
    const int yes = 1;
    int value = 0;
    socklen_t length = sizeof value;
    say("taken: %s", outcome(bind(b, (struct sockaddr*)&at_a, sizeof at_a)));
    say("again: %s", outcome(bind(a, (struct sockaddr*)&at_a, sizeof at_a)));
    setsockopt(a, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    setsockopt(b, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    say("shared: %s", outcome(bind(b, (struct sockaddr*)&at_a, sizeof at_a)));
    getsockopt(a, SOL_SOCKET, SO_TYPE, &value, &length);
    say("SO_TYPE %d", value == SOCK_DGRAM);
    getsockopt(a, SOL_SOCKET, SO_PROTOCOL, &value, &length);
    say("SO_PROTOCOL %d", value == IPPROTO_UDP);
    for (int i = 0; i < 2; ++i) {
        getsockopt(a, SOL_SOCKET, i ? SO_SNDBUF : SO_RCVBUF, &value, &length);
        say("buffer %d", value);
    }
    setsockopt(a, SOL_SOCKET, SO_SNDBUF, &(int){1}, sizeof(int));
    getsockopt(a, SOL_SOCKET, SO_SNDBUF, &value, &length);
    say("SO_SNDBUF %d", value);
    setsockopt(a, SOL_SOCKET, SO_RCVBUF, &(int){8192}, sizeof(int));
    getsockopt(a, SOL_SOCKET, SO_RCVBUF, &value, &length);
    say("SO_RCVBUF %d", value);
    static char large[70000];
    struct sockaddr_in where = at_a;
    say("too long %s", outcome(sendto(b, large, 65508, 0, (struct sockaddr*)&where, sizeof where)));
    say("bad buffer %s", outcome(sendto(b, (void*)8, 10, 0, (struct sockaddr*)&where, sizeof where)));
    close(a);
    close(b);
}

static void overflow(void) {
    const int a = make(AF_INET, 0), b = make(AF_INET, SOCK_NONBLOCK);
    const struct sockaddr_in at_b = bound(b);
    char text[1000];
    setsockopt(b, SOL_SOCKET, SO_RCVBUF, &(int){16384}, sizeof(int));
    int sent = 0, got = 0;
    memset(text, 'x', sizeof text);
    for (int i = 0; i < 500; ++i) sent += sendto(a, text, sizeof text, 0, (struct sockaddr*)&at_b, sizeof at_b) > 0;
    while (recv(b, text, sizeof text, 0) > 0) ++got;
    say("sent %d, some were lost %d, some came %d", sent, got < sent, got > 3);
    order("came %d", got);
    close(a);
    close(b);
}

static void waits(void) {
    const int a = make(AF_INET, 0), b = make(AF_INET, 0), epoll = epoll_create1(0);
    const struct sockaddr_in at_b = bound(b);
    char text[64];
    struct epoll_event event = {.events = EPOLLIN | EPOLLET};
    CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, b, &event) == 0);
    say("epoll %s", outcome(epoll_wait(epoll, &event, 1, 0)));
    to(a, "1", at_b);
    say("epoll %s", outcome(epoll_wait(epoll, &event, 1, 1000)));
    say("seen %s", outcome(epoll_wait(epoll, &event, 1, 0)));
    to(a, "2", at_b);
    say("epoll %s", outcome(epoll_wait(epoll, &event, 1, 1000)));
    fd_set set;
    FD_ZERO(&set);
    FD_SET(b, &set);
    say("select %s", outcome(select(b + 1, &set, NULL, NULL, NULL)));
    read(b, text, sizeof text);
    read(b, text, sizeof text);
    const struct timeval soon = {.tv_usec = 20000};
    setsockopt(b, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon);
    say("timeout %s", outcome(read(b, text, sizeof text)));
    // A child that answers.
    const pid_t child = fork();
    if (child == 0) {
        struct sockaddr_in from;
        socklen_t length = sizeof from;
        setsockopt(b, SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){10, 0}, sizeof soon);
        const ssize_t got = recvfrom(b, text, sizeof text, 0, (struct sockaddr*)&from, &length);
        if (got > 0) sendto(b, text, got, 0, (struct sockaddr*)&from, length);
        _exit(got);
    }
    to(a, "to the child", at_b);
    say("answer %s", outcome(read(a, text, sizeof text)));
    int status;
    waitpid(child, &status, 0);
    say("child had %d", WEXITSTATUS(status));
    close(epoll);
    close(a);
    close(b);
}

static void many(void) {
    const int a = make(AF_INET, 0), b = make(AF_INET, 0);
    struct sockaddr_in at_b = bound(b);
    const int yes = 1;
    char text[4][16];
    struct iovec pieces[4];
    struct mmsghdr messages[4] = {0};
    for (int i = 0; i < 4; ++i) {
        snprintf(text[i], sizeof text[i], "number %d", i);
        pieces[i] = (struct iovec){text[i], strlen(text[i])};
        messages[i].msg_hdr = (struct msghdr){
            .msg_name = &at_b, .msg_namelen = sizeof at_b, .msg_iov = &pieces[i], .msg_iovlen = 1};
    }
    setsockopt(b, IPPROTO_IP, IP_PKTINFO, &yes, sizeof yes);
    say("sendmmsg %s", outcome(sendmmsg(a, messages, 4, 0)));
    say("recvmmsg %s", outcome(recvmmsg(b, messages, 3, MSG_WAITFORONE, NULL)));
    say("%u %u %u bytes", messages[0].msg_len, messages[1].msg_len, messages[2].msg_len);
    char control[256] = "";
    struct msghdr one = {
        .msg_iov = pieces, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    say("recvmsg %s", outcome(recvmsg(b, &one, 0)));
    struct cmsghdr* head = CMSG_FIRSTHDR(&one);
    struct in_pktinfo* info = head ? (struct in_pktinfo*)CMSG_DATA(head) : NULL;
    say("came to loopback: %d", info && head->cmsg_type == IP_PKTINFO &&
                                    info->ipi_addr.s_addr == htonl(INADDR_LOOPBACK));
    close(a);
    close(b);
}

static void six(void) {
    const int both = make(AF_INET6, 0), four = make(AF_INET, 0), own = make(AF_INET6, 0);
    struct sockaddr_in6 any = {.sin6_family = AF_INET6}, from;
    CHECK(bind(both, (struct sockaddr*)&any, sizeof any) == 0);
    socklen_t length = sizeof any;
    CHECK(getsockname(both, (struct sockaddr*)&any, &length) == 0);
    const int port = ntohs(any.sin6_port);
    char text[64], shown[64];
    say("by IPv4 %s", outcome(to(four, "four", local(port))));
    length = sizeof from;
    say("came %s", outcome(recvfrom(both, text, sizeof text, 0, (struct sockaddr*)&from, &length)));
    say("from %s", inet_ntop(AF_INET6, &from.sin6_addr, shown, sizeof shown));
    say("answered %s", outcome(sendto(both, "back", 4, 0, (struct sockaddr*)&from, length)));
    say("came %s", outcome(read(four, text, sizeof text)));
    any.sin6_addr = in6addr_loopback;
    say("by IPv6 %s", outcome(sendto(own, "six", 3, 0, (struct sockaddr*)&any, sizeof any)));
    length = sizeof from;
    say("came %s", outcome(recvfrom(both, text, sizeof text, 0, (struct sockaddr*)&from, &length)));
    say("from %s", inet_ntop(AF_INET6, &from.sin6_addr, shown, sizeof shown));
    struct sockaddr_in wrong = local(port);
    say("IPv6 from an IPv4 socket %s", outcome(sendto(four, "x", 1, 0, (struct sockaddr*)&any, sizeof any)));
    say("short name %s", outcome(sendto(four, "x", 1, 0, (struct sockaddr*)&wrong, 4)));
    close(both);
    close(four);
    close(own);
}

static void scenario(void) {
    whole();
    connected();
    names();
    overflow();
    waits();
    many();
    six();
}

int main(int argc, char** argv) { return serve(argc, argv, scenario); }
