// Every way to read and write a client connection. The client's first line names the part to play.
#include "serve.h"

#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/uio.h>

static int client;

static void exactly(char* to, int bytes) {
    for (int at = 0; at < bytes;) {
        ssize_t got = recv(client, to + at, bytes - at, 0);
        CHECK(got > 0);
        at += got;
    }
}

// The client has sent "0123456789abcdef" and waits.
static void receiving(void) {
    char a[32] = {0}, b[8] = {0}, c[8] = {0};
    struct pollfd wait = {.fd = client, .events = POLLIN};
    poll(&wait, 1, -1);
    while (recv(client, a, 16, MSG_PEEK) < 16) usleep(1000);
    say("peek %s", a);
    int waiting = 0;
    ioctl(client, FIONREAD, &waiting);
    say("FIONREAD %d", waiting);
    struct iovec vector[2] = {{b, 3}, {c, 4}};
    say("readv %s", outcome(readv(client, vector, 2)));
    say("got %s %s", b, c);
    struct msghdr message = {.msg_iov = vector, .msg_iovlen = 1};
    say("recvmsg %s", outcome(recvmsg(client, &message, 0)));
    say("got %s", b);
    memset(a, 0, sizeof a);
    say("recvfrom %s", outcome(recvfrom(client, a, 2, MSG_DONTWAIT, NULL, NULL)));
    say("got %s", a);
    memset(a, 0, sizeof a);
    say("MSG_WAITALL %s", outcome(recv(client, a, 4, MSG_WAITALL)));
    say("got %s", a);
    say("nothing left %s", outcome(recv(client, a, 4, MSG_DONTWAIT)));
    fcntl(client, F_SETFL, fcntl(client, F_GETFL) | O_NONBLOCK);
    say("non-blocking %s", outcome(read(client, a, 4)));
    fcntl(client, F_SETFL, fcntl(client, F_GETFL) & ~O_NONBLOCK);
    struct timeval limit = {0, 30000};
    setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    say("SO_RCVTIMEO %s", outcome(recv(client, a, 4, 0)));
    say("zero bytes %s", outcome(send(client, a, 0, 0)));
    say("readable now %s", outcome(poll(&wait, 1, 20)));
}

static void options(void) {
    struct sockaddr_in local, peer;
    socklen_t size = sizeof local;
    int value = 0, yes = 1;
    say("getsockname %s", outcome(getsockname(client, (struct sockaddr*)&local, &size)));
    say("family %d", local.sin_family == AF_INET || local.sin_family == AF_INET6);
    size = sizeof peer;
    say("getpeername %s", outcome(getpeername(client, (struct sockaddr*)&peer, &size)));
    order("peer %s:%d", inet_ntoa(peer.sin_addr), ntohs(peer.sin_port));
    say("TCP_NODELAY %s", outcome(setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes)));
    size = sizeof value;
    say("getsockopt %s", outcome(getsockopt(client, IPPROTO_TCP, TCP_NODELAY, &value, &size)));
    say("TCP_NODELAY is %d", value != 0);
    size = sizeof value;
    say("SO_ERROR %s", outcome(getsockopt(client, SOL_SOCKET, SO_ERROR, &value, &size)));
    say("SO_ERROR is %d", value);
    size = sizeof value;
    getsockopt(client, SOL_SOCKET, SO_TYPE, &value, &size);
    say("SO_TYPE %d", value == SOCK_STREAM);
    say("bad option %s", outcome(setsockopt(client, SOL_SOCKET, 9999, &yes, sizeof yes)));
    say("keep-alive %s", outcome(setsockopt(client, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes)));
    const int names[] = {TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_KEEPCNT, TCP_USER_TIMEOUT};
    for (int i = 0; i < 4; ++i) {
        const int values[] = {0, 40000, 30, -1};
        for (int j = 0; j < 4; ++j)
            say("option %d = %d: %s", names[i], values[j], outcome(setsockopt(client, IPPROTO_TCP, names[i], &values[j], sizeof(int))));
        size = sizeof value;
        getsockopt(client, IPPROTO_TCP, names[i], &value, &size);
        say("is %d", value);
    }
    say("seek %s", outcome(lseek(client, 0, SEEK_CUR)));
    say("FD_CLOEXEC %s", outcome(fcntl(client, F_GETFD)));
    say("pread %s", outcome(pread(client, &value, 1, 0)));
    say("listen %s", outcome(accept(client, NULL, NULL)));
}

static void duplicates(void) {
    int copy = dup(client), high = fcntl(client, F_DUPFD_CLOEXEC, 100);
    say("F_DUPFD %d", high >= 100);
    int saved = client;
    char byte[8] = {0};
    close(saved);
    client = copy;
    exactly(byte, 4);
    say("through the copy %s", byte);
    client = high;
    exactly(byte, 4);
    say("through the other %s", byte);
    say("closed %s", outcome(read(saved, byte, 1)));
    CHECK(dup2(copy, saved) == saved);
    close(copy);
    close(high);
    client = saved;
}

