// What is moved in unusual ways: splice and sendfile of what must be waited for, MSG_WAITALL over several
// buffers, calls of no bytes, calls of a thread that is to be cancelled.
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "serve.h"

enum { kMuch = 1 << 20 };

static struct sockaddr_in near(int port) {
    return (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
}

static void tcp_pair(int ends[2]) {
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in at = near(0);
    socklen_t length = sizeof at;
    CHECK(bind(listener, (struct sockaddr*)&at, length) == 0 && listen(listener, 5) == 0);
    CHECK(getsockname(listener, (struct sockaddr*)&at, &length) == 0);
    ends[0] = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(ends[0], (struct sockaddr*)&at, length) == 0);
    ends[1] = accept(listener, NULL, NULL);
    CHECK(ends[1] >= 0);
    close(listener);
}

static void close_both(const int ends[2]) {
    close(ends[0]);
    close(ends[1]);
}

/// What another thread does a moment later, when this one has long been asleep.
struct later {
    int fd;
    const char* says;
    long reads;
};

static void* act_later(void* asked) {
    const struct later* const what = asked;
    static char bytes[65536];
    usleep(50000);
    if (what->says) CHECK(write(what->fd, what->says, strlen(what->says)) == (ssize_t)strlen(what->says));
    for (long n, all = 0; all < what->reads && (n = read(what->fd, bytes, sizeof bytes)) > 0;) all += n;
    return NULL;
}

static pthread_t begin(struct later* what) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, act_later, what) == 0);
    return thread;
}

static void* feed(void* pipe) {
    static char bytes[kMuch];
    CHECK(write(*(int*)pipe, bytes, sizeof bytes) == kMuch);
    return NULL;
}

static void splice_into(int ends[2], const char* what) {
    int pipes[2];
    CHECK(pipe(pipes) == 0);
    struct later reader = {.fd = ends[1], .reads = kMuch};
    const pthread_t reads = begin(&reader);
    pthread_t feeds;
    CHECK(pthread_create(&feeds, NULL, feed, &pipes[1]) == 0);
    long all = 0;
    for (long n; all < kMuch && (n = splice(pipes[0], NULL, ends[0], NULL, kMuch, 0)) > 0;) all += n;
    say("spliced to %s: %ld", what, all);
    CHECK(pthread_join(feeds, NULL) == 0 && pthread_join(reads, NULL) == 0);
    close_both(pipes);
}

static void splice_out_of(int ends[2], const char* what) {
    int pipes[2];
    char text[6] = "";
    CHECK(pipe(pipes) == 0);
    struct later writer = {.fd = ends[1], .says = "hello"};
    const pthread_t writes = begin(&writer);
    say("spliced from %s: %s", what, outcome(splice(ends[0], NULL, pipes[1], NULL, 4096, 0)));
    CHECK(read(pipes[0], text, 5) == 5 && pthread_join(writes, NULL) == 0);
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    say("%s, none there: %s", text, outcome(splice(ends[0], NULL, pipes[1], NULL, 4096, 0)));
    fcntl(ends[0], F_SETFL, 0);
    say("flags kept: %d", !(fcntl(ends[0], F_GETFL) & O_NONBLOCK));
    close_both(pipes);
}

static void splices(void) {
    for (int kind = 0; kind < 2; kind++) {
        int ends[2];
        const char* const what = kind ? "tcp" : "unix";
        if (kind)
            tcp_pair(ends);
        else
            CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
        splice_into(ends, what);
        splice_out_of(ends, what);
        close_both(ends);
    }
}

/// From what has no places, and from what has.
static void sendfiles(void) {
    int ends[2], pipes[2], units[2];
    off_t at = 0;
    char text[32] = "";
    tcp_pair(ends);
    CHECK(pipe(pipes) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, units) == 0);
    say("from an empty pipe: %s", outcome(sendfile(ends[0], pipes[0], NULL, 4)));
    say("with a place: %s", outcome(sendfile(ends[0], pipes[0], &at, 4)));
    say("from a unix socket: %s", outcome(sendfile(ends[0], units[0], NULL, 4)));
    say("from itself: %s", outcome(sendfile(ends[0], ends[0], NULL, 4)));
    say("from pipe to pipe: %s", outcome(sendfile(pipes[1], pipes[0], NULL, 4)));
    struct later writer = {.fd = units[1], .says = "late"};
    const pthread_t writes = begin(&writer);
    say("from a unix socket to a pipe: %s", outcome(sendfile(pipes[1], units[0], NULL, 4)));
    CHECK(pthread_join(writes, NULL) == 0);
    const int random = open("/dev/urandom", O_RDONLY);
    say("from a random device: %s", outcome(sendfile(ends[0], random, NULL, 16)));
    CHECK(recv(ends[1], text, 16, MSG_WAITALL) == 16);
    order("drawn %02x%02x%02x%02x", text[0] & 0xff, text[1] & 0xff, text[2] & 0xff, text[3] & 0xff);
    say("from nothing: %s", outcome(sendfile(ends[0], -1, NULL, 16)));
    close(random);
    close_both(ends);
    close_both(pipes);
    close_both(units);
}

