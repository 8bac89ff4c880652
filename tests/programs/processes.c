// fork, wait, exec, signals, process-shared locks, shared memory, and descriptors passed between processes.
#include "serve.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

struct Shared {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int counter, ready, sequence[64], taken;
};

static volatile sig_atomic_t usr1_seen, child_seen;
static void on_usr1(int number) { usr1_seen += number == SIGUSR1; }
static void on_child(int number) { child_seen += number == SIGCHLD; }

static struct Shared* make_shared(void) {
    struct Shared* shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_mutexattr_t mutex;
    pthread_condattr_t cond;
    CHECK(shared != MAP_FAILED);
    pthread_mutexattr_init(&mutex);
    pthread_mutexattr_setpshared(&mutex, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(&shared->lock, &mutex);
    pthread_condattr_init(&cond);
    pthread_condattr_setpshared(&cond, PTHREAD_PROCESS_SHARED);
    pthread_cond_init(&shared->changed, &cond);
    return shared;
}

static void exits(void) {
    int status;
    say("wait without child %s", outcome(wait(&status)));
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) _exit(7);
    say("waited for it %d", waitpid(child, &status, 0) == child);
    say("exited %d with %d", WIFEXITED(status), WEXITSTATUS(status));
    child = fork();
    if (child == 0) {
        pause();
        _exit(1);
    }
    say("WNOHANG %s", outcome(waitpid(child, &status, WNOHANG)));
    kill(child, SIGTERM);
    waitpid(child, &status, 0);
    say("signaled %d by %d", WIFSIGNALED(status), WTERMSIG(status));
    say("kill gone %s", outcome(kill(child, 0)));
    siginfo_t information = {0};
    child = fork();
    if (child == 0) _exit(3);
    say("waitid %s", outcome(waitid(P_PID, child, &information, WEXITED)));
    say("code %d status %d", information.si_code == CLD_EXITED, information.si_status);
    order("pids %d %d", getpid(), child);
}

static void shared_counting(void) {
    struct Shared* shared = make_shared();
    pid_t children[4];
    for (int n = 0; n < 4; n++) {
        CHECK((children[n] = fork()) >= 0);
        if (children[n] != 0) continue;
        for (int round = 0; round < 10; round++) {
            pthread_mutex_lock(&shared->lock);
            shared->sequence[shared->taken++] = n;
            shared->counter++;
            pthread_cond_broadcast(&shared->changed);
            pthread_mutex_unlock(&shared->lock);
        }
        _exit(0);
    }
    pthread_mutex_lock(&shared->lock);
    while (shared->counter < 40) pthread_cond_wait(&shared->changed, &shared->lock);
    pthread_mutex_unlock(&shared->lock);
    for (int n = 0; n < 4; n++) CHECK(waitpid(children[n], NULL, 0) == children[n]);
    say("counted %d", shared->counter);
    char sequence[41] = {0};
    for (int n = 0; n < 40; n++) sequence[n] = (char)('a' + shared->sequence[n]);
    order("order %s", sequence);
    munmap(shared, sizeof *shared);
}

// Children of a process that ignores SIGCHLD are gone when they end; others remain to be waited for.
static void ignored_children(void) {
    int ends[2], left = 0;
    char byte;
    for (int ignored = 0; ignored < 2; ignored++) {
        signal(SIGCHLD, ignored ? SIG_IGN : SIG_DFL);
        CHECK(pipe(ends) == 0);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) _exit(0);
        close(ends[1]);
        say("end of file %s", outcome(read(ends[0], &byte, 1)));  // the child has ended, or is about to
        close(ends[0]);
        for (int n = 0; n < 100 && (left = kill(child, 0)) == 0; n++) usleep(2000);
        say("left %d", left == 0);
        say("waited %d", waitpid(child, NULL, 0) == child);
        say("again %s", outcome(waitpid(child, NULL, 0)));
    }
    signal(SIGCHLD, SIG_DFL);
}

