// Threads whose cancellation is pending when they come to a call at which they end: what the call would have
// taken (a child's status, a signal, a message, a lock) is still there for others. And calls at which no
// thread ends.
#include <fcntl.h>
#include <mqueue.h>
#include <poll.h>
#include <pthread.h>
#include <pty.h>
#include <semaphore.h>
#include <setjmp.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "serve.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static sem_t waits, release;
static int ends[2], file;
static pid_t child;
static pthread_t other;
static mqd_t queue;
static char folder[64], path[128];
static const struct timespec kHour = {3600, 0};

// --- what is there for the call to take

static void ended_child(void) {
    siginfo_t info;
    child = fork();
    if (child == 0) _exit(7);
    CHECK(child > 0 && waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT) == 0);
}

static void child_is_left(void) {
    int status = 0;
    const pid_t ended = waitpid(child, &status, WNOHANG);
    say("  waited for: %d, status %d", ended == child, WEXITSTATUS(status));
}

static void running_child(void) {
    child = fork();
    if (child == 0) {
        pause();
        _exit(0);
    }
    CHECK(child > 0);
}

static void end_child(void) {
    int status = 0;
    CHECK(kill(child, SIGKILL) == 0 && waitpid(child, &status, 0) == child);
    say("  ended by %d", WTERMSIG(status));
}

static void signal_sent(void) {
    CHECK(kill(getpid(), SIGUSR1) == 0);
}

static sigset_t user_signals(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGUSR2);
    return set;
}

static void signal_is_left(void) {
    const sigset_t set = user_signals();
    const struct timespec at_once = {0, 0};
    say("  pending: %s", outcome(sigtimedwait(&set, NULL, &at_once)));
}

static void* await_release(void* unused) {
    while (sem_wait(&release) != 0) continue;
    return unused;
}

static void running_thread(void) {
    CHECK(pthread_create(&other, NULL, await_release, ends) == 0);
}

static void thread_is_left(void) {
    void* result = NULL;
    CHECK(sem_post(&release) == 0);
    const int error = pthread_join(other, &result);
    say("  joined: %s, %d", code(error), result == (void*)ends);
}

static void open_file_there(void) {
    snprintf(path, sizeof path, "%s/file", folder);
    file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(file >= 0);
}

static void file_is_left(void) {
    struct stat info;
    struct flock wanted = {.l_type = F_WRLCK};
    int status;
    CHECK(fcntl(file, F_GETFD) >= 0 && fstat(file, &info) == 0);
    const pid_t asks = fork();
    if (asks == 0) _exit(fcntl(file, F_GETLK, &wanted) == 0 && wanted.l_type == F_UNLCK ? 0 : 1);
    CHECK(waitpid(asks, &status, 0) == asks);
    say("  open, %ld bytes, locked: %d", (long)info.st_size, WEXITSTATUS(status));
    close(file);
    unlink(path);
}

static void fifo_there(void) {
    snprintf(path, sizeof path, "%s/fifo", folder);
    CHECK(mkfifo(path, 0600) == 0);
}

static void no_file_there(void) {
    snprintf(path, sizeof path, "%s/none", folder);
}

static void path_is_left(void) {
    say("  unlinked: %s", outcome(unlink(path)));
}

static void message_sent(void) {
    struct mq_attr shape = {.mq_maxmsg = 1, .mq_msgsize = 8};
    queue = mq_open("/crane-cancel-points", O_RDWR | O_CREAT | O_NONBLOCK, 0600, &shape);
    CHECK(queue != (mqd_t)-1 && mq_unlink("/crane-cancel-points") == 0 && mq_send(queue, "kept", 5, 0) == 0);
}

static void message_is_left(void) {
    char text[8];
    say("  received: %s", outcome(mq_receive(queue, text, sizeof text, NULL)));
    CHECK(mq_close(queue) == 0);
}

static void byte_sent(void) {
    CHECK(write(ends[1], "x", 1) == 1);
}

static void byte_is_left(void) {
    char text[8];
    say("  read: %s", outcome(read(ends[0], text, sizeof text)));
}

// --- the calls

