// What the kernel keeps without a descriptor: System V semaphores and queues, message queues, asynchronous input
// and output, scheduling policies. Waiting in them is scheduled.
#include <aio.h>
#include <fcntl.h>
#include <mqueue.h>
#include <pthread.h>
#include <sched.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "serve.h"

static void reap(pid_t child) {
    int status = 0;
    while (waitpid(child, &status, 0) != child) CHECK(errno == EINTR);
    say("child %d", status);
}

static void semaphores(void) {
    const int id = semget(IPC_PRIVATE, 2, 0600);
    CHECK(id >= 0);
    struct sembuf take = {0, -1, SEM_UNDO}, give = {0, 1, 0}, zero = {1, 0, 0}, try = {0, -1, IPC_NOWAIT};
    say("none there %s", outcome(semop(id, &try, 1)));
    say("none in time %s", outcome(semtimedop(id, &take, 1, &(struct timespec){0, 20000000})));
    CHECK(semop(id, &give, 1) == 0);
    int taken[2];
    CHECK(pipe(taken) == 0);
    pid_t child = fork();
    if (child == 0) {
        if (semop(id, &take, 1) != 0 || write(taken[1], "", 1) != 1) _exit(1);  // given back by its end
        usleep(20000);
        _exit(0);
    }
    CHECK(read(taken[0], &(char){0}, 1) == 1);
    close(taken[0]);
    close(taken[1]);
    say("from who ended %s", outcome(semop(id, &(struct sembuf){0, -1, 0}, 1)));
    reap(child);
    CHECK(semctl(id, 1, SETVAL, 5) == 0);
    child = fork();
    if (child == 0) {
        usleep(5000);
        _exit(semctl(id, 1, SETVAL, 0) == 0 && semop(id, &give, 1) == 0 ? 0 : 1);
    }
    say("waits for zero %s", outcome(semop(id, (struct sembuf[]){zero, {0, -1, 0}}, 2)));
    reap(child);
    child = fork();
    if (child == 0) {
        usleep(100000);  // on a machine of its own it waits by then, however busy that is
        _exit(semctl(id, 0, IPC_RMID) == 0 ? 0 : 1);
    }
    say("removed meanwhile %s", outcome(semop(id, &take, 1)));
    reap(child);
    say("gone %s", outcome(semop(id, &take, 1)));
}

// Every command has a meaning of its own for each kind of object: what asks for segments there reads values
// here.
static void many_semaphores(void) {
    enum { kCount = 64 };
    const int id = semget(IPC_PRIVATE, kCount, 0600);
    CHECK(id >= 0);
    unsigned short values[kCount], read_back[kCount];
    for (int i = 0; i < kCount; ++i) values[i] = (unsigned short)(i + 1);
    CHECK(semctl(id, 0, SETALL, values) == 0 && semctl(id, 0, GETALL, read_back) == 0);
    say("all as set %d", memcmp(values, read_back, sizeof values) == 0);
    say("by this process %d", semctl(id, 0, GETPID, 1) == getpid());
    const pid_t child = fork();
    if (child == 0) _exit(semop(id, (struct sembuf[]){{1, -1, 0}, {0, 0, 0}}, 2) == 0 ? 0 : 1);
    while (semctl(id, 0, GETZCNT, 1) == 0) usleep(1000);
    say("for more %d, for none %d, of another %d", semctl(id, 0, GETNCNT, 1), semctl(id, 0, GETZCNT, 1),
        semctl(id, 1, GETNCNT, 1));
    CHECK(semctl(id, 0, SETVAL, 0) == 0);
    reap(child);
    say("nobody %d", semctl(id, 0, GETZCNT, 1));
    struct sembuf zero = {1, 0, 0};
    say("bad time %s", outcome(syscall(SYS_semtimedop, id, &zero, 1, 8)));
    CHECK(semctl(id, 0, IPC_RMID) == 0);
}

struct message {
    long type;
    char text[8000];
};

static void messages(void) {
    const int id = msgget(IPC_PRIVATE, 0600);
    CHECK(id >= 0);
    static struct message message;
    say("none %s", outcome(msgrcv(id, &message, sizeof message.text, 0, IPC_NOWAIT)));
    say("a look that might wait %s", outcome(msgrcv(id, &message, sizeof message.text, 0, MSG_COPY)));
    const pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < 8; ++i) {
            message.type = 1 + i % 2;
            snprintf(message.text, sizeof message.text, "message %d", i);
            if (msgsnd(id, &message, sizeof message.text, 0) != 0) _exit(1);  // waits when two are there
        }
        _exit(0);
    }
    for (int i = 0; i < 8; ++i) {
        CHECK(msgrcv(id, &message, sizeof message.text, i < 4 ? 0 : 1 + i % 2, 0) == sizeof message.text);
        say("%ld: %s", message.type, message.text);
    }
    reap(child);
    CHECK(msgctl(id, IPC_RMID, NULL) == 0);
    say("gone %s", outcome(msgrcv(id, &message, sizeof message.text, 0, 0)));
}

static volatile int notices;
static void on_notice(int signal, siginfo_t* info, void* context) {
    (void)signal;
    (void)context;
    notices = info->si_value.sival_int + (info->si_code == SI_MESGQ ? 100 : 0);
}
static void in_thread(union sigval value) { __atomic_store_n((int*)value.sival_ptr, 1, __ATOMIC_SEQ_CST); }

