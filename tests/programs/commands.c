// Commands that a program runs: several at once, cancelled, ended by fclose; what posix_spawn tells where
// descriptors are scarce; an alarm that goes on in the program of an exec; functions that timers call.
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>

#include "serve.h"

static const char* interrupt_does(void) {
    struct sigaction now;
    CHECK(sigaction(SIGINT, NULL, &now) == 0);
    return now.sa_handler == SIG_IGN ? "ignored" : now.sa_handler == SIG_DFL ? "default" : "handled";
}

static void* run_longer(void* command) {
    say("longer: %d", WEXITSTATUS(system(command)));
    return NULL;
}

/// The one that began first ends first.
static void overlapping(void) {
    pthread_t longer;
    int go[2];
    CHECK(pipe(go) == 0);
    char command[99];
    snprintf(command, sizeof command, "read word <&%d; exit 3", go[0]);
    CHECK(pthread_create(&longer, NULL, run_longer, command) == 0);
    while (strcmp(interrupt_does(), "ignored") != 0) usleep(1000);
    say("shorter: %d", WEXITSTATUS(system("exit 2")));
    say("while one runs SIGINT is %s", interrupt_does());
    CHECK(write(go[1], "go\n", 3) == 3 && pthread_join(longer, NULL) == 0);
    say("then %s", interrupt_does());
    close(go[0]), close(go[1]);
}

static void cancelled(void) {
    pthread_t thread;
    void* result;
    CHECK(pthread_create(&thread, NULL, run_longer, "exec sleep 1000") == 0);
    while (strcmp(interrupt_does(), "ignored") != 0) usleep(1000);
    CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0);
    say("cancelled %d, SIGINT is %s, a child is left: %d", result == PTHREAD_CANCELED, interrupt_does(),
        waitpid(-1, NULL, WNOHANG) >= 0);
}

/// The compiler knows that pclose() is meant for what popen() gives.
static int (*volatile end_of_file)(FILE*) = fclose;

static void closed_by_fclose(void) {
    enum { kMany = 100 };
    FILE* streams[kMany];
    for (int i = 0; i < kMany; i++) CHECK((streams[i] = popen("cat > /dev/null; exit 7", "w")) != NULL);
    int as_told = 0;
    for (int i = 0; i < kMany; i++)
        as_told += WEXITSTATUS(i % 2 ? pclose(streams[i]) : end_of_file(streams[i])) == 7;
    say("%d of %d ended as they should, a child is left: %d", as_told, kMany,
        waitpid(-1, NULL, WNOHANG) >= 0);
    FILE* output = popen("echo line; exit 5", "r");
    char line[20];
    CHECK(fgets(line, sizeof line, output) != NULL);
    say("read %s, %d", strtok(line, "\n"), WEXITSTATUS(end_of_file(output)));
}

extern char** environ;

static void say_spawned(const char* what, posix_spawn_file_actions_t* actions) {
    char* const nothing[] = {"nothing", NULL};
    pid_t child = -1;
    say("%s: %s", what, strerror(posix_spawn(&child, "/nonexistent", actions, NULL, nothing, environ)));
}

static void spawned_with_few_descriptors(void) {
    posix_spawn_file_actions_t actions;
    CHECK(posix_spawn_file_actions_init(&actions) == 0);
    CHECK(posix_spawn_file_actions_addclosefrom_np(&actions, 3) == 0);
    say_spawned("all closed", &actions);
    struct rlimit before, low;
    CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
    low = before;
    low.rlim_cur = 64;
    CHECK(setrlimit(RLIMIT_NOFILE, &low) == 0);
    say_spawned("few, all closed", &actions);
    CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
    CHECK(posix_spawn_file_actions_destroy(&actions) == 0 && posix_spawn_file_actions_init(&actions) == 0);
    for (int fd = 250; fd < 270; fd++) CHECK(posix_spawn_file_actions_adddup2(&actions, 2, fd) == 0);
    say_spawned("numbers taken", &actions);
    CHECK(posix_spawn_file_actions_destroy(&actions) == 0);
}

/// Of the program that is executed, which knows of no alarm.
static void alarm_over_exec(const char* command) {
    int status;
    const pid_t child = fork();
    if (child == 0) {
        const struct itimerval soon = {.it_value = {.tv_usec = 300000}};
        setitimer(ITIMER_REAL, &soon, NULL);
        execl("/bin/sh", "sh", "-c", command, NULL);
        _exit(1);
    }
    CHECK(waitpid(child, &status, 0) == child);
    say("%s: ended by signal %d, status %d", command, WIFSIGNALED(status) ? WTERMSIG(status) : 0,
        WIFEXITED(status) ? WEXITSTATUS(status) : 0);
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int called, let_go;

/// Needs a large stack, and waits for a later call.
static void on_timer(union sigval value) {
    volatile char large[4 << 20];
    for (size_t at = 0; at < sizeof large; at += 4096) large[at] = (char)at;
    pthread_mutex_lock(&lock);
    const int number = ++called;
    if (number == 2) let_go = 1;
    pthread_cond_broadcast(&changed);
    while (!let_go) pthread_cond_wait(&changed, &lock);
    if (number <= 2) say("call %d with %d", number, value.sival_int);
    pthread_mutex_unlock(&lock);
}

static void timers_call(void) {
    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_THREAD, .sigev_value = {.sival_int = 9}};
    event.sigev_notify_function = on_timer;
    const struct itimerspec often = {{0, 20000000}, {0, 20000000}};
    called = let_go = 0;
    CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0 && timer_settime(timer, 0, &often, NULL) == 0);
    pthread_mutex_lock(&lock);
    while (!let_go) pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    CHECK(timer_delete(timer) == 0);
    usleep(50000);
}

/// As programs do that have enlarged their sets.
static void select_of_many(void) {
    enum { kHigh = 5000 };
    static unsigned long reads[kHigh / 64 + 1];
    int ends[2];
    CHECK(pipe(ends) == 0);
    const int high = fcntl(ends[0], F_DUPFD, kHigh - 7);
    const unsigned long bit = 1UL << (high % 64);
    struct timeval soon = {.tv_usec = 1000};
    reads[high / 64] = bit;
    int ready = select(high + 1, (fd_set*)reads, NULL, NULL, &soon);
    say("select: %d, in the set %d", ready, reads[high / 64] == bit);
    CHECK(write(ends[1], "x", 1) == 1);
    reads[high / 64] = bit;
    soon.tv_sec = 100;
    ready = select(high + 1, (fd_set*)reads, NULL, NULL, &soon);
    say("select: %d, in the set %d", ready, reads[high / 64] == bit);
    reads[high / 64] = bit << 1;
    say("select of what is closed: %s", outcome(select(high + 2, (fd_set*)reads, NULL, NULL, &soon)));
    close(high), close(ends[0]), close(ends[1]);
}

static void scenario(void) {
    overlapping();
    cancelled();
    closed_by_fclose();
    spawned_with_few_descriptors();
    alarm_over_exec("read word < /dev/zero; exit 1");
    alarm_over_exec("exit 4");
    alarm_over_exec("trap 'exit 6' ALRM; while :; do sleep 0.05; done");
    select_of_many();
    timers_call();
}

int main(int argc, char** argv) {
    return serve(argc, argv, scenario);
}
