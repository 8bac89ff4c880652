// More than the kernel's buffers hold, through pipes and unix sockets within the server: both ends are
// threads of it, so neither may wait in the kernel for the other.
#include "serve.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/sendfile.h>
#include <sys/time.h>
#include <sys/uio.h>

enum { kBig = 3000000 };

static int ends[2];  // the reader's, the writer's
static char sent[kBig], got[kBig];

/// Reads slowly, by the way that `how` says, to the end; tells a sum of it.
struct reader {
    pthread_t thread;
    const char* how;
    size_t bytes;
    unsigned sum;
};

static void* read_all(void* argument) {
    struct reader* r = argument;
    if (strcmp(r->how, "WAITALL") == 0) {
        ssize_t all = recv(ends[0], got, kBig, MSG_WAITALL);
        r->bytes = all < 0 ? 0 : all;
    } else if (strcmp(r->how, "WAITALL into many") == 0) {
        struct iovec parts[40];
        for (int i = 0; i < 40; i++) parts[i] = (struct iovec){got + i * (kBig / 40), kBig / 40};
        ssize_t all = recvmsg(ends[0], &(struct msghdr){.msg_iov = parts, .msg_iovlen = 40}, MSG_WAITALL);
        r->bytes = all < 0 ? 0 : all;
    } else {
        for (ssize_t one; (one = read(ends[0], got + r->bytes, kBig - r->bytes)) > 0;) r->bytes += one;
    }
    for (size_t i = 0; i < r->bytes; i++) r->sum = r->sum * 31 + (unsigned char)got[i];
    return NULL;
}

static ssize_t by_write(void) {
    return write(ends[1], sent, kBig);
}
static ssize_t by_writev(void) {
    struct iovec parts[50];
    for (int i = 0; i < 50; i++) parts[i] = (struct iovec){sent + i * (kBig / 50), kBig / 50};
    return writev(ends[1], parts, 50);
}
static ssize_t by_send(void) {
    return send(ends[1], sent, kBig, 0);
}
static ssize_t by_sendmsg(void) {
    struct iovec parts[3] = {{sent, 1}, {sent + 1, kBig - 2}, {sent + kBig - 1, 1}};
    return sendmsg(ends[1], &(struct msghdr){.msg_iov = parts, .msg_iovlen = 3}, 0);
}
static ssize_t by_sendfile(void) {
    int file = open("sent-file", O_RDWR | O_CREAT | O_TRUNC, 0644);
    CHECK(file >= 0);
    write_all(file, sent, kBig);
    off_t at = 0;
    ssize_t all = 0;  // a pipe may take a part
    for (ssize_t one; (one = sendfile(ends[1], file, &at, kBig - at)) > 0;) all += one;
    say("behind offset %ld", (long)at);
    close(file);
    return all;
}

static void through(const char* what, int is_pipe, const char* how, ssize_t (*write_it)(void)) {
    if (is_pipe)
        CHECK(pipe(ends) == 0);
    else
        CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    struct reader reader = {.how = how};
    memset(got, 0, sizeof got);
    CHECK(pthread_create(&reader.thread, NULL, read_all, &reader) == 0);
    const ssize_t put = write_it();
    say("%s, read by %s: %s", what, how, outcome(put));
    shutdown(ends[1], SHUT_WR);
    close(ends[1]);
    CHECK(pthread_join(reader.thread, NULL) == 0);
    close(ends[0]);
    say("arrived %zu, sum %x", reader.bytes, reader.sum);
}

static void datagrams(int type, const char* name) {
    CHECK(socketpair(AF_UNIX, type, 0, ends) == 0);
    say("%s of 20000 written: %s", name, outcome(write(ends[1], sent, 20000)));
    struct iovec parts[2] = {{sent, 5000}, {sent, 6000}};
    say("and of two parts: %s", outcome(writev(ends[1], parts, 2)));
    say("read %s", outcome(read(ends[0], got, sizeof got)));
    say("read %s", outcome(recv(ends[0], got, sizeof got, 0)));
    say("nothing is left: %s", outcome(recv(ends[0], got, sizeof got, MSG_DONTWAIT)));
    close(ends[0]);
    close(ends[1]);
}

static volatile sig_atomic_t broken;
static void on_broken(int number) {
    (void)number;
    broken++;
}

static void broken_ones(void) {
    signal(SIGPIPE, on_broken);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    close(ends[0]);
    say("send: %s", outcome(send(ends[1], "x", 1, 0)));
    say("signals %d", broken);
    say("quiet send: %s", outcome(send(ends[1], "x", 1, MSG_NOSIGNAL)));
    say("signals %d", broken);
    say("write: %s", outcome(write(ends[1], sent, 9000)));
    say("signals %d", broken);
    broken = 0;
    signal(SIGPIPE, SIG_IGN);
    close(ends[1]);
}

