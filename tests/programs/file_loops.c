// Loops of nothing but calls on files: who waits for a file that another makes, and who works on files for ever, while others
// are served and a time that was set comes.
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
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
    work_for_ever();
}

int main(int argc, char** argv) {
    snprintf(path, sizeof path, "/tmp/file-loop-%s", argc > 1 ? argv[1] : "");
    snprintf(other, sizeof other, "%s-other", path);
    return serve(argc, argv, scenario);
}