static void whole_messages(void) {
    int ends[2];
    char head[4], body[4], text[17] = "";
    struct iovec parts[2] = {{head, 4}, {body, 4}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    tcp_pair(ends);
    CHECK(write(ends[0], "abc", 3) == 3);
    struct later writer = {.fd = ends[0], .says = "defgh"};
    pthread_t writes = begin(&writer);
    say("all of two buffers: %s", outcome(recvmsg(ends[1], &message, MSG_WAITALL)));
    say("%.4s %.4s", head, body);
    CHECK(pthread_join(writes, NULL) == 0);
    CHECK(write(ends[0], "abc", 3) == 3);
    say("looked at: %s", outcome(recv(ends[1], text, 8, MSG_PEEK | MSG_WAITALL | MSG_DONTWAIT)));
    writes = begin(&writer);
    say("looked at, all: %s", outcome(recv(ends[1], text, 8, MSG_PEEK | MSG_WAITALL)));
    say("%s", text);
    CHECK(pthread_join(writes, NULL) == 0);
    CHECK(shutdown(ends[1], SHUT_RD) == 0);
    say("behind the end: %s", outcome(recv(ends[1], text, 16, MSG_PEEK | MSG_WAITALL)));
    say("and taken: %s", outcome(recv(ends[1], text, 16, MSG_WAITALL)));
    say("then: %s", outcome(recv(ends[1], text, 16, MSG_WAITALL)));
    close_both(ends);
}

static void reset_behind_some(void) {
    int ends[2];
    char text[17] = "";
    tcp_pair(ends);
    CHECK(write(ends[0], "abc", 3) == 3 && write(ends[1], "unread", 6) == 6);
    close(ends[0]);
    say("all before a reset: %s", outcome(recv(ends[1], text, 16, MSG_WAITALL)));
    say("then: %s", outcome(recv(ends[1], text, 16, MSG_WAITALL)));
    say("then: %s", outcome(recv(ends[1], text, 16, MSG_WAITALL)));
    close(ends[1]);
}

static void nothing_at_all(void) {
    int pipes[2], units[2], counter = eventfd(0, 0);
    static char bytes[4096];
    CHECK(pipe(pipes) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, units) == 0);
    struct iovec empty[2] = {{bytes, 0}, {bytes, 0}};
    say("read: %s", outcome(read(pipes[0], bytes, 0)));
    say("readv: %s", outcome(readv(pipes[0], empty, 2)));
    say("of a socket: %s", outcome(read(units[0], bytes, 0)));
    say("of a counter: %s", outcome(read(counter, bytes, 0)));
    say("too little: %s", outcome(read(counter, bytes, 4)));
    say("of the wrong end: %s", outcome(read(pipes[1], bytes, 0)));
    fcntl(pipes[1], F_SETFL, O_NONBLOCK);
    while (write(pipes[1], bytes, sizeof bytes) > 0) continue;
    fcntl(pipes[1], F_SETFL, 0);
    say("written: %s", outcome(write(pipes[1], bytes, 0)));
    say("writev: %s", outcome(writev(pipes[1], empty, 2)));
    close(units[1]);
    say("to nobody: %s", outcome(write(units[0], bytes, 0)));
    say("messages: %s", outcome(recvmmsg(units[0], NULL, 0, 0, NULL)));
    say("messages: %s", outcome(sendmmsg(units[0], NULL, 0, 0)));
    say("of no socket: %s", outcome(sendmmsg(pipes[0], NULL, 0, 0)));
    close(counter);
    close_both(pipes);
    close(units[0]);
}

static int taken_from[2], listener_of_cancelled;

// What a counter cannot take waits until it is read, even if it has room for less.
static void full_counter(void) {
    const int counter = eventfd(0, 0);
    const uint64_t most = UINT64_MAX - 2, more = 5;
    uint64_t value = 0;
    struct iovec one = {(void*)&more, sizeof more};
    CHECK(write(counter, &most, sizeof most) == sizeof most);
    struct pollfd room = {.fd = counter, .events = POLLOUT};
    say("room for something: %s", outcome(poll(&room, 1, 0)));
    struct later reader = {counter, NULL, sizeof value};
    pthread_t thread = begin(&reader);
    say("written when it was read: %s", outcome(write(counter, &more, sizeof more)));
    pthread_join(thread, NULL);
    CHECK(read(counter, &value, sizeof value) == sizeof value);
    say("counts %lu", value);
    CHECK(eventfd_write(counter, most) == 0);
    thread = begin(&reader);
    say("and by writev: %s", outcome(writev(counter, &one, 1)));
    pthread_join(thread, NULL);
    CHECK(eventfd_write(counter, most - more) == 0 && fcntl(counter, F_SETFL, O_NONBLOCK) == 0);
    say("without waiting: %s", outcome(write(counter, &more, sizeof more)));
    close(counter);
}