static void timeouts(void) {
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    const struct timeval limit = {0, 50000};
    CHECK(setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
    CHECK(setsockopt(ends[1], SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) == 0);
    struct timespec begin = now_plus_ms(CLOCK_MONOTONIC, 0);
    say("nothing comes: %s", outcome(recv(ends[0], got, 1, 0)));
    say("in time %d", ms_since(begin, CLOCK_MONOTONIC) >= 50);
    const ssize_t part = send(ends[1], sent, kBig, 0);
    say("a part goes %d", part > 0 && part < kBig);
    say("nothing more goes: %s", outcome(send(ends[1], sent, kBig, 0)));
    close(ends[0]);
    close(ends[1]);
}

static int full_to;
static struct sockaddr_un {
    sa_family_t family;
    char path[108];
} name = {AF_UNIX, "receiver"};

static void* receive_later(void* unused) {
    nanosleep(&(struct timespec){0, 30000000}, NULL);
    CHECK(recv(full_to, got, sizeof got, 0) == 10);
    return unused;
}

/// A receiver without room, whom poll does not know of.
static void unconnected(void) {
    pthread_t thread;
    full_to = socket(AF_UNIX, SOCK_DGRAM, 0);
    unlink(name.path);
    CHECK(bind(full_to, (struct sockaddr*)&name, sizeof name) == 0);
    int from = socket(AF_UNIX, SOCK_DGRAM, 0);
    while (sendto(from, "0123456789", 10, MSG_DONTWAIT, (struct sockaddr*)&name, sizeof name) == 10) continue;
    say("it is full: %s", strerrorname_np(errno));
    // Its own timeout holds however often it looks in vain.
    const struct timeval limit = {1, 200000};
    CHECK(setsockopt(from, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) == 0);
    struct timespec begin = now_plus_ms(CLOCK_MONOTONIC, 0);
    say("in its own time: %s",
        outcome(sendto(from, "0123456789", 10, 0, (struct sockaddr*)&name, sizeof name)));
    const long took_ms = ms_since(begin, CLOCK_MONOTONIC);
    say("in time %d", took_ms >= 1200 && took_ms < 4000);
    CHECK(pthread_create(&thread, NULL, receive_later, NULL) == 0);
    say("until one is read: %s",
        outcome(sendto(from, "0123456789", 10, 0, (struct sockaddr*)&name, sizeof name)));
    CHECK(pthread_join(thread, NULL) == 0);
    close(from);
    close(full_to);
}

static void* read_some(void* unused) {
    CHECK(read(ends[0], got, 70000) > 0);
    close(ends[0]);
    return unused;
}

/// A pipe's reader goes in the midst of a write: it took a part, and the signal comes all the same.
static void broken_midway(void) {
    pthread_t thread;
    signal(SIGPIPE, on_broken);
    CHECK(pipe(ends) == 0);
    CHECK(pthread_create(&thread, NULL, read_some, NULL) == 0);
    const ssize_t part = write(ends[1], sent, kBig);
    say("a part was taken: %d, signals %d", part > 0 && part < kBig, broken);
    CHECK(pthread_join(thread, NULL) == 0);
    close(ends[1]);
    broken = 0;
    signal(SIGPIPE, SIG_IGN);
}

static void* send_with_descriptor(void* unused) {
    char room[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec part = {"5678", 4};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct cmsghdr* head = CMSG_FIRSTHDR(&message);
    *head = (struct cmsghdr){CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
    memcpy(CMSG_DATA(head), &ends[1], sizeof(int));
    nanosleep(&(struct timespec){0, 30000000}, NULL);
    CHECK(write(ends[1], "1234", 4) == 4);
    nanosleep(&(struct timespec){0, 30000000}, NULL);
    CHECK(sendmsg(ends[1], &message, 0) == 4);
    return unused;
}

/// All that is waited for comes in two messages, the second one with a descriptor.
static void descriptor_in_the_rest(void) {
    pthread_t thread;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    CHECK(pthread_create(&thread, NULL, send_with_descriptor, NULL) == 0);
    char room[CMSG_SPACE(sizeof(int))];
    struct iovec part = {got, 8};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    const ssize_t all = recvmsg(ends[0], &message, MSG_WAITALL);
    CHECK(pthread_join(thread, NULL) == 0);
    struct cmsghdr* head = CMSG_FIRSTHDR(&message);
    int passed = -1;
    if (head) memcpy(&passed, CMSG_DATA(head), sizeof(int));
    say("%zd bytes %.8s, with a descriptor: %d", all, got, passed >= 0 && write(passed, "x", 1) == 1);
    if (passed >= 0) close(passed);
    close(ends[0]);
    close(ends[1]);
}

static void scenario(void) {
    for (int i = 0; i < kBig; i++) sent[i] = i * 7 + i / 251;
    through("a pipe", 1, "read", by_write);
    through("a pipe, written in parts", 1, "read", by_writev);
    through("a file, through a pipe", 1, "read", by_sendfile);
    through("a socket", 0, "read", by_write);
    through("a socket, written in parts", 0, "WAITALL", by_writev);
    through("sent", 0, "WAITALL into many", by_send);
    through("sent as a message", 0, "WAITALL", by_sendmsg);
    through("a file, through a socket", 0, "read", by_sendfile);
    datagrams(SOCK_DGRAM, "a datagram");
    datagrams(SOCK_SEQPACKET, "a packet");
    broken_ones();
    timeouts();
    unconnected();
    broken_midway();
    descriptor_in_the_rest();
}

int main(int argc, char** argv) {
    return serve(argc, argv, scenario);
}
