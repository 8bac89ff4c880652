// Descriptors that travel, that are closed while another thread sleeps on them, and data that goes from one
// to another: nothing ends up where it does not belong, and nothing is lost with an error.
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "pair.h"

static ssize_t send_descriptors(int over, const int* fds, int count) {
    char data = 'd', control[CMSG_SPACE(8 * sizeof(int))] = {0};
    struct iovec vector = {&data, 1};
    struct msghdr message = {.msg_iov = &vector,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = CMSG_SPACE(count * sizeof(int))};
    struct cmsghdr* head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(count * sizeof(int));
    memcpy(CMSG_DATA(head), fds, count * sizeof(int));
    return sendmsg(over, &message, MSG_NOSIGNAL);
}

// How many came; the message's flags in *flags.
static int receive_descriptors(int over, int* fds, int room, int how, int* flags) {
    char data, control[CMSG_SPACE(8 * sizeof(int))] = {0};
    struct iovec vector = {&data, 1};
    struct msghdr message = {.msg_iov = &vector,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = CMSG_LEN(room * sizeof(int))};
    if (recvmsg(over, &message, how) != 1) return -1;
    if (flags) *flags = message.msg_flags & MSG_CTRUNC;
    struct cmsghdr* head = CMSG_FIRSTHDR(&message);
    if (!head || head->cmsg_type != SCM_RIGHTS) return 0;
    const int count = (int)((head->cmsg_len - CMSG_LEN(0)) / sizeof(int));
    memcpy(fds, CMSG_DATA(head), count * sizeof(int));
    return count;
}

static void unix_pair(int fds[2]) {
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
}

static void close_all(const int* fds, int count) {
    for (int n = 0; n < count; n++) close(fds[n]);
}

static void order_of_carriers(void) {
    int one[2], two[2], near[2], far[2], first, second;
    char byte = '?';
    unix_pair(one);
    unix_pair(two);
    for (int n = 0; n < 2; n++) {
        tcp_pair(&near[n], &far[n]);
        write_all(near[n], n ? "2" : "1", 1);
    }
    CHECK(send_descriptors(one[0], &far[0], 1) == 1 && send_descriptors(two[0], &far[1], 1) == 1);
    CHECK(receive_descriptors(two[1], &second, 1, 0, NULL) == 1 &&
          receive_descriptors(one[1], &first, 1, 0, NULL) == 1);
    CHECK(read(second, &byte, 1) == 1);
    say("over the second: %c", byte);
    CHECK(read(first, &byte, 1) == 1);
    say("over the first: %c", byte);
    close(first);
    close(second);
    close_all(near, 2);
    close_all(far, 2);
    close_all(one, 2);
    close_all(two, 2);
}

static void lost_on_the_way(void) {
    int lost[2], kept[2], ends[2], near, far, got;
    char byte = '?';
    tcp_pair(&near, &far);
    unix_pair(lost);
    unix_pair(kept);
    CHECK(pipe(ends) == 0 && send_descriptors(lost[0], &far, 1) == 1);
    close(far);
    close_all(lost, 2);
    say("a connection that nobody took ends: %s", outcome(recv(near, &byte, 1, 0)));
    unix_pair(lost);
    close(lost[1]);
    say("to a closed socket: %s", outcome(send_descriptors(lost[0], &near, 1)));
    close(lost[0]);
    write_all(ends[1], "p", 1);
    CHECK(send_descriptors(kept[0], &ends[0], 1) == 1 && receive_descriptors(kept[1], &got, 1, 0, NULL) == 1);
    say("recv of a pipe %s", outcome(recv(got, &byte, 1, MSG_DONTWAIT)));
    close(got);
    close_all(kept, 2);
    close_all(ends, 2);
    close(near);
}