static void* read_cancelled(void* unused) {
    char byte[8];
    (void)unused;
    pthread_cancel(pthread_self());
    say("not reached: %s", outcome(read(taken_from[0], byte, sizeof byte)));
    return NULL;
}

static void* accept_cancelled(void* unused) {
    (void)unused;
    pthread_cancel(pthread_self());
    say("not reached: %s", outcome(accept(listener_of_cancelled, NULL, NULL)));
    return NULL;
}

static void* wait_cancelled(void* unused) {
    char byte[8];
    (void)unused;
    say("not reached: %s", outcome(read(taken_from[0], byte, sizeof byte)));
    return NULL;
}

static void cancelled(void) {
    pthread_t thread;
    void* result;
    CHECK(pipe(taken_from) == 0 && write(taken_from[1], "kept", 4) == 4);
    CHECK(pthread_create(&thread, NULL, read_cancelled, NULL) == 0 && pthread_join(thread, &result) == 0);
    char text[9] = "";
    say("cancelled %d, kept %s %s", result == PTHREAD_CANCELED, outcome(read(taken_from[0], text, 8)), text);
    listener_of_cancelled = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    struct sockaddr_in at = near(0);
    socklen_t length = sizeof at;
    CHECK(bind(listener_of_cancelled, (struct sockaddr*)&at, length) == 0);
    CHECK(listen(listener_of_cancelled, 5) == 0);
    CHECK(getsockname(listener_of_cancelled, (struct sockaddr*)&at, &length) == 0);
    const int client = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(client, (struct sockaddr*)&at, length) == 0);
    CHECK(pthread_create(&thread, NULL, accept_cancelled, NULL) == 0 && pthread_join(thread, &result) == 0);
    const int served = accept(listener_of_cancelled, NULL, NULL);
    say("cancelled %d, still there %d", result == PTHREAD_CANCELED, served >= 0);
    CHECK(pthread_create(&thread, NULL, wait_cancelled, NULL) == 0);
    usleep(20000);
    CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0);
    say("cancelled where it waits: %d", result == PTHREAD_CANCELED);
    close(served);
    close(client);
    close(listener_of_cancelled);
    close_both(taken_from);
}

/// By the numbers of calls that have a place, or take the file's own.
static void places(void) {
    int ends[2];
    char text[9] = "";
    tcp_pair(ends);
    const struct iovec out = {"abcd", 4}, in = {text, 8};
    say("pwritev2: %s", outcome(pwritev2(ends[0], &out, 1, -1, 0)));
    say("preadv2: %s %s", outcome(preadv2(ends[1], &in, 1, -1, 0)), text);
    say("with a place: %s", outcome(preadv2(ends[1], &in, 1, 0, 0)));
    say("pread: %s", outcome(pread(ends[1], text, 8, 0)));
    const int random = open("/dev/urandom", O_RDONLY);
    memset(text, 0, sizeof text);
    say("pread of a random device: %s", outcome(pread(random, text, 8, 0)));
    order("drawn %02x%02x%02x%02x", text[0] & 0xff, text[1] & 0xff, text[2] & 0xff, text[3] & 0xff);
    close(random);
    close_both(ends);
}

// What can be polled, and neither read nor written: nobody waits for it.
static void by_pidfd(void) {
    char text[8];
    const int own = (int)syscall(SYS_pidfd_open, getpid(), 0), file = open("/proc/self/exe", O_RDONLY);
    CHECK(own >= 0 && file >= 0);
    say("read from a pidfd: %s", outcome(read(own, text, sizeof text)));
    say("written to it: %s", outcome(write(own, "x", 1)));
    say("spliced to it: %s", outcome(splice(file, NULL, own, NULL, 1, 0)));
    say("spliced from it: %s", outcome(splice(own, NULL, file, NULL, 1, 0)));
    say("sent to it: %s", outcome(sendfile(own, file, NULL, 1)));
    int empty[2];
    CHECK(pipe(empty) == 0);
    say("from an empty pipe: %s", outcome(splice(empty[0], NULL, own, NULL, 1, 0)));
    close_both(empty);
    close(own);
    close(file);
}

static void scenario(void) {
    by_pidfd();
    splices();
    sendfiles();
    whole_messages();
    reset_behind_some();
    nothing_at_all();
    full_counter();
    cancelled();
    places();
}

int main(int argc, char** argv) {
    return serve(argc, argv, scenario);
}
