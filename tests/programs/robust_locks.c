// Robust mutexes whose holder executes a program or ends, as a thread or with its process, while somebody
// sleeps for them: who waits is told of it there and then, in whatever process it is.
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "serve.h"

enum { kRounds = 20, kSoonMs = 3000 };

static char static_tool[512];
static pthread_mutex_t* lock;
/// Ends of pipes: the holder says that it has the lock, who wants it that it comes; the holder is told to go
/// on.
static int held[2], ready[2], go_on[2], stay[2];

static void make_lock(int shared) {
    pthread_mutexattr_t kind;
    pthread_mutexattr_init(&kind), pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
    pthread_mutexattr_setpshared(&kind, shared ? PTHREAD_PROCESS_SHARED : PTHREAD_PROCESS_PRIVATE);
    CHECK(pthread_mutex_init(lock, &kind) == 0);
}

/// Kept over an exec: who waits for a lock is to be woken by nothing else.
static void make_pipe(int* ends) {
    CHECK(pipe(ends) == 0);
}

static void make_pipes(void) {
    make_pipe(held), make_pipe(ready), make_pipe(go_on), make_pipe(stay);
}

static void close_pipes(void) {
    for (int end = 0; end < 2; end++)
        close(held[end]), close(ready[end]), close(go_on[end]), close(stay[end]);
}

static void tell(int fd) {
    CHECK(write(fd, "x", 1) == 1);
}

static void await(int fd) {
    char byte;
    CHECK(read(fd, &byte, 1) == 1);
}

static void hold(void) {
    CHECK(pthread_mutex_lock(lock) == 0);
    tell(held[1]);
    await(go_on[0]);
}

static void* hold_and_end(void* unused) {
    hold();
    return unused;
}

/// Lasts until the other end of its standard input is closed.
static void execute_reader(const char* path, const char* argument) {
    const int nowhere = open("/dev/null", O_WRONLY);
    CHECK(dup2(stay[0], 0) == 0 && dup2(nowhere, 1) == 1);
    hold();
    execl(path, path, argument, (char*)NULL);
    _exit(99);
}
static void become_cat(void) {
    execute_reader("/bin/cat", "-");
}
static void become_static(void) {
    execute_reader(static_tool, "copy");
}

static void end_thread(void) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, hold_and_end, NULL) == 0);
    await(stay[0]);
}

static void* stay_on(void* unused) {
    await(stay[0]);
    _exit(0);
    return unused;
}

static void end_main_thread(void) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, stay_on, NULL) == 0);
    hold();
    pthread_exit(NULL);
}

static void end_process(void) {
    hold();
}

/// What a lock with a limit far from now says, and whether that came long before.
static const char* taken(void) {
    static __thread char text[64];
    const struct timespec begin = now_plus_ms(CLOCK_MONOTONIC, 0), until = now_plus_ms(CLOCK_REALTIME, 10000);
    tell(ready[1]);  // from here on it sleeps for nothing but the lock
    const int error = pthread_mutex_timedlock(lock, &until);
    const int soon = ms_since(begin, CLOCK_MONOTONIC) < kSoonMs;
    if (error == EOWNERDEAD) CHECK(pthread_mutex_consistent(lock) == 0 && pthread_mutex_unlock(lock) == 0);
    snprintf(text, sizeof text, "%s, %s", code(error), soon ? "soon" : "late");
    return text;
}

static void* take(void* text) {
    strcpy(text, taken());
    return NULL;
}

/// As the kernel shows it: asleep, which who takes the lock is nowhere else.
static void await_sleep(pid_t pid, pid_t thread) {
    char path[64], text[512] = "";
    snprintf(path, sizeof path, "/proc/%d/task/%d/stat", pid, thread);
    do {
        const int file = open(path, O_RDONLY | O_CLOEXEC);
        CHECK(file >= 0);
        const ssize_t got = read(file, text, sizeof text - 1);
        CHECK(got > 0);
        text[got] = 0;
        close(file);
    } while (strncmp(strrchr(text, ')'), ") S", 3) != 0);
}

/// The holder is one process, who sleeps for the lock another.
static int told_soon(const char* name, void (*holder)(void)) {
    char text[64] = "";
    int answer[2], status;
    make_lock(1), make_pipes(), make_pipe(answer);
    const pid_t first = fork();
    if (first == 0) {
        close(stay[1]);
        holder();
        _exit(0);
    }
    await(held[0]);
    const pid_t second = fork();
    if (second == 0) {
        close(stay[1]);
        const char* told = taken();
        CHECK(write(answer[1], told, strlen(told)) > 0);
        _exit(0);
    }
    await(ready[0]);
    await_sleep(second, second);
    tell(go_on[1]);
    CHECK(read(answer[0], text, sizeof text - 1) > 0);
    tell(stay[1]);
    close_pipes(), close(answer[0]), close(answer[1]);
    CHECK(waitpid(first, &status, 0) == first && waitpid(second, &status, 0) == second);
    const int soon = strcmp(text, "EOWNERDEAD, soon") == 0;
    if (!soon) say("%s: %s", name, text);
    return soon;
}

static void among_processes(const char* name, void (*holder)(void), int rounds) {
    int soon = 0;
    while (soon < rounds && told_soon(name, holder)) soon++;
    say("%s: %d of %d were told", name, soon, rounds);
}

static void among_threads(void) {
    int soon = 0;
    for (int round = 0; round < kRounds && soon == round; round++) {
        pthread_t holder, taker;
        char text[64] = "";
        make_lock(0), make_pipes();
        CHECK(pthread_create(&holder, NULL, hold_and_end, NULL) == 0);
        await(held[0]);
        CHECK(pthread_create(&taker, NULL, take, text) == 0);
        await(ready[0]);
        tell(go_on[1]);
        pthread_join(holder, NULL), pthread_join(taker, NULL);
        soon += strcmp(text, "EOWNERDEAD, soon") == 0;
        if (soon == round) say("thread of the same process: %s", text);
        close_pipes();
    }
    say("thread of the same process: %d of %d were told", soon, kRounds);
}

static void scenario(void) {
    among_processes("executes a program", become_cat, 3);
    among_processes("executes one that cannot be scheduled", become_static, 3);
    among_processes("ends as a process", end_process, 3);
    among_processes("ends as a thread", end_thread, kRounds);
    among_processes("ends as the main thread", end_main_thread, kRounds);
    among_threads();
}

int main(int argc, char** argv) {
    const ssize_t length = readlink("/proc/self/exe", static_tool, sizeof static_tool - 16);
    CHECK(length > 0);
    strcpy(strrchr(static_tool, '/') + 1, "static_tool");
    lock = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(lock != MAP_FAILED);
    return serve(argc, argv, scenario);
}