static void peeked_and_cut(void) {
    int carrier[2], near, far, got[8], flags = 0;
    char byte = '?';
    unix_pair(carrier);
    tcp_pair(&near, &far);
    const int both[2] = {far, carrier[0]};
    write_all(near, "abc", 3);
    CHECK(send_descriptors(carrier[0], both, 2) == 1);
    say("peeked %d", receive_descriptors(carrier[1], got, 8, MSG_PEEK, NULL));
    CHECK(read(got[0], &byte, 1) == 1);
    say("through it %c", byte);
    close_all(got, 2);
    say("room for one: %d", receive_descriptors(carrier[1], got, 1, 0, &flags));
    say("cut %d", flags != 0);
    CHECK(read(got[0], &byte, 1) == 1);
    say("through it %c", byte);
    close(got[0]);
    // Read as plain bytes the message loses its descriptors.
    CHECK(send_descriptors(carrier[0], &far, 1) == 1);
    close(far);
    say("as bytes %s", outcome(read(carrier[1], &byte, 1)));
    char rest[8];
    const ssize_t left = recv(near, rest, sizeof rest, 0);  // closed with input unread: a reset
    say("the connection is gone: %s", outcome(left));
    close(near);
    close_all(carrier, 2);
}

static void to_another_process(void) {
    int carrier[2], near, far, got;
    char byte = '?';
    unix_pair(carrier);
    tcp_pair(&near, &far);
    const pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        close(near);
        close(far);
        CHECK(receive_descriptors(carrier[1], &got, 1, 0, NULL) == 1);
        write_all(got, "c", 1);
        _exit(0);
    }
    CHECK(send_descriptors(carrier[0], &far, 1) == 1);
    close(far);
    CHECK(read(near, &byte, 1) == 1);
    say("the other process says %c", byte);
    CHECK(waitpid(pid, NULL, 0) == pid);
    say("and ends %s", outcome(read(near, &byte, 1)));
    close(near);
    close_all(carrier, 2);
}

// Processes that give up their sight of /proc pass descriptors on, too, and so do their children.
static void from_another_root(void) {
    int carrier[2], near, far, got;
    char byte = '?', jail[] = "/tmp/crane-test-XXXXXX";
    CHECK(mkdtemp(jail) != NULL);
    unix_pair(carrier);
    tcp_pair(&near, &far);
    const pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        CHECK(chroot(jail) == 0 && chdir("/") == 0);
        CHECK(send_descriptors(carrier[0], &far, 1) == 1);
        const pid_t below = fork();
        if (below == 0) _exit(send_descriptors(carrier[0], &far, 1) == 1 ? 0 : 1);
        CHECK(below > 0 && waitpid(below, NULL, 0) == below);
        _exit(0);
    }
    close(far);
    int status = -1;
    CHECK(waitpid(pid, &status, 0) == pid);
    say("the jailed process ends with %d", status);
    for (int n = 0; n < 2; n++) {
        CHECK(receive_descriptors(carrier[1], &got, 1, 0, NULL) == 1);
        write_all(got, "j", 1);
        CHECK(read(near, &byte, 1) == 1);
        say("through it %c", byte);
        close(got);
    }
    say("and ends %s", outcome(read(near, &byte, 1)));
    close(near);
    close_all(carrier, 2);
    rmdir(jail);
}

static void many_under_way(void) {
    int carrier[2], near, far, got, sent = 0, received = 0;
    unix_pair(carrier);
    tcp_pair(&near, &far);
    for (int n = 0; n < 50; n++) sent += send_descriptors(carrier[0], &far, 1) == 1;
    for (int n = 0; n < 50; n++) {
        received += receive_descriptors(carrier[1], &got, 1, 0, NULL) == 1;
        close(got);
    }
    say("sent %d received %d", sent, received);
    close_all(carrier, 2);
    close(near);
    close(far);
}

// --- closed under a sleeping thread

static int watched;
static long thief_got;
static void* thief(void* unused) {
    char data[16];
    thief_got = recv(watched, data, sizeof data, 0);
    return unused;
}