static void signals(void) {
    struct sigaction action = {.sa_handler = on_usr1}, child_action = {.sa_handler = on_child};
    sigset_t blocked, old;
    usr1_seen = child_seen = 0;
    sigaction(SIGUSR1, &action, NULL);
    sigaction(SIGCHLD, &child_action, NULL);
    raise(SIGUSR1);
    say("raised %d", usr1_seen);
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR1);
    sigprocmask(SIG_BLOCK, &blocked, &old);
    kill(getpid(), SIGUSR1);
    say("blocked %d", usr1_seen);
    sigset_t pending;
    sigpending(&pending);
    say("pending %d", sigismember(&pending, SIGUSR1));
    sigprocmask(SIG_SETMASK, &old, NULL);
    say("delivered %d", usr1_seen);
    pid_t parent = getpid(), child = fork();
    if (child == 0) {
        kill(parent, SIGUSR1);
        _exit(0);
    }
    int status;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    for (int n = 0; n < 200 && (usr1_seen < 3 || child_seen < 1); n++) usleep(5000);
    say("from the child %d", usr1_seen);
    say("SIGCHLD %d", child_seen >= 1);
    signal(SIGCHLD, SIG_DFL);
    child = fork();
    if (child == 0) {
        usleep(20000);
        kill(parent, SIGUSR1);
        _exit(0);
    }
    say("sleep is interrupted %s", outcome(usleep(900000)));
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    signal(SIGUSR1, SIG_DFL);
}

static int woken_by[2];
static void on_usr2(int number) {
    char byte = (char)number;
    (void)!write(woken_by[1], &byte, 1);
}

static void* unblock_and_wait(void* argument) {
    sigset_t none;
    char byte;
    sigemptyset(&none);
    sched_yield();
    pthread_sigmask(SIG_SETMASK, &none, NULL);
    while (read(woken_by[0], &byte, 1) < 0 && errno == EINTR) {
    }
    *(int*)argument = byte;
    return NULL;
}

// A signal sent between the end of its blocking and a wait: its handler runs, wherever the schedule puts it.
static void signals_before_waits(void) {
    struct sigaction action = {.sa_handler = on_usr2};
    int handled = 0;
    sigset_t set, before;
    CHECK(pipe(woken_by) == 0);
    sigaction(SIGUSR2, &action, NULL);
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    pthread_sigmask(SIG_BLOCK, &set, &before);
    for (int round = 0; round < 8; round++) {
        pthread_t thread;
        int got = 0;
        CHECK(pthread_create(&thread, NULL, unblock_and_wait, &got) == 0);
        for (int n = 0; n < round; n++) sched_yield();
        pthread_kill(thread, SIGUSR2);
        pthread_join(thread, NULL);
        handled += got == SIGUSR2;
    }
    say("handled %d", handled);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    signal(SIGUSR2, SIG_DFL);
    close(woken_by[0]);
    close(woken_by[1]);
}

// Each child counts in a file, under a lock that it gives up by an unlock, a close, or its end.
static int count_locked(const char* path, int n) {
    int fd = open(path, O_RDWR), count = 0;
    CHECK(fd >= 0 && (n < 3 ? flock(fd, LOCK_EX) : lockf(fd, F_LOCK, 0)) == 0);
    CHECK(pread(fd, &count, sizeof count, 0) == sizeof count);
    sched_yield();
    count++;
    CHECK(pwrite(fd, &count, sizeof count, 0) == sizeof count);
    if (n % 3 == 0) CHECK((n < 3 ? flock(fd, LOCK_UN) : lockf(fd, F_ULOCK, 0)) == 0);
    if (n % 3 == 1) close(fd);
    if (n % 3 == 2) usleep(1000);
    return count;
}

static void file_locks(void) {
    char path[] = "/tmp/crane-test-XXXXXX";
    int fd = mkstemp(path), zero = 0, status;
    CHECK(fd >= 0 && pwrite(fd, &zero, sizeof zero, 0) == sizeof zero);
    for (int kind = 0; kind < 2; kind++) {
        for (int n = 0; n < 3; n++) {
            pid_t child = fork();
            CHECK(child >= 0);
            if (child == 0) _exit(count_locked(path, 3 * kind + n));
        }
        int sum = 0;
        for (int n = 0; n < 3; n++) sum += wait(&status) > 0 ? WEXITSTATUS(status) : 0;
        say("counted under locks %d", sum);
    }
    close(fd);
    unlink(path);
}

