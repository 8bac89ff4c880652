// Addresses and lengths that a call cannot use: each gives its error, and the process lives on.
#include <mqueue.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "pair.h"

static char* volatile nowhere;  // what the compiler does not know to be null
static char* unmapped;          // once was a page

static void discarding(void) {
    int near, far;
    char left[16];
    tcp_pair(&near, &far);
    write_all(near, "hello world", 11);
    await_input(far);
    say("peeked %s", outcome(recv(far, nowhere, 1 << 20, MSG_DONTWAIT | MSG_TRUNC | MSG_PEEK)));
    say("discarded %s", outcome(recv(far, nowhere, 6, MSG_DONTWAIT | MSG_NOSIGNAL | MSG_TRUNC)));
    say("left %s", outcome(recv(far, left, sizeof left, MSG_DONTWAIT)));
    say("starts with %c", left[0]);
    say("nothing there %s", outcome(recv(far, nowhere, 6, MSG_DONTWAIT | MSG_TRUNC)));
    say("of the error queue %s", outcome(recv(far, left, sizeof left, MSG_ERRQUEUE)));
    close(near);
    close(far);
}

static void receiving(char* bad, const char* what) {
    int near, far;
    struct iovec vector = {bad, 5};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};
    char good[8];
    tcp_pair(&near, &far);
    say("%s, nothing to read: recv %s", what, outcome(recv(far, bad, 5, MSG_DONTWAIT)));
    write_all(near, "hello", 5);
    await_input(far);
    say("recv %s", outcome(recv(far, bad, 5, MSG_DONTWAIT)));
    say("read %s", outcome(read(far, bad, 5)));
    say("readv %s", outcome(readv(far, &vector, 1)));
    say("readv of a bad vector %s", outcome(readv(far, (struct iovec*)bad, 1)));
    say("recvmsg %s", outcome(recvmsg(far, &message, 0)));
    say("recvmsg of a bad message %s", outcome(recvmsg(far, (struct msghdr*)bad, 0)));
    say("recv of nothing %s", outcome(recv(far, bad, 0, 0)));
    say("all there still: %s", outcome(recv(far, good, sizeof good, 0)));
    close(near);
    close(far);
}

static void sending(const char* bad, const char* what) {
    int near, far;
    struct iovec vector = {(void*)bad, 5};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};
    tcp_pair(&near, &far);
    say("%s: send %s", what, outcome(send(near, bad, 5, 0)));
    say("write %s", outcome(write(near, bad, 5)));
    say("writev %s", outcome(writev(near, &vector, 1)));
    say("writev of a bad vector %s", outcome(writev(near, (const struct iovec*)bad, 1)));
    say("sendmsg %s", outcome(sendmsg(near, &message, 0)));
    say("sendmsg of a bad message %s", outcome(sendmsg(near, (const struct msghdr*)bad, 0)));
    say("send of nothing %s", outcome(send(near, bad, 0, 0)));
    if (bad) say("sendfile's offset %s", outcome(sendfile(near, 0, (off_t*)bad, 5)));
    vector.iov_len = (size_t)-1;
    say("writev of too much %s", outcome(writev(near, &vector, 1)));
    message.msg_iovlen = 5000;
    say("sendmsg of too many %s", outcome(sendmsg(near, &message, 0)));
    say("nothing went out: %s", outcome(recv(far, (void*)unmapped, 1, MSG_DONTWAIT)));
    close(near);
    close(far);
}

static void naming(void* bad, const char* what) {
    int near, far, port = 0, listener = listen_at("127.0.0.1", &port),
                   fresh = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in name;
    socklen_t length = sizeof name, negative = (socklen_t)-1;
    tcp_pair(&near, &far);
    say("%s: bind %s", what, outcome(bind(fresh, bad, sizeof name)));
    say("connect %s", outcome(connect(fresh, bad, sizeof name)));
    say("getsockname %s", outcome(getsockname(near, bad, &length)));
    say("its length %s", outcome(getsockname(near, (struct sockaddr*)&name, bad)));
    say("a negative one %s", outcome(getsockname(near, (struct sockaddr*)&name, &negative)));
    say("getpeername %s", outcome(getpeername(near, bad, &length)));
    say("setsockopt %s", outcome(setsockopt(near, SOL_SOCKET, SO_KEEPALIVE, bad, sizeof(int))));
    length = sizeof(int);
    say("getsockopt %s", outcome(getsockopt(near, SOL_SOCKET, SO_ERROR, bad, &length)));
    say("its length %s", outcome(getsockopt(near, SOL_SOCKET, SO_ERROR, &name, bad)));
    say("ioctl %s", outcome(ioctl(near, FIONREAD, bad)));
    const int connecting = connect_to("127.0.0.1", port);
    await_input(listener);
    say("accept %s", outcome(accept(listener, &name, bad)));
    close(connecting);
    close(fresh);
    close(listener);
    close(near);
    close(far);
}

