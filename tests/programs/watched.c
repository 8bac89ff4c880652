// inotify: what is told of files, to whom, and that who waits for it is woken: by read(), poll(), epoll and
// without waiting, for changes by threads and by other processes.
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "serve.h"

static char folder[64], other[64];

static const char* in(const char* where, const char* name) {
    static char paths[4][128];
    static int at;
    char* path = paths[at++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", where, name);
    return path;
}

static int watch(int flags) {
    int fd = inotify_init1(flags);
    CHECK(fd >= 0);
    return fd;
}

// Cookies are counted for the whole host: told apart by the order in which they come.
static uint32_t known[64];

static int cookie_number(uint32_t cookie) {
    if (cookie == 0) return 0;
    for (int i = 0; i < 64; i++) {
        if (known[i] == 0) known[i] = cookie;
        if (known[i] == cookie) return i + 1;
    }
    return -1;
}

static void tell_events(const char* who, const char* bytes, ssize_t got) {
    for (ssize_t at = 0; at < got;) {
        const struct inotify_event* event = (const void*)(bytes + at);
        say("%s: %d %x cookie %d %s", who, event->wd, event->mask, cookie_number(event->cookie), event->len ? event->name : "");
        if (event->cookie) order("%s: cookie %u", who, event->cookie);
        at += sizeof *event + event->len;
    }
}

static void read_all(const char* who, int fd) {
    char bytes[8192] __attribute__((aligned(8)));
    int waiting = 0;
    CHECK(ioctl(fd, FIONREAD, &waiting) == 0);
    if (waiting == 0) {
        say("%s: nothing", who);
        return;
    }
    ssize_t got = read(fd, bytes, sizeof bytes);
    CHECK(got > 0);
    tell_events(who, bytes, got);
}

static void touch(const char* path, const char* text) {
    int fd = open(path, O_CREAT | O_WRONLY | O_APPEND, 0644);
    CHECK(fd >= 0);
    CHECK(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    CHECK(close(fd) == 0);
}

// --- what is told

// Not that files are modified where their times may be set late: see docs/limitations.md.
enum { kAllButModified = IN_ALL_EVENTS & ~IN_MODIFY };

static void modified(void) {
    int fd = watch(IN_NONBLOCK);
    touch(in(folder, "kept"), "x");
    CHECK(inotify_add_watch(fd, folder, IN_MODIFY | IN_CLOSE_WRITE) == 1);
    touch(in(folder, "kept"), "y");
    read_all("modified", fd);
    close(fd);
    CHECK(unlink(in(folder, "kept")) == 0);
}

static void all_kinds(void) {
    int here = watch(IN_NONBLOCK | IN_CLOEXEC), there = watch(IN_NONBLOCK);
    char none[64];
    say("read with nothing to tell: %s", outcome(read(here, none, sizeof none)));
    say("watches %d %d %d", inotify_add_watch(here, folder, kAllButModified), inotify_add_watch(here, other, kAllButModified),
        inotify_add_watch(there, other, IN_MOVED_TO | IN_ATTRIB));
    touch(in(folder, "file"), "text");
    CHECK(chmod(in(folder, "file"), 0600) == 0);
    CHECK(rename(in(folder, "file"), in(other, "moved")) == 0);
    CHECK(truncate(in(other, "moved"), 1) == 0);
    CHECK(mkdir(in(folder, "sub"), 0755) == 0);
    CHECK(symlink("sub", in(folder, "link")) == 0);
    CHECK(rmdir(in(folder, "sub")) == 0);
    CHECK(unlink(in(folder, "link")) == 0);
    FILE* file = fopen(in(other, "moved"), "a");
    CHECK(file != NULL && fputs("more", file) >= 0 && fclose(file) == 0);
    CHECK(unlink(in(other, "moved")) == 0);
    read_all("here", here);
    read_all("there", there);
    say("too small: %s", outcome(read(here, none, 1)));
    touch(in(folder, "small"), "x");
    say("too small: %s", outcome(read(here, none, 8)));
    say("no buffers: %s", outcome(readv(here, NULL, 0)));
    say("unwatch %s", outcome(inotify_rm_watch(here, 1)));
    say("unwatch %s", outcome(inotify_rm_watch(here, 7)));
    say("no such file: %s", outcome(inotify_add_watch(here, in(folder, "none"), IN_OPEN)));
    say("no inotify: %s", outcome(inotify_add_watch(0, folder, IN_OPEN)));
    CHECK(unlink(in(folder, "small")) == 0);
    read_all("here", here);
    close(here);
    close(there);
}

// --- who waits

static void* make_later(void* unused) {
    (void)unused;
    usleep(2000);
    touch(in(folder, "later"), "x");
    CHECK(unlink(in(folder, "later")) == 0);
    return NULL;
}

static void waits(void) {
    for (int way = 0; way < 4; way++) {
        int fd = watch(0);
        CHECK(inotify_add_watch(fd, folder, IN_CREATE) == 1);
        pthread_t other_thread;
        pid_t child = 0;
        if (way % 2 == 0) CHECK(pthread_create(&other_thread, NULL, make_later, NULL) == 0);
        if (way % 2 == 1 && (child = fork()) == 0) {
            make_later(NULL);
            _exit(0);
        }
        if (way == 1) {
            struct pollfd one = {fd, POLLIN, 0};
            say("poll %d %x", poll(&one, 1, 10000), one.revents);
        }
        if (way == 2) {
            int set = epoll_create1(0);
            struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.fd = 5};
            CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
            say("epoll %d", epoll_wait(set, &event, 1, 10000));
            close(set);
        }
        char bytes[2][256] __attribute__((aligned(8)));
        struct iovec parts[2] = {{bytes[0], sizeof bytes[0]}, {bytes[1], sizeof bytes[1]}};
        ssize_t got = way == 3 ? readv(fd, parts, 2) : read(fd, bytes[0], sizeof bytes[0]);
        CHECK(got > 0);
        tell_events("woken", bytes[0], got);
        if (way % 2 == 0) CHECK(pthread_join(other_thread, NULL) == 0);
        if (child) CHECK(waitpid(child, NULL, 0) == child);
        close(fd);
    }
}

// For as long as the server runs, and so in its images.
static int kept;

static void scenario(void) {
    memset(known, 0, sizeof known);
    modified();
    all_kinds();
    waits();
    read_all("kept", kept);
}

int main(int argc, char** argv) {
    snprintf(folder, sizeof folder, "/tmp/watched-%s", argc > 1 ? argv[1] : "");
    snprintf(other, sizeof other, "/tmp/watched-other-%s", argc > 1 ? argv[1] : "");
    CHECK(mkdir(folder, 0755) == 0 || errno == EEXIST);
    CHECK(mkdir(other, 0755) == 0 || errno == EEXIST);
    kept = watch(IN_NONBLOCK | IN_CLOEXEC);
    // Of the machine, and nothing that others on it read meanwhile: natively that would be seen.
    CHECK(inotify_add_watch(kept, "/etc/issue.net", IN_ACCESS) == 1);
    CHECK(inotify_add_watch(kept, folder, IN_CREATE | IN_MOVE | IN_DELETE) == 2);
    return serve(argc, argv, scenario);
}