static void closed_under_a_reader(void) {
    int near1, near2, far2, port = 0, listener = listen_at("127.0.0.1", &port);
    char data[16];
    pthread_t thread;
    near1 = connect_to("127.0.0.1", port);
    watched = accept(listener, NULL, NULL);
    CHECK(watched >= 0 && pthread_create(&thread, NULL, thief, NULL) == 0);
    usleep(20000);
    close(watched);
    near2 = connect_to("127.0.0.1", port);
    far2 = accept(listener, NULL, NULL);
    write_all(far2, "secret", 6);
    await_input(near2);
    say("the owner got %s", outcome(recv(near2, data, sizeof data, MSG_DONTWAIT)));
    write_all(near1, "own", 3);
    pthread_join(thread, NULL);
    say("the other thread got %ld", thief_got);
    close(near1);
    close(near2);
    close(far2);
    close(listener);
}

// --- from one to the other

static void spliced(void) {
    int ends[2], near, far;
    char data[4096], got[4096];
    long total = 0;
    memset(data, 'x', sizeof data);
    CHECK(pipe(ends) == 0 && fcntl(ends[1], F_SETFL, O_NONBLOCK) == 0);
    tcp_pair(&near, &far);
    write_all(near, "hello", 5);
    await_input(far);
    while (write(ends[1], data, sizeof data) > 0) total++;
    say("full pipe: %s", outcome(splice(far, NULL, ends[1], NULL, 5, SPLICE_F_NONBLOCK)));
    while (total-- > 0) CHECK(read(ends[0], got, sizeof got) == (ssize_t)sizeof got);
    say("nothing lost: %s", outcome(splice(far, NULL, ends[1], NULL, 5, 0)));
    say("arrived %s", outcome(read(ends[0], got, sizeof got)));
    CHECK(write(ends[1], "back", 4) == 4);
    say("to the socket: %s", outcome(splice(ends[0], NULL, far, NULL, 4, 0)));
    await_input(near);
    say("arrived %s", outcome(recv(near, got, sizeof got, 0)));
    CHECK(write(ends[1], "kept", 4) == 4);
    shutdown(far, SHUT_WR);
    say("to an ended socket: %s", outcome(splice(ends[0], NULL, far, NULL, 4, 0)));
    say("still in the pipe: %s", outcome(read(ends[0], got, sizeof got)));
    say("without a pipe: %s", outcome(splice(near, NULL, far, NULL, 4, 0)));
    close_all(ends, 2);
    close(near);
    close(far);
}

static int source[2];
static void* write_later(void* unused) {
    usleep(20000);
    write_all(source[1], "later", 5);
    return unused;
}

static void piped(void) {
    int sink[2];
    char got[16];
    pthread_t thread;
    CHECK(pipe(source) == 0 && pipe(sink) == 0 && pthread_create(&thread, NULL, write_later, NULL) == 0);
    say("tee waits: %s", outcome(tee(source[0], sink[1], 5, 0)));
    say("splice: %s", outcome(splice(source[0], NULL, sink[1], NULL, 5, 0)));
    say("twice: %s", outcome(read(sink[0], got, sizeof got)));
    struct iovec vector = {"pages", 5};
    say("vmsplice: %s", outcome(vmsplice(sink[1], &vector, 1, 0)));
    say("read: %s", outcome(read(sink[0], got, sizeof got)));
    pthread_join(thread, NULL);
    close_all(source, 2);
    close_all(sink, 2);
}

// What stdio could not write is an error of its last call.
static void lost_output(void) {
    FILE* full = fopen("/dev/full", "w");
    CHECK(full && fprintf(full, "x") == 1);
    say("fclose: %s", outcome(fclose(full)));
    full = fopen("/dev/full", "w");
    CHECK(full && fprintf(full, "x") == 1);
    say("fflush: %s", outcome(fflush(full)));
    fclose(full);
}