static void watching(void* bad, const char* what) {
    int near, far;
    struct epoll_event event = {.events = EPOLLOUT};
    tcp_pair(&near, &far);
    const int epoll = epoll_create1(0);
    say("%s: poll %s", what, outcome(poll(bad, 1, 0)));
    say("select %s", outcome(select(near + 1, bad ? bad : unmapped, NULL, NULL, NULL)));
    say("epoll_ctl %s", outcome(epoll_ctl(epoll, EPOLL_CTL_ADD, near, bad)));
    say("epoll_ctl %s", outcome(epoll_ctl(epoll, EPOLL_CTL_ADD, near, &event)));
    say("epoll_wait %s", outcome(epoll_wait(epoll, bad, 1, 0)));
    say("epoll_wait %s", outcome(epoll_wait(epoll, &event, 1, 0)));
    close(epoll);
    close(near);
    close(far);
}

// A piece is sent whole or not at all.
static void half_good(void) {
    int near, far;
    char got[64];
    tcp_pair(&near, &far);
    struct iovec vector[2] = {{"begin", 5}, {unmapped, 5}};
    say("writev, half of it good: %s", outcome(writev(near, vector, 2)));
    say("arrived: %s", outcome(recv(far, got, sizeof got, MSG_DONTWAIT)));
    write_all(near, "begin", 5);
    await_input(far);
    struct iovec into[2] = {{got, 2}, {unmapped, 3}};
    const ssize_t first = readv(far, into, 2);
    order("readv, half of it good: %s", outcome(first));  // natively a matter of how the kernel cut the input
    close(near);
    close(far);
}

// The deadline is looked at before the queue, and whether or not anybody would have to wait.
static void queues(void) {
    struct mq_attr shape = {.mq_maxmsg = 2, .mq_msgsize = 16};
    const struct timespec wrong[] = {{1, 1000000000}, {1, -1}, {-1, 0}};
    const struct timespec* const bad = (const struct timespec*)unmapped;
    char text[16];
    const mqd_t queue = mq_open("/crane-bad-calls", O_CREAT | O_RDWR, 0600, &shape);
    CHECK(queue != (mqd_t)-1 && mq_unlink("/crane-bad-calls") == 0);
    for (int filled = 0; filled < 2; ++filled) {
        say("a queue with %d: send by a bad deadline %s", filled, outcome(mq_timedsend(queue, "x", 1, 0, bad)));
        say("receive %s", outcome(mq_timedreceive(queue, text, sizeof text, NULL, bad)));
        for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; ++i) {
            say("send %zu %s", i, outcome(mq_timedsend(queue, "x", 1, 0, &wrong[i])));
            say("receive %zu %s", i, outcome(mq_timedreceive(queue, text, sizeof text, NULL, &wrong[i])));
        }
        say("by number %s", outcome(syscall(SYS_mq_timedsend, queue, "x", 1, 0, unmapped)));
        CHECK(mq_send(queue, "x", 1, 0) == 0);
    }
    say("no queue, bad deadline %s", outcome(mq_timedsend(-1, "x", 1, 0, bad)));
    say("no queue, wrong deadline %s", outcome(mq_timedreceive(-1, text, sizeof text, NULL, &wrong[0])));
    say("bad message %s", outcome(mq_send(queue, (const char*)unmapped, 1, 0)));
    say("too long %s", outcome(mq_send(queue, text, 17, 0)));
    mq_close(queue);
}

static void scenario(void) {
    unmapped = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(unmapped != MAP_FAILED && munmap(unmapped, 4096) == 0);
    discarding();
    receiving(nowhere, "null");
    receiving(unmapped, "unmapped");
    sending(nowhere, "null");
    sending(unmapped, "unmapped");
    naming(unmapped, "unmapped");
    watching(unmapped, "unmapped");
    half_good();
    queues();
}

int main(int argc, char** argv) {
    return serve(argc, argv, scenario);
}