static void sending(void) {
    char pattern[] = "/tmp/crane-test-XXXXXX", block[1000];
    int file = mkstemp(pattern), ends[2];
    off_t offset = 500;
    for (int n = 0; n < 1000; n++) block[n] = (char)('a' + n % 26);
    CHECK(write(file, block, 1000) == 1000);
    say("sendfile %s", outcome(sendfile(client, file, &offset, 300)));
    say("offset %ld", (long)offset);
    lseek(file, 900, SEEK_SET);
    say("sendfile to the end %s", outcome(sendfile(client, file, NULL, 500)));
    struct iovec vector[2] = {{block, 26}, {"\n", 1}};
    say("writev %s", outcome(writev(client, vector, 2)));
    struct msghdr message = {.msg_iov = vector, .msg_iovlen = 2};
    say("sendmsg %s", outcome(sendmsg(client, &message, MSG_NOSIGNAL)));
    say("send MSG_MORE %s", outcome(send(client, "more ", 5, MSG_MORE)));
    say("sendto %s", outcome(sendto(client, "to\n", 3, 0, NULL, 0)));
    CHECK(pipe(ends) == 0);
    CHECK(write(ends[1], "spliced\n", 8) == 8);
    say("splice %s", outcome(splice(ends[0], NULL, client, NULL, 8, 0)));
    close(ends[0]);
    close(ends[1]);
    FILE* stream = fdopen(dup(client), "w");
    say("fprintf %d", fprintf(stream, "through stdio\n"));
    fclose(stream);
    say("dprintf %d", dprintf(client, "through dprintf\n"));
    close(file);
    unlink(pattern);
}

// Reads until the client half-closes, with one of the waiting calls, and says what it read.
static void draining(unsigned epoll_flags) {
    char buffer[1024];
    long total = 0, edges = 0;
    int epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP | epoll_flags, .data.fd = client};
    fcntl(client, F_SETFL, O_NONBLOCK);
    CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, client, &event) == 0);
    for (int ended = 0; !ended;) {
        struct epoll_event got;
        if (epoll_wait(epoll, &got, 1, 10000) != 1) {
            say("no event within 10 s");
            break;
        }
        edges++;
        for (;;) {
            ssize_t bytes = read(client, buffer, epoll_flags & EPOLLET ? 100 : sizeof buffer);
            if (bytes > 0) total += bytes;
            if (bytes == 0) ended = 1;
            if (bytes <= 0) break;
            if (!(epoll_flags & EPOLLET)) break;
        }
        if (epoll_flags & EPOLLONESHOT) epoll_ctl(epoll, EPOLL_CTL_MOD, client, &event);
    }
    say("drained %ld", total);
    order("events %ld", edges);
    close(epoll);
    fcntl(client, F_SETFL, 0);
}

static void selecting(void) {
    char buffer[1024];
    long total = 0, rounds = 0;
    for (;;) {
        fd_set readable;
        FD_ZERO(&readable);
        FD_SET(client, &readable);
        struct timeval limit = {10, 0};
        CHECK(select(client + 1, &readable, NULL, NULL, &limit) == 1);
        ssize_t bytes = recv(client, buffer, sizeof buffer, 0);
        if (bytes <= 0) break;
        total += bytes;
        rounds++;
    }
    say("drained %ld", total);
    order("rounds %ld", rounds);
}

static void shutting(void) {
    char byte;
    say("shutdown read %s", outcome(shutdown(client, SHUT_RD)));
    say("read after it %s", outcome(recv(client, &byte, 1, 0)));
    say("shutdown again %s", outcome(shutdown(client, SHUT_RD)));
}

static const struct {
    const char* name;
    void (*play)(void);
} parts[] = {{"receiving", receiving}, {"options", options}, {"duplicates", duplicates}, {"sending", sending},
             {"selecting", selecting}, {"shutting", shutting}};

static void play(const char* part) {
    for (unsigned n = 0; n < sizeof parts / sizeof *parts; n++)
        if (strcmp(part, parts[n].name) == 0) parts[n].play();
    if (strcmp(part, "level") == 0) draining(0);
    if (strcmp(part, "edge") == 0) draining(EPOLLET);
    if (strcmp(part, "oneshot") == 0) draining(EPOLLONESHOT);
}

int main(int argc, char** argv) {
    CHECK(argc == 2);
    signal(SIGPIPE, SIG_IGN);
    int listener = listen_on(atoi(argv[1]));
    for (;;) {
        char line[256], *text = NULL;
        size_t bytes = 0;
        struct sockaddr_in peer;
        socklen_t size = sizeof peer;
        CHECK((client = accept4(listener, (struct sockaddr*)&peer, &size, SOCK_CLOEXEC)) >= 0);
        if (read_line(client, line, sizeof line) >= 0) {
            serve_out = open_memstream(&text, &bytes);
            say("peer %d", peer.sin_family == AF_INET && size == sizeof peer);
            play(line);
            fclose(serve_out);
            write_all(client, text, bytes);
            free(text);
        }
        shutdown(client, SHUT_WR);
        close(client);
    }
}
