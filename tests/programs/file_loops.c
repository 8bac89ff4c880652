// Loops of nothing but calls on files: who waits for a file that another makes, and who works on files for ever, while others
// are served and a time that was set comes.
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "serve.h"

static char path[64], other[80];

static void* make_later(void* unused) {
    usleep(20000);
    int fd = open(path, O_CREAT | O_WRONLY, 0600);
    CHECK(fd >= 0);
    close(fd);
    return unused;
}

static void await_file(const char* how, int (*is_there)(void)) {
    pthread_t thread;
    unlink(path);
    CHECK(pthread_create(&thread, NULL, make_later, NULL) == 0);
    while (!is_there()) continue;
    pthread_join(thread, NULL);
    say("%s: it is there", how);
}

static int by_stat(void) {
    struct stat info;
    return stat(path, &info) == 0;
}
static int by_access(void) { return access(path, F_OK) == 0; }
static int by_opening(void) {
    int fd = open(path, O_RDONLY);
    if (fd >= 0) close(fd);
    return fd >= 0;
}

// What needs no turn at all, while another thread is awaited.
static volatile int made;
static void* make_word_later(void* unused) {
    usleep(3000);
    made = 1;
    return unused;
}

static void await_word(const char* how, void (*call)(void)) {
    pthread_t thread;
    made = 0;
    CHECK(pthread_create(&thread, NULL, make_word_later, NULL) == 0);
    while (!made) call();
    pthread_join(thread, NULL);
    say("%s: it is made", how);
}

static char page[4096] __attribute__((aligned(4096)));
static int file;
static void by_mprotect(void) { CHECK(mprotect(page, sizeof page, PROT_READ | PROT_WRITE) == 0); }
static void by_mmap(void) {
    void* const place = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(place != MAP_FAILED && munmap(place, 4096) == 0);
}
static void by_pread(void) { CHECK(pread(file, page, 1, 0) >= 0); }
static void by_lseek(void) { CHECK(lseek(file, 0, SEEK_SET) == 0); }
static void by_getuid(void) { CHECK(getuid() + 1 != 0); }
static void by_number(void) { CHECK(syscall(SYS_umask, 022) >= 0); }

static void await_words(void) {
    CHECK((file = open("/proc/self/exe", O_RDONLY)) >= 0);
    await_word("mprotect", by_mprotect);
    await_word("mmap", by_mmap);
    await_word("pread", by_pread);
    await_word("lseek", by_lseek);
    await_word("getuid", by_getuid);
    await_word("umask", by_number);
    close(file);
}

static volatile sig_atomic_t rung;
static void ring(int number) { rung = number; }

// Two processes that never end by themselves, as in LTP's rename14.
static void work_for_ever(void) {
    pid_t children[2];
    for (int n = 0; n < 2; n++) {
        children[n] = fork();
        if (children[n] == 0)
            for (;;) rename(n ? path : other, n ? other : path);
    }
    signal(SIGALRM, ring);
    ualarm(200000, 0);
    pause();
    say("rung %d", rung == SIGALRM);
    for (int n = 0; n < 2; n++) {
        int status;
        CHECK(kill(children[n], SIGTERM) == 0 && waitpid(children[n], &status, 0) == children[n]);
        say("ended by %d", WTERMSIG(status));
    }
}

static void scenario(void) {
    await_file("stat", by_stat);
    await_file("access", by_access);
    await_file("open", by_opening);
    await_words();
    work_for_ever();
}

int main(int argc, char** argv) {
    snprintf(path, sizeof path, "/tmp/file-loop-%s", argc > 1 ? argv[1] : "");
    snprintf(other, sizeof other, "%s-other", path);
    return serve(argc, argv, scenario);
}