static void by_poll(void) {
    poll(&(struct pollfd){ends[0], POLLIN, 0}, 1, -1);
}
static void by_ppoll(void) {
    ppoll(&(struct pollfd){ends[0], POLLIN, 0}, 1, &kHour, NULL);
}
static void by_select(void) {
    fd_set set;
    FD_ZERO(&set);
    FD_SET(ends[0], &set);
    select(ends[0] + 1, &set, NULL, NULL, NULL);
}
static void by_pselect(void) {
    pselect(0, NULL, NULL, NULL, &kHour, NULL);
}
static void by_waitpid(void) {
    waitpid(child, NULL, 0);
}
static void by_waitid(void) {
    siginfo_t info;
    waitid(P_PID, (id_t)child, &info, WEXITED);
}
static void by_wait(void) {
    wait(NULL);
}
static void by_wait3(void) {
    wait3(NULL, 0, NULL);
}
static void by_wait4(void) {
    struct rusage used;
    wait4(child, NULL, 0, &used);
}
static void by_sigwait(void) {
    const sigset_t set = user_signals();
    int got;
    sigwait(&set, &got);
}
static void by_sigwaitinfo(void) {
    const sigset_t set = user_signals();
    sigwaitinfo(&set, NULL);
}
static void by_sigtimedwait(void) {
    const sigset_t set = user_signals();
    sigtimedwait(&set, NULL, &kHour);
}
static void by_pause(void) {
    pause();
}
static void by_join(void) {
    pthread_join(other, NULL);
}
static void by_timed_join(void) {
    const struct timespec until = now_plus_ms(CLOCK_REALTIME, 3600 * 1000);
    pthread_timedjoin_np(other, NULL, &until);
}
static void by_clock_join(void) {
    const struct timespec until = now_plus_ms(CLOCK_MONOTONIC, 3600 * 1000);
    pthread_clockjoin_np(other, NULL, CLOCK_MONOTONIC, &until);
}
static void by_open(void) {
    open(path, O_RDONLY);
}
static void by_openat(void) {
    openat(AT_FDCWD, path, O_WRONLY);
}
static void by_creat(void) {
    creat(path, 0600);
}
static void by_fopen(void) {
    fopen(path, "r");
}
static void by_close(void) {
    close(file);
}
static void by_pwrite(void) {
    (void)!pwrite(file, "lost", 4, 0);
}
static void by_pwritev(void) {
    struct iovec one = {(char*)"lost", 4};
    (void)!pwritev(file, &one, 1, 0);
}
static void by_setlkw(void) {
    struct flock wanted = {.l_type = F_WRLCK};
    fcntl(file, F_SETLKW, &wanted);
}
static void by_receive(void) {
    char text[8];
    (void)!mq_receive(queue, text, sizeof text, NULL);
}
static void by_splice(void) {
    (void)!splice(ends[0], NULL, file, NULL, 1, 0);
}
static void by_tee(void) {
    (void)!tee(ends[0], ends[1], 1, 0);
}
static void by_vmsplice(void) {
    char room[8];
    struct iovec one = {room, sizeof room};
    (void)!vmsplice(ends[0], &one, 1, 0);
}

static void by_try_join(void) {
    say("  %s", code(pthread_tryjoin_np(other, NULL)));
}
static void by_number(void) {
    char text[8];
    say("  %s", outcome(syscall(SYS_read, ends[0], text, sizeof text)));
}
static void by_nanosleep_number(void) {
    const struct timespec moment = {0, 1000000};
    say("  %s", outcome(syscall(SYS_nanosleep, &moment, NULL)));
}
// Whether there is a child then is libc's affair.
static void by_forkpty(void) {
    int primary;
    if (forkpty(&primary, NULL, NULL, NULL) == 0) _exit(0);
    pause();
}
static void by_mq_close(void) {
    say("  closed: %s", outcome(mq_close(queue)));
}
static void by_fclose(void) {
    FILE* const stream = fdopen(dup(ends[1]), "w");
    CHECK(stream);
    say("  closed: %s", outcome(fclose(stream)));
}

// --- a thread whose cancellation is pending, and has been noticed in a wait that it does not end