static void queues(void) {
    struct mq_attr attributes = {.mq_maxmsg = 2, .mq_msgsize = 32};
    char name[32], text[32];
    snprintf(name, sizeof name, "/crane-ipc-%d", (int)getpid());
    const mqd_t queue = mq_open(name, O_RDWR | O_CREAT | O_EXCL, 0600, &attributes);
    CHECK(queue >= 0);
    mq_unlink(name);
    struct timespec soon = now_plus_ms(CLOCK_REALTIME, 20);
    say("none in time %s", outcome(mq_timedreceive(queue, text, sizeof text, NULL, &soon)));
    // By number: libc declares the time nonnull, and the kernel takes none to mean for ever.
    say("without a time %s", outcome(syscall(SYS_mq_timedsend, queue, "once", 4, 0, NULL)));
    say("and back %s", outcome(syscall(SYS_mq_timedreceive, queue, text, sizeof text, NULL, NULL)));
    pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < 6; ++i) {
            snprintf(text, sizeof text, "note %d", i);
            if (mq_send(queue, text, sizeof text, 0) != 0) _exit(1);
        }
        _exit(0);
    }
    for (int i = 0; i < 6; ++i) {
        CHECK(mq_receive(queue, text, sizeof text, NULL) == sizeof text);
        say("%s", text);
    }
    reap(child);
    struct sigaction action = {.sa_sigaction = on_notice, .sa_flags = SA_SIGINFO};
    sigaction(SIGUSR1, &action, NULL);
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1, .sigev_value.sival_int = 5};
    say("mq_notify %s", outcome(mq_notify(queue, &event)));
    say("again %s", outcome(mq_notify(queue, &event)));
    child = fork();
    if (child == 0) _exit(mq_send(queue, "x", 1, 0) == 0 ? 0 : 1);
    reap(child);
    say("told %d", notices);
    CHECK(mq_receive(queue, text, sizeof text, NULL) == 1);
    int called = 0;
    event = (struct sigevent){.sigev_notify = SIGEV_THREAD, .sigev_notify_function = in_thread,
                              .sigev_value.sival_ptr = &called};
    say("mq_notify %s", outcome(mq_notify(queue, &event)));
    CHECK(mq_send(queue, "y", 1, 0) == 0);
    while (!__atomic_load_n(&called, __ATOMIC_SEQ_CST)) usleep(1000);
    say("called %d", called);
    sigaction(SIGUSR1, &(struct sigaction){.sa_handler = SIG_DFL}, NULL);
    mq_close(queue);
}

static void asynchronous(void) {
    char path[] = "/tmp/crane-ipc-XXXXXX", back[16] = "";
    const int fd = mkstemp(path);
    CHECK(fd >= 0);
    unlink(path);
    struct aiocb first = {.aio_fildes = fd, .aio_buf = "0123", .aio_nbytes = 4},
                 second = {.aio_fildes = fd, .aio_buf = "4567", .aio_nbytes = 4, .aio_offset = 4},
                 sync = {.aio_fildes = fd}, read_back = {.aio_fildes = fd, .aio_buf = back, .aio_nbytes = 15};
    CHECK(aio_write(&first) == 0 && aio_write(&second) == 0 && aio_fsync(O_SYNC, &sync) == 0 && aio_read(&read_back) == 0);
    const struct aiocb* list[] = {&read_back};
    while (aio_error(&read_back) == EINPROGRESS) CHECK(aio_suspend(list, 1, NULL) == 0);
    say("aio %zd %zd %zd %s", aio_return(&first), aio_return(&second), aio_return(&read_back), back);
    struct aiocb bad = {.aio_fildes = -1, .aio_buf = back, .aio_nbytes = 1};
    struct aiocb* both[] = {&first, &bad};
    first.aio_lio_opcode = bad.aio_lio_opcode = LIO_READ;
    first.aio_buf = back;
    say("lio_listio %s", outcome(lio_listio(LIO_WAIT, both, 2, NULL)));
    say("errors %s %s", code(aio_error(&first)), code(aio_error(&bad)));
    say("aio_cancel %s", outcome(aio_cancel(fd, NULL)));
    say("aio_cancel %s", outcome(aio_cancel(-1, NULL)));
    close(fd);
}

static void* policy_of_thread(void* nothing) {
    say("thread %s", outcome(sched_getscheduler(0)));
    return nothing;
}

static void policies(void) {
    struct sched_param parameter = {.sched_priority = 200};
    pthread_t thread;
    say("bad priority %s", outcome(sched_setscheduler(0, SCHED_FIFO, &parameter)));
    say("bad policy %s", outcome(sched_setscheduler(0, 77, &parameter)));
    parameter.sched_priority = 0;
    say("batch %s", outcome(sched_setscheduler(0, SCHED_BATCH, &parameter)));
    say("is %s", outcome(sched_getscheduler(getpid())));
    pthread_create(&thread, NULL, policy_of_thread, NULL);
    pthread_join(thread, NULL);
    pid_t child = fork();
    if (child == 0) _exit(sched_getscheduler(0));
    reap(child);
    // Whose it is goes by the effective user, unlike with signals.
    child = fork();
    if (child == 0) {
        const int own = sched_setparam(getpid(), &parameter) == 0;
        _exit(own && seteuid(65534) == 0 && sched_setparam(getppid(), &parameter) == -1 && errno == EPERM ? 17 : 1);
    }
    reap(child);
    say("other %s", outcome(sched_setscheduler(0, SCHED_OTHER, &parameter)));
    say("none such %s", outcome(sched_getscheduler(1 << 22)));
}

static void scenario(void) {
    semaphores();
    many_semaphores();
    messages();
    queues();
    asynchronous();
    policies();
}

int main(int argc, char** argv) { return serve(argc, argv, scenario); }
