// Addresses for what a call takes or tells, and nothing can be read or written there: by number, since libc itself looks at some.
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/uio.h>

#include "in_children.h"

#define CALL(name, ...) TRY(syscall(SYS_##name, __VA_ARGS__))

static void files(char* bad) {
    int file = open("/tmp", O_RDONLY | O_TMPFILE | O_RDWR, 0600), folder = open("/", O_RDONLY | O_DIRECTORY);
    CHECK(file >= 0 && folder >= 0 && write(file, "text", 4) == 4 && lseek(file, 0, SEEK_SET) == 0);
    CALL(stat, "/", bad);
    CALL(lstat, "/", bad);
    CALL(fstat, file, bad);
    CALL(newfstatat, AT_FDCWD, "/", bad, 0);
    CALL(newfstatat, file, "", bad, AT_EMPTY_PATH);
    CALL(statx, AT_FDCWD, "/", 0, STATX_BASIC_STATS, bad);
    CALL(statfs, "/", bad);
    CALL(fstatfs, file, bad);
    CALL(readlink, "/proc/self/exe", bad, 100);
    CALL(readlinkat, AT_FDCWD, "/proc/self/fd/0", bad, 100);
    CALL(getcwd, bad, 100);
    CALL(getdents64, folder, bad, 1000);
    CALL(read, file, bad, 4);
    CALL(pread64, file, bad, 4, 0);
    CALL(readv, file, bad, 1);
    CALL(preadv, file, bad, 1, 0, 0);
    CALL(write, file, bad, 4);
    CALL(pwrite64, file, bad, 4, 0);
    CALL(writev, file, bad, 1);
    CALL(pwritev, file, bad, 1, 0, 0);
    CALL(utimensat, AT_FDCWD, "/tmp", bad, 0);
    CALL(utimes, "/tmp", bad);
    CALL(utime, "/tmp", bad);
    CALL(fcntl, file, F_GETLK, bad);
    CALL(fcntl, file, F_SETLK, bad);
    CALL(copy_file_range, file, bad, file, NULL, 1, 0);
    CALL(sendfile, file, file, bad, 1);
    CALL(memfd_create, bad, 0);
    CALL(sysinfo, bad);
    TRY(sysinfo((struct sysinfo*)bad));
    CALL(openat2, AT_FDCWD, "/", bad, 24);
    CALL(openat2, AT_FDCWD, bad, ((unsigned long long[3]){0}), 24);
    CALL(openat2, AT_FDCWD, "/", ((unsigned long long[3]){1ULL << 40}), 24);
    CALL(openat2, AT_FDCWD, "/", ((unsigned long long[3]){O_RDONLY, 0600}), 24);
    CALL(openat2, AT_FDCWD, "/", ((unsigned long long[4]){O_RDONLY, 0, 0, 1}), 32);
    CALL(openat2, AT_FDCWD, "/", ((unsigned long long[3]){0}), 16);
    CALL(getxattr, bad, "user.a", NULL, 0);
    CALL(access, bad, R_OK);
    CALL(symlink, bad, "/tmp/none");
    CALL(link, "/tmp/none", bad);
    CALL(rename, bad, "/tmp/none");
    CALL(truncate, bad, 0);
    CALL(chdir, bad);
    CALL(uname, bad);
    CALL(getrandom, bad, 10, 0);
    close(file);
    close(folder);
}

static void times(char* bad) {
    struct itimerspec never = {{0, 0}, {1000, 0}};
    int timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    CALL(clock_gettime, CLOCK_REALTIME, bad);
    CALL(clock_getres, CLOCK_REALTIME, bad);
    CALL(gettimeofday, bad, NULL);
    CALL(gettimeofday, NULL, bad);
    CALL(clock_settime, CLOCK_REALTIME, bad);
    CALL(adjtimex, bad);
    CALL(time, bad);
    CALL(times, bad);
    CALL(nanosleep, bad, NULL);
    CALL(clock_nanosleep, CLOCK_MONOTONIC, 0, bad, NULL);
    CALL(getitimer, ITIMER_REAL, bad);
    CALL(setitimer, ITIMER_REAL, bad, NULL);
    CALL(setitimer, ITIMER_REAL, &never, bad);
    CALL(timer_create, CLOCK_MONOTONIC, NULL, bad);
    CALL(timer_create, CLOCK_MONOTONIC, bad, &(timer_t){0});
    CALL(timerfd_settime, timer, 0, bad, NULL);
    CALL(timerfd_settime, timer, 0, &never, bad);
    CALL(timerfd_gettime, timer, bad);
    CALL(read, timer, bad, 8);
    close(timer);
}