static void (*call)(void);

static void* come_to_call(void* unused) {
    sem_post(&waits);
    pthread_mutex_lock(&lock);
    pthread_mutex_unlock(&lock);
    call();
    return unused;
}

static void cancel_at(const char* name, void (*prepare)(void), void (*makes)(void), void (*look)(void)) {
    pthread_t thread;
    void* result = NULL;
    call = makes;
    if (prepare) prepare();
    CHECK(pthread_mutex_lock(&lock) == 0);
    CHECK(pthread_create(&thread, NULL, come_to_call, NULL) == 0);
    while (sem_wait(&waits) != 0) continue;
    usleep(1000);
    CHECK(pthread_cancel(thread) == 0);
    usleep(1000);
    CHECK(pthread_mutex_unlock(&lock) == 0);
    CHECK(pthread_join(thread, &result) == 0);
    say("%s: cancelled %d", name, result == PTHREAD_CANCELED);
    if (look) look();
}

// --- what a thread does while it ends is no more cut short

static void* send_later(void* to) {
    usleep(20000);
    CHECK(pthread_kill(*(pthread_t*)to, SIGUSR2) == 0);
    return NULL;
}

static void wait_for_signal(void* unused) {
    (void)unused;
    const sigset_t set = user_signals();
    pthread_t self = pthread_self(), sender;
    CHECK(pthread_create(&sender, NULL, send_later, &self) == 0);
    const int got = sigwaitinfo(&set, NULL);
    say("  in its end: %s", outcome(got));
    say("  joins: %s", code(pthread_join(sender, NULL)));
}

static void end_with_wait(void) {
    pthread_cleanup_push(wait_for_signal, NULL);
    poll(NULL, 0, -1);
    pthread_cleanup_pop(0);
}

static void* test_and_end(void* unused) {
    sem_post(&waits);
    pthread_cleanup_push(wait_for_signal, NULL);
    for (;;) {
        pthread_testcancel();
        sched_yield();
    }
    pthread_cleanup_pop(0);
    return unused;
}

static void tested(void) {
    pthread_t thread;
    void* result = NULL;
    CHECK(pthread_create(&thread, NULL, test_and_end, NULL) == 0);
    while (sem_wait(&waits) != 0) continue;
    CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0);
    say("tested: cancelled %d", result == PTHREAD_CANCELED);
}

// Who jumps out of a call by its number, or of one that libc makes as no cancellation point, can be cancelled again.
static sigjmp_buf back;

static void jump_back(int signal) {
    siglongjmp(back, signal);
}

static void* jump_out(void* unused) {
    if (sigsetjmp(back, 1) == 0) {
        sem_post(&waits);
        for (;;) syscall(SYS_pause);
    }
    sem_post(&waits);
    poll(NULL, 0, -1);
    return unused;
}

static void* jump_out_of_fgets(void* file) {
    char line[16];
    int state = -1;
    if (sigsetjmp(back, 1) == 0) {
        sem_post(&waits);
        for (;;) fgets_unlocked(line, sizeof line, file);
    }
    CHECK(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state) == 0);
    say("  it could be cancelled: %d", state == PTHREAD_CANCEL_ENABLE);
    sem_post(&waits);
    poll(NULL, 0, -1);
    return file;
}

static void jumped(const char* from, void* (*routine)(void*), void* argument) {
    struct sigaction action = {.sa_handler = jump_back};
    pthread_t thread;
    void* result = NULL;
    CHECK(sigaction(SIGWINCH, &action, NULL) == 0);
    CHECK(pthread_create(&thread, NULL, routine, argument) == 0);
    while (sem_wait(&waits) != 0) continue;
    usleep(1000);
    CHECK(pthread_kill(thread, SIGWINCH) == 0);
    while (sem_wait(&waits) != 0) continue;
    CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0);
    say("jumped out of %s: cancelled %d", from, result == PTHREAD_CANCELED);
    signal(SIGWINCH, SIG_DFL);
}

static void* exit_by_number(void* unused) {
    syscall(SYS_exit, 0);
    return unused;
}

