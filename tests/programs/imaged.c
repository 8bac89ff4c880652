// Holds much of what an image of a running server must save, and shows it: the first line that a client sends
// has it made, each later one has it looked at. An image is taken in between on one replica; the others never
// had one.
#include "serve.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <x86intrin.h>

static int pipe_ends[2], pair[2], written, deleted, renamed, shared, memfd, timer_fd, told_of, looks;
static timer_t timer;
static pid_t child, zombie;
static int *shared_memory, *segment;
static volatile int ticks, timeouts, sleeps, usr1;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;

static void on_tick(int number) {
    (void)number;
    ticks++;
}

static void on_usr1(int number) {
    (void)number;
    usr1++;
}

static void* wait_with_timeout(void* unused) {
    (void)unused;
    for (;;) {
        pthread_mutex_lock(&lock);
        struct timespec limit = now_plus_ms(CLOCK_REALTIME, 170);
        CHECK(pthread_cond_timedwait(&never, &lock, &limit) == ETIMEDOUT);
        timeouts++;
        pthread_mutex_unlock(&lock);
    }
    return NULL;
}

static void* sleep_long(void* unused) {
    (void)unused;
    for (;;) {
        struct timespec begin = now_plus_ms(CLOCK_MONOTONIC, 0);
        CHECK(nanosleep(&(struct timespec){0, 130000000}, NULL) == 0);
        CHECK(ms_since(begin, CLOCK_MONOTONIC) >= 130);
        sleeps++;
    }
    return NULL;
}

// Adds up what it is sent and says it again, from memory of its own.
static void be_child(void) {
    long sum = 0, one;
    for (int fd = 3; fd < 64; fd++)
        if (fd != pair[1]) close(fd);
    while (read(pair[1], &one, sizeof one) == sizeof one) {
        long back[3] = {sum += one, getppid() > 1, (long)__rdtsc()};
        write_all(pair[1], (char*)back, sizeof back);
    }
    _exit(7);
}

static int made(const char* path) {
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
    CHECK(fd >= 0);
    write_all(fd, path, strlen(path));
    return fd;
}

static void show(const char* what, int fd, const char* path) {
    struct stat info;
    CHECK((path ? stat(path, &info) : fstat(fd, &info)) == 0);
    order("%s inode %lu device %lx links %lu size %ld mode %o changed %ld.%09ld", what, info.st_ino,
          info.st_dev, info.st_nlink, info.st_size, info.st_mode, info.st_mtim.tv_sec, info.st_mtim.tv_nsec);
}

static void show_all(void) {
    show("written", written, NULL);
    show("written by path", -1, "written");
    show("renamed", renamed, NULL);
    show("in a folder", -1, "folder/file");
    show("shared", shared, NULL);
    show("shared by path", -1, "/dev/shm/imaged");
    show("memfd", memfd, NULL);
    show("pipe", pipe_ends[0], NULL);
    show("socket pair", pair[0], NULL);
    show("deleted", deleted, NULL);
    show("folder", -1, ".");
    show("root", -1, "/");
    show("program", -1, "/bin/sh");
    show("library", -1, "/etc/passwd");
    show("processor", -1, "/proc/cpuinfo");
    show("processor, open", told_of, NULL);
    order("at %ld of it, mode %d", (long)lseek(told_of, 0, SEEK_CUR), fcntl(told_of, F_GETFL) & O_ACCMODE);
    show("moved", -1, "moved-there");
    show("below what moved", -1, "folder-there/file");
    show("replaced", -1, "replaced");
}

/// Files that are known by the numbers that were shown for them, and then get other names, or others get theirs.
static void rename_known(void) {
    close(made("moved"));
    mkdir("folder-here", 0755);
    close(made("folder-here/file"));
    close(made("replaced"));
    close(made("gone"));
    show("moved", -1, "moved");
    show("below what moves", -1, "folder-here/file");
    show("to be replaced", -1, "replaced");
    show("to go", -1, "gone");
    rename("moved", "moved-there");
    rename("folder-here", "folder-there");
    close(made("moved"));  // another one
    unlink("gone");
}

static void replace(void) {
    close(made("replacement"));
    rename("replacement", "replaced");
    show("moved again", -1, "moved");
    close(made("gone"));
    show("there again", -1, "gone");
}