// Each number that is handed out can be used, however many there are.
static int use_many(void) {
    enum { kMany = 1100 };
    static int fds[kMany];
    int wrong = 0;
    for (int n = 0; n < kMany; n++) {
        fds[n] = n % 2 ? socket(AF_INET, SOCK_STREAM, 0) : open("/dev/null", O_WRONLY);
        CHECK(fds[n] >= 0);
        wrong += fcntl(fds[n], F_SETFL, O_NONBLOCK) != 0 || (n % 2 == 0 && write(fds[n], "x", 1) != 1);
    }
    for (int n = 0; n < kMany; n++) wrong += close(fds[n]) != 0;
    return wrong;
}

static void many_open(void) {
    say("descriptors that cannot be used: %d", use_many());
    const pid_t child = fork();
    if (child == 0) _exit(use_many());
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    say("in a child: %d", status);
}

// --- all numbers below the limit are the program's, and none at it or behind

static int full_after(int most) {
    static int opened[64];
    int count = 0;
    const struct rlimit limit = {(rlim_t)most, 4096};
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    for (int fd; count < 64 && (fd = open("/dev/null", O_RDONLY)) >= 0; opened[count++] = fd)
        if (fd >= most) say("%d lies behind the limit", fd);
    const int error = errno;
    for (int i = 0; i < count; i++) close(opened[i]);
    return error;
}

static void numbers_up_to_the_limit(void) {
    const int file = open("/dev/null", O_RDONLY);
    int same = 0, differ = 0;
    for (int number = 900; number < 1100; number++) {
        if (dup2(file, number) != number) say("no %d: %s", number, strerror(errno));
        struct stat one, other;
        CHECK(fstat(file, &one) == 0 && fstat(number, &other) == 0);
        (one.st_ino == other.st_ino ? same++ : differ++);
    }
    say("numbers in the thousands: %d, %d others, next %d", same, differ, fcntl(file, F_DUPFD, 900));
    CHECK(close_range(900, 1100, 0) == 0);
    const pid_t child = fork();
    if (child == 0) {
        struct rlimit limit;
        CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
        const int most = (int)limit.rlim_cur;
        CHECK(dup2(file, most - 1) == most - 1);
        const int behind = dup2(file, most);
        say("at the limit: %d %s", behind, strerror(errno));
        const int from = fcntl(file, F_DUPFD, most);
        say("from the limit on: %d %s", from, strerror(errno));
        say("far behind: %d, %d", dup2(file, most + 3) >= 0, dup2(file, most + 100) >= 0);
        limit.rlim_max = 4096;
        limit.rlim_cur = 512;
        CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0 && getrlimit(RLIMIT_NOFILE, &limit) == 0);
        say("lowered to %d of %d", (int)limit.rlim_cur, (int)limit.rlim_max);
        say("full at %d: %s", 32, strerror(full_after(32)));
        limit.rlim_cur = limit.rlim_max = 4096;
        CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0 && getrlimit(RLIMIT_NOFILE, &limit) == 0);
        say("raised to %d, and the last is %d", (int)limit.rlim_cur, dup2(file, 4095));
        say("behind it: %d %s", dup2(file, 4096), strerror(errno));
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    close(file);
}

/* As a daemon does that looks for what it was handed down, or tidies up by number alone. */
static void numbers_that_are_nothing(void) {
    int found = 0;
    for (int fd = 1024; fd < 65536; fd++) {
        struct stat info;
        found += fstat(fd, &info) == 0 || errno != EBADF;
        found += ftruncate(fd, 0) == 0 || errno != EBADF;
        found += fcntl(fd, F_GETFD) != -1 || errno != EBADF;
        found += close(fd) == 0 || errno != EBADF;
    }
    say("numbers that are something: %d", found);
}

static void scenario(void) {
    numbers_that_are_nothing();
    numbers_up_to_the_limit();
    order_of_carriers();
    lost_on_the_way();
    peeked_and_cut();
    to_another_process();
    from_another_root();
    many_under_way();
    closed_under_a_reader();
    spliced();
    piped();
    lost_output();
    many_open();
}

int main(int argc, char** argv) {
    return serve(argc, argv, scenario);
}