static void processes(char* bad) {
    CALL(getrlimit, RLIMIT_CORE, bad);
    CALL(setrlimit, RLIMIT_CORE, bad);
    CALL(prlimit64, 0, RLIMIT_CORE, bad, NULL);
    CALL(prlimit64, 0, RLIMIT_CORE, NULL, bad);
    CALL(getrusage, RUSAGE_SELF, bad);
    CALL(sched_getaffinity, 0, 128, bad);
    CALL(sched_setaffinity, 0, 128, bad);
    CALL(sched_getparam, 0, bad);
    CALL(sched_setscheduler, 0, SCHED_OTHER, bad);
    CALL(sched_rr_get_interval, 0, bad);
    CALL(sched_getattr, 0, bad, 48, 0);
    CALL(sched_getattr, 0, NULL, 48, 0);
    CALL(sched_getattr, 0, &(char[48]){0}, 48, 1);
    CALL(sched_getattr, -1, &(char[48]){0}, 48, 0);
    CALL(sched_setattr, 0, bad, 0);
    CALL(sched_setattr, 0, NULL, 0);
    CALL(getcpu, bad, NULL, NULL);
    CALL(getcpu, NULL, bad, NULL);
    CALL(getgroups, 100, bad);
    CALL(setgroups, 1, bad);
    CALL(getresuid, bad, bad, bad);
    CALL(prctl, PR_GET_NAME, bad);
    CALL(prctl, PR_SET_NAME, bad);
    CALL(waitid, P_ALL, 0, bad, WEXITED | WNOHANG, NULL);
    CALL(wait4, -1, bad, WNOHANG, NULL);
    CALL(futex, bad, FUTEX_WAIT, 0, NULL, NULL, 0);
    CALL(futex, bad, FUTEX_WAKE, 1, NULL, NULL, 0);
    CALL(futex, &(int){1}, FUTEX_WAIT, 1, bad, NULL, 0);
    CALL(futex, &(int){1}, FUTEX_CMP_REQUEUE, 1, 1, bad, 1);
    CALL(futex, &(int){1}, FUTEX_CMP_REQUEUE, -1, 1, &(int){1}, 1);
    CALL(futex, &(int){1}, FUTEX_CMP_REQUEUE, 1, -1, &(int){1}, 1);
}

static void signals(char* bad) {
    CALL(rt_sigaction, SIGUSR1, bad, NULL, 8);
    CALL(rt_sigaction, SIGUSR1, NULL, bad, 8);
    CALL(rt_sigprocmask, SIG_BLOCK, bad, NULL, 8);
    CALL(rt_sigprocmask, SIG_BLOCK, NULL, bad, 8);
    CALL(rt_sigpending, bad, 8);
    CALL(rt_sigtimedwait, bad, NULL, &(struct timespec){0, 0}, 8);
    CALL(rt_sigtimedwait, &(sigset_t){0}, NULL, bad, 8);
    CALL(rt_sigsuspend, bad, 8);
    CALL(rt_sigqueueinfo, getpid(), SIGUSR1, bad);
    CALL(sigaltstack, bad, NULL);
    CALL(sigaltstack, NULL, bad);
    CALL(signalfd4, -1, bad, 8, 0);
    TRY(sigsuspend((sigset_t*)bad));
    TRY(sigpending((sigset_t*)bad));
    TRY(sigwaitinfo((sigset_t*)bad, NULL));
    TRY(sigtimedwait((sigset_t*)bad, NULL, &(struct timespec){0, 0}));
    CALL(tgkill, -1, getpid(), SIGUSR1);
}