static void make(void) {
    const char* held = getenv("HELD");  // of the host's files, should a test want to have one in use
    CHECK(!held || open(held, O_RDONLY) >= 0);
    CHECK(pipe(pipe_ends) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    write_all(pipe_ends[1], "in the pipe", 11);
    written = made("written");
    deleted = made("deleted");
    unlink("deleted");
    renamed = made("old-name");
    rename("old-name", "new-name");
    link("new-name", "linked");
    mkdir("folder", 0755);
    close(made("folder/file"));
    CHECK(flock(written, LOCK_EX) == 0);
    rename_known();
    shared = shm_open("/imaged", O_RDWR | O_CREAT, 0600);
    CHECK(shared >= 0 && ftruncate(shared, 8192) == 0);
    shared_memory = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, shared, 0);
    CHECK(shared_memory != MAP_FAILED);
    segment = shmat(shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600), NULL, 0);
    CHECK(segment != (void*)-1);
    memfd = memfd_create("kept", 0);
    write_all(memfd, "in a memfd", 10);
    told_of = open("/proc/cpuinfo", O_RDONLY);
    char some[10];
    CHECK(told_of >= 0 && read(told_of, some, sizeof some) == sizeof some);
    child = fork();
    CHECK(child >= 0);
    if (child == 0) be_child();
    zombie = fork();
    CHECK(zombie >= 0);
    if (zombie == 0) _exit(3);
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR1);
    sigprocmask(SIG_BLOCK, &blocked, NULL);
    signal(SIGUSR1, on_usr1);
    raise(SIGUSR1);  // stays pending
    struct sigaction action = {.sa_handler = on_tick, .sa_flags = SA_RESTART};
    sigaction(SIGUSR2, &action, NULL);
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR2};
    CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
    CHECK(timer_settime(timer, 0, &(struct itimerspec){{0, 70000000}, {0, 70000000}}, NULL) == 0);
    timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    CHECK(timerfd_settime(timer_fd, 0, &(struct itimerspec){{0, 90000000}, {0, 90000000}}, NULL) == 0);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, wait_with_timeout, NULL) == 0);
    CHECK(pthread_create(&thread, NULL, sleep_long, NULL) == 0);
    show_all();
}

/// The kernel gives a new file the inode of one that is gone, and a time of birth of some milliseconds ago.
static void remake(void) {
    struct stat first, second, again;
    int others = 0, same = 0;
    for (int i = 0; i < 100; i++) {
        char name[16];
        snprintf(name, sizeof name, "round-%d", i % 3);
        close(made("short-lived"));
        CHECK(stat("short-lived", &first) == 0);
        if (i % 2) CHECK(unlink("short-lived") == 0);
        if (i % 2 == 0) {
            close(made("renamed"));
            CHECK(stat("renamed", &again) == 0 && rename("renamed", "short-lived") == 0);
            CHECK(stat("short-lived", &second) == 0);
            same += again.st_ino == second.st_ino;
        }
        close(made(name));
        CHECK(stat(name, &second) == 0 && rename(name, name) == 0 && stat(name, &again) == 0);
        others += first.st_ino != second.st_ino;
        same += second.st_ino == again.st_ino;
        unlink(name);
        unlink("short-lived");
    }
    order("of 100 that were made again %d are others, 150 kept their number: %d", others, same);
}

/// Where the kernel finds room: a process that was restored must find it where all others do.
static void map_more(void) {
    char* pages[3];
    for (int i = 0; i < 3; i++) {
        pages[i] = mmap(NULL, 4096UL << (5 * i), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(pages[i] != MAP_FAILED);
    }
    munmap(pages[1], 4096);
    order("room at %p, %p, %p, in the heap %p", pages[0], pages[1], pages[2], malloc(200000));
}

/// By an instruction, which no wrapper sees: in a process that was restored it is trapped as before.
static unsigned long chance(void) {
    unsigned long word = 0;
    long result;
    asm volatile("syscall"
                 : "=a"(result)
                 : "a"(SYS_getrandom), "D"(&word), "S"(sizeof word), "d"(0)
                 : "rcx", "r11", "memory");
    return word;
}

static void scenario(void) {
    map_more();
    order("chance %lx", chance());
    remake();
    if (looks++ == 0) {
        make();
    } else {
        show_all();
        replace();
        show_all();
        sigset_t pending;
        sigpending(&pending);
        say("pending %d, handled %d", sigismember(&pending, SIGUSR1), usr1);
        char text[64] = "";
        say("pipe %s", outcome(read(pipe_ends[0], text, sizeof text)));
        say("it held %.11s", text);
        say("deleted %s", outcome(pread(deleted, text, sizeof text, 0)));
        say("at its end %ld", lseek(deleted, 0, SEEK_CUR));
        int other = open("written", O_RDONLY);
        say("locked %s", outcome(flock(other, LOCK_EX | LOCK_NB)));
        close(other);
    }
    uint64_t expirations = 0;
    order("expired %s", outcome(read(timer_fd, &expirations, sizeof expirations)));
    order("times %lu ticks %d timeouts %d sleeps %d", expirations, ticks, timeouts, sleeps);
    long one = looks, back[3];
    write_all(pair[0], (char*)&one, sizeof one);
    CHECK(read(pair[0], back, sizeof back) == sizeof back);
    order("child: sum %ld, has a parent %ld, counter %lx", back[0], back[1], back[2]);
    struct timespec now = now_plus_ms(CLOCK_REALTIME, 0), up = now_plus_ms(CLOCK_MONOTONIC, 0);
    order("counter %lx at %ld.%09ld, up %ld.%09ld", (long)__rdtsc(), now.tv_sec, now.tv_nsec, up.tv_sec,
          up.tv_nsec);
    say("memory %d %d", shared_memory[0], segment[0]);
    shared_memory[0]++;
    segment[0]++;
    // Left unlooked at.
    write_all(written, "more", 4);
    write_all(renamed, "more", 4);
    write_all(deleted, "more", 4);
    write_all(memfd, "more", 4);
    write_all(shared, "more", 4);
    write_all(pipe_ends[1], "in the pipe", 11);
}

int main(int argc, char** argv) {
    return serve(argc, argv, scenario);
}