static void executes(void) {
    int ends[2], status;
    char text[128] = {0};
    CHECK(pipe(ends) == 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], 1);
        execl("/bin/sh", "sh", "-c", "echo from the shell; exit 5", (char*)NULL);
        _exit(127);
    }
    close(ends[1]);
    ssize_t got, at = 0;
    while ((got = read(ends[0], text + at, sizeof text - 1 - at)) > 0) at += got;
    close(ends[0]);
    waitpid(child, &status, 0);
    say("exec said %s", strtok(text, "\n"));
    say("exec exited %d", WEXITSTATUS(status));
    child = fork();
    if (child == 0) {
        execl("/no/such/program", "x", (char*)NULL);
        _exit(errno == ENOENT ? 11 : 12);
    }
    waitpid(child, &status, 0);
    say("exec of nothing %d", WEXITSTATUS(status));
    FILE* pipe = popen("echo piped", "r");
    CHECK(pipe && fgets(text, sizeof text, pipe));
    say("popen %s", strtok(text, "\n"));
    say("pclose %d", pclose(pipe));
    say("system %d", WEXITSTATUS(system("exit 4")));
    // A script that does not name who runs it.
    char script[] = "/tmp/crane-script-XXXXXX";
    const int file = mkstemp(script);
    CHECK(file >= 0 && dprintf(file, "exit $1\n") > 0 && fchmod(file, 0700) == 0 && close(file) == 0);
    child = fork();
    if (child == 0) {
        execvpe(script, (char* const[]){script, "9", NULL}, NULL);
        _exit(1);
    }
    waitpid(child, &status, 0);
    say("script for the shell %d", WEXITSTATUS(status));
    unlink(script);
    // One that goes on for ever ends when nobody reads.
    pipe = popen("while echo again; do :; done 2> /dev/null; exit 3", "r");
    CHECK(pipe && fgets(text, sizeof text, pipe));
    say("endless %s, %d", strtok(text, "\n"), WEXITSTATUS(pclose(pipe)));
    // The second does not hold the end open that the first waits for.
    FILE *one = popen("cat", "w"), *other = popen("cat > /dev/null; exit 5", "w");
    CHECK(one && other);
    say("first %d", WEXITSTATUS(pclose(one)));
    say("second %d", WEXITSTATUS(pclose(other)));
}

static pthread_barrier_t cancelled;
static void* spawn_all_the_same(void* pid) {
    pthread_barrier_wait(&cancelled);
    char* words[] = {"sh", "-c", "exit 6", NULL};
    CHECK(posix_spawn(pid, "/bin/sh", NULL, NULL, words, environ) == 0);
    return NULL;
}
// posix_spawn() is nothing to be cancelled in.
static void spawned_by_the_cancelled(void) {
    pthread_t thread;
    pid_t child = 0;
    int status = 0;
    CHECK(pthread_barrier_init(&cancelled, NULL, 2) == 0);
    CHECK(pthread_create(&thread, NULL, spawn_all_the_same, &child) == 0);
    CHECK(pthread_cancel(thread) == 0);
    pthread_barrier_wait(&cancelled);
    void* result;
    CHECK(pthread_join(thread, &result) == 0);
    say("cancelled %d", result == PTHREAD_CANCELED);
    if (child > 0) waitpid(child, &status, 0);
    say("spawned %d", WEXITSTATUS(status));
}

static void send_fd(int over, int fd) {
    char data = 'd', control[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec vector = {&data, 1};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &fd, sizeof fd);
    CHECK(sendmsg(over, &message, 0) == 1);
}

static int receive_fd(int over) {
    char data, control[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec vector = {&data, 1};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    int fd = -1;
    if (recvmsg(over, &message, 0) != 1) return -1;
    struct cmsghdr* header = CMSG_FIRSTHDR(&message);
    if (header && header->cmsg_type == SCM_RIGHTS) memcpy(&fd, CMSG_DATA(header), sizeof fd);
    return fd;
}

static void scenario(void) {
    exits();
    shared_counting();
    ignored_children();
    signals();
    signals_before_waits();
    file_locks();
    executes();
    spawned_by_the_cancelled();
}

// A child of the server's own: answers the clients whose descriptors it is sent.
static void worker(int over) {
    for (int client; (client = receive_fd(over)) >= 0;) answer(client, scenario);
    _exit(0);
}

int main(int argc, char** argv) {
    int ends[2];
    CHECK(argc == 2);
    signal(SIGPIPE, SIG_IGN);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        close(ends[0]);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        worker(ends[1]);
    }
    close(ends[1]);
    int listener = listen_on(atoi(argv[1]));
    for (;;) {
        int client = accept(listener, NULL, NULL);
        CHECK(client >= 0);
        send_fd(ends[0], client);
        close(client);
    }
}