static void nobody_listens(int no_socket, char* bad) {
    struct mmsghdr message = {0};
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int fresh = socket(AF_UNIX, SOCK_STREAM, 0), tcp = socket(AF_INET, SOCK_STREAM, 0), udp = socket(AF_INET, SOCK_DGRAM, 0);
    TRY(accept(no_socket, NULL, NULL));
    TRY(accept(fresh, NULL, NULL));
    TRY(accept(tcp, NULL, NULL));
    TRY(accept(-1, NULL, NULL));
    TRY(connect(tcp, (struct sockaddr*)&address, 8));
    CHECK(bind(udp, (struct sockaddr*)&address, sizeof address) == 0);
    CALL(recvmmsg, udp, &message, 1, 0, bad);
    CALL(recvmmsg, udp, &message, 1, 0, (&(struct timespec){-1, 0}));
    CALL(recvmmsg, udp, bad, 1, MSG_DONTWAIT, NULL);
    close(fresh), close(tcp), close(udp);
}

static void descriptors(char* bad) {
    int ends[2], queue = msgget(IPC_PRIVATE, 0600), count = semget(IPC_PRIVATE, 1, 0600);
    CHECK(pipe(ends) == 0 && write(ends[1], "text", 4) == 4);
    CALL(pipe, bad);
    CALL(pipe2, bad, 0);
    CALL(socketpair, AF_UNIX, SOCK_STREAM, 0, bad);
    CALL(read, ends[0], bad, 4);
    CALL(write, ends[1], bad, 4);
    CALL(readv, ends[0], bad, 1);
    CALL(writev, ends[1], bad, 1);
    CALL(vmsplice, ends[1], bad, 1, 0);
    CALL(splice, ends[0], bad, ends[1], NULL, 1, 0);
    CALL(ioctl, ends[0], FIONREAD, bad);
    CALL(ioctl, ends[0], FIONBIO, bad);
    CALL(poll, bad, 1, 0);
    CALL(ppoll, bad, 1, NULL, NULL, 8);
    CALL(ppoll, &(struct pollfd){ends[0], POLLIN, 0}, 1, bad, NULL, 8);
    CALL(ppoll, &(struct pollfd){ends[0], POLLIN, 0}, 1, NULL, bad, 8);
    CALL(epoll_pwait, epoll_create1(0), &(struct epoll_event){0}, 1, 0, bad, 8);
    CALL(select, 1, bad, NULL, NULL, NULL);
    CALL(pselect6, 1, NULL, NULL, NULL, bad, NULL);
    CALL(epoll_wait, epoll_create1(0), bad, 1, 0);
    CALL(epoll_ctl, epoll_create1(0), EPOLL_CTL_ADD, ends[0], bad);
    CALL(msgsnd, queue, bad, 1, 0);
    CALL(msgctl, queue, IPC_STAT, bad);
    CALL(msgrcv, queue, bad, 1, 0, IPC_NOWAIT);
    CALL(semop, count, bad, 1);
    CALL(semtimedop, count, &(struct sembuf){0}, 1, bad);
    CALL(semctl, count, 0, GETALL, bad);
    CALL(semctl, count, 0, SETALL, bad);
    CALL(shmctl, 0, IPC_STAT, bad);
    CALL(semctl, count, 0, IPC_STAT, bad);
    CALL(mq_open, bad, O_RDONLY, 0, NULL);
    nobody_listens(ends[0], bad);
    msgctl(queue, IPC_RMID, NULL);
    semctl(count, 0, IPC_RMID);
    close(ends[0]);
    close(ends[1]);
}

static void scenario(void) {
    const char* const names[] = {"the first page", "no access", "the kernel's"};
    for (int n = 0; n < 3; n++) {
        say("%s", names[n]);
        files(bad_place(n));
        times(bad_place(n));
        processes(bad_place(n));
        signals(bad_place(n));
        descriptors(bad_place(n));
    }
}

int main(int argc, char** argv) { return serve(argc, argv, scenario); }
