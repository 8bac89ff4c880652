// posix_spawn() beside another thread's fork(): it is done when its own child has begun its program, whatever
// becomes of the other's children; and it needs no descriptor.
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "serve.h"

enum { kSpawns = 40, kForks = 40 };

extern char** environ;

static int spawn(const char* path, pid_t* child) {
    char* const words[] = {"word", NULL};
    return posix_spawn(child, path, NULL, NULL, words, environ);
}

static void say_end(const char* name, int error, pid_t child) {
    int status = 0;
    if (error == 0) CHECK(waitpid(child, &status, 0) == child);
    say("%s: %s status %x", name, code(error), (unsigned)status);
}

static int well;
static void* spawn_many(void* unused) {
    for (int i = 0; i < kSpawns; i++) {
        int status = 0;
        pid_t child = -1;
        const int error = spawn(i % 2 ? "/bin/true" : "/no/such/program", &child);
        well += i % 2 ? error == 0 && waitpid(child, &status, 0) == child && status == 0 : error == ENOENT;
    }
    return unused;
}

static pid_t stayers[kForks];
static void* fork_many(void* unused) {
    for (int i = 0; i < kForks; i++) {
        stayers[i] = fork();
        CHECK(stayers[i] >= 0);
        while (stayers[i] == 0) pause();
    }
    return unused;
}

static void beside_forks(void) {
    pthread_t spawner, forker;
    well = 0;
    CHECK(pthread_create(&spawner, NULL, spawn_many, NULL) == 0);
    CHECK(pthread_create(&forker, NULL, fork_many, NULL) == 0);
    pthread_join(forker, NULL);
    const struct timespec limit = now_plus_ms(CLOCK_REALTIME, 30000);
    const int late = pthread_timedjoin_np(spawner, NULL, &limit);
    for (int i = 0; i < kForks; i++)
        CHECK(kill(stayers[i], SIGKILL) == 0 && waitpid(stayers[i], NULL, 0) == stayers[i]);
    if (late) pthread_join(spawner, NULL);
    say("beside forks: %s, %d of %d as they should be", code(late), well, kSpawns);
}

static void without_descriptors(void) {
    struct rlimit before, low;
    pid_t child = -1;
    CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
    low = before;
    low.rlim_cur = 32;
    CHECK(setrlimit(RLIMIT_NOFILE, &low) == 0);
    while (open("/dev/null", O_RDONLY | O_CLOEXEC) >= 0) continue;
    say("none free: %s", strerrorname_np(errno));
    const int error = spawn("/bin/true", &child);
    const int missing = spawn("/no/such/program", &child);
    for (int fd = 3; fd < 32; fd++)
        if (fcntl(fd, F_GETFD) == FD_CLOEXEC && lseek(fd, 0, SEEK_CUR) == 0) close(fd);
    CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
    say_end("with none free", error, child);
    say("missing: %s", code(missing));
}

static void scenario(void) {
    without_descriptors();
    beside_forks();
}

int main(int argc, char** argv) {
    return serve(argc, argv, scenario);
}
