// Further names of real.hpp's list: clocks, entropy, files, machine. One line a family.
#pragma once

#include <aio.h>
#include <mqueue.h>
#include <netdb.h>
#include <setjmp.h>
#include <sys/file.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/ptrace.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/statvfs.h>
#include <sys/timex.h>

// clang-format off
#define CRANE_REAL_FAMILIES(X) \
    X(clock_getres) X(clock_settime) X(settimeofday) X(adjtime) X(adjtimex) X(clock_adjtime) X(clock) X(times) \
    X(getrusage) X(flock) X(lockf) X(timespec_get) X(timer_create) X(timer_settime) X(timer_gettime) X(timer_delete) \
    X(timer_getoverrun) X(ualarm) \
    X(sysconf) X(get_nprocs) X(get_nprocs_conf) X(get_phys_pages) X(get_avphys_pages) X(sched_getaffinity) \
    X(sched_setaffinity) X(pthread_getaffinity_np) X(pthread_setaffinity_np) X(sched_getcpu) X(getcpu) \
    X(sched_setscheduler) X(sched_setparam) X(pthread_setschedparam) X(pthread_setschedprio) X(sched_getscheduler) X(sched_getparam) \
    X(sched_rr_get_interval) X(pthread_getschedparam) X(sysinfo) \
    X(pathconf) X(fpathconf) X(statvfs) X(fstatvfs) X(readlinkat) \
    X(getloadavg) X(uname) X(gethostname) X(getdomainname) X(gethostid) \
    X(ptrace) X(fchmodat) X(opendir) X(fdopendir) X(readdir) \
    X(readdir64) X(rewinddir) X(telldir) X(seekdir) X(dirfd) X(closedir) X(scandir) \
    X(scandir64) X(scandirat) X(scandirat64) X(mkostemps) X(mkdtemp) X(tmpfile) X(tee) X(vmsplice) \
    X(semget) X(semop) X(semtimedop) X(semctl) X(msgget) X(msgsnd) X(msgrcv) X(msgctl) X(shmget) X(shmctl) \
    X(mq_send) X(mq_timedsend) X(mq_receive) X(mq_timedreceive) X(mq_notify) X(mq_close) \
    X(aio_read) X(aio_write) X(aio_fsync) X(lio_listio) X(aio_error) X(aio_return) X(aio_suspend) X(aio_cancel) \
    X(getaddrinfo) X(getaddrinfo_a) X(gai_suspend) X(gai_cancel) X(gai_error) X(gethostbyname) X(gethostbyname2) X(gethostbyname_r) X(gethostbyname2_r)
// clang-format on