static void scenario(void) {
    const sigset_t set = user_signals();
    CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
    CHECK(sem_init(&waits, 0, 0) == 0 && sem_init(&release, 0, 0) == 0 && pipe(ends) == 0);
    snprintf(folder, sizeof folder, "/tmp/cancelpointsXXXXXX");
    CHECK(mkdtemp(folder));
    cancel_at("poll", NULL, by_poll, NULL);
    cancel_at("poll when ready", byte_sent, by_poll, byte_is_left);
    cancel_at("ppoll", NULL, by_ppoll, NULL);
    cancel_at("select", NULL, by_select, NULL);
    cancel_at("pselect", NULL, by_pselect, NULL);
    cancel_at("waitpid", ended_child, by_waitpid, child_is_left);
    cancel_at("waitpid, none ended", running_child, by_waitpid, end_child);
    cancel_at("waitid", ended_child, by_waitid, child_is_left);
    cancel_at("waitid, none ended", running_child, by_waitid, end_child);
    cancel_at("wait", ended_child, by_wait, child_is_left);
    cancel_at("wait3", ended_child, by_wait3, child_is_left);
    cancel_at("wait4", ended_child, by_wait4, child_is_left);
    cancel_at("wait4, none ended", running_child, by_wait4, end_child);
    cancel_at("sigwait", signal_sent, by_sigwait, signal_is_left);
    cancel_at("sigwait, none sent", NULL, by_sigwait, NULL);
    cancel_at("sigwaitinfo", signal_sent, by_sigwaitinfo, signal_is_left);
    cancel_at("sigtimedwait", signal_sent, by_sigtimedwait, signal_is_left);
    cancel_at("sigtimedwait, none sent", NULL, by_sigtimedwait, NULL);
    cancel_at("pause", NULL, by_pause, NULL);
    cancel_at("pthread_join", running_thread, by_join, thread_is_left);
    cancel_at("pthread_timedjoin_np", running_thread, by_timed_join, thread_is_left);
    cancel_at("pthread_clockjoin_np", running_thread, by_clock_join, thread_is_left);
    cancel_at("open", fifo_there, by_open, path_is_left);
    cancel_at("openat", fifo_there, by_openat, path_is_left);
    cancel_at("fopen", fifo_there, by_fopen, path_is_left);
    cancel_at("creat", no_file_there, by_creat, path_is_left);
    cancel_at("close", open_file_there, by_close, file_is_left);
    cancel_at("pwrite", open_file_there, by_pwrite, file_is_left);
    cancel_at("pwritev", open_file_there, by_pwritev, file_is_left);
    cancel_at("a lock", open_file_there, by_setlkw, file_is_left);
    cancel_at("mq_receive", message_sent, by_receive, message_is_left);
    cancel_at("splice", open_file_there, by_splice, file_is_left);
    cancel_at("tee", NULL, by_tee, NULL);
    cancel_at("vmsplice", NULL, by_vmsplice, NULL);
    // No cancellation points.
    cancel_at("pthread_tryjoin_np", running_thread, by_try_join, thread_is_left);
    cancel_at("a call by its number", byte_sent, by_number, NULL);
    cancel_at("a sleep by its number", NULL, by_nanosleep_number, NULL);
    cancel_at("mq_close", message_sent, by_mq_close, NULL);
    cancel_at("fclose", NULL, by_fclose, NULL);
    cancel_at("what ends it", NULL, end_with_wait, NULL);
    cancel_at("forkpty", NULL, by_forkpty, NULL);
    tested();
    jumped("a call", jump_out, NULL);
    fifo_there();
    FILE* const uncancelled = fopen(path, "r+c");
    CHECK(uncancelled);
    jumped("fgets", jump_out_of_fgets, uncancelled);
    CHECK(fclose(uncancelled) == 0 && unlink(path) == 0);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, exit_by_number, NULL) == 0);
    say("ended by number: %s", code(pthread_join(thread, NULL)));
    close(ends[0]);
    close(ends[1]);
    CHECK(rmdir(folder) == 0);
}

int main(int argc, char** argv) {
    return serve(argc, argv, scenario);
}
