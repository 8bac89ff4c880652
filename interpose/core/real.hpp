// The functions behind the wrappers, resolved once, each at the version that the program would have bound.
#pragma once

#include <arpa/inet.h>
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <pthread.h>
#include <pty.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/times.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "interpose/core/real_families.hpp"
#include "interpose/core/selector.hpp"

#define CRANE_EXPORT extern "C" __attribute__((visibility("default")))

// Every function that a wrapper calls through to. A name is added here when its wrapper is written.
// clang-format off
#define CRANE_REAL_FUNCTIONS(X) \
    X(pthread_mutex_lock) X(pthread_mutex_trylock) X(pthread_mutex_unlock) X(pthread_mutex_timedlock) \
    X(pthread_mutex_clocklock) X(pthread_rwlock_rdlock) X(pthread_rwlock_wrlock) \
    X(pthread_rwlock_tryrdlock) X(pthread_rwlock_trywrlock) X(pthread_rwlock_unlock) \
    X(pthread_rwlock_timedrdlock) X(pthread_rwlock_timedwrlock) X(pthread_rwlock_clockrdlock) \
    X(pthread_rwlock_clockwrlock) X(pthread_spin_lock) X(pthread_spin_trylock) X(pthread_spin_unlock) \
    X(pthread_barrier_init) X(pthread_barrier_wait) X(pthread_barrier_destroy) \
    X(pthread_create) X(pthread_setattr_default_np) X(pthread_join) X(pthread_tryjoin_np) X(pthread_timedjoin_np) \
    X(pthread_clockjoin_np) X(pthread_detach) X(pthread_cancel) X(pthread_kill) \
    X(pthread_setcanceltype) X(pthread_setcancelstate) X(pthread_testcancel) X(pthread_sigmask) X(sigqueue) X(pthread_sigqueue) \
    X(sem_wait) X(sem_trywait) X(sem_timedwait) X(sem_clockwait) X(sem_post) X(sem_getvalue) X(sched_yield) X(socket) X(socketpair) \
    X(bind) X(listen) X(accept) X(accept4) X(connect) X(shutdown) X(getsockname) X(getpeername) \
    X(getsockopt) X(setsockopt) X(recv) X(recvfrom) X(recvmsg) X(recvmmsg) X(send) X(sendto) X(sendmsg) \
    X(sendmmsg) X(read) X(readv) X(write) X(writev) X(pread) X(pwrite) X(pwritev) X(sendfile) X(splice) \
    X(close) X(dup) X(dup2) X(dup3) X(pipe) X(pipe2) X(eventfd) X(poll) X(ppoll) X(select) X(pselect) \
    X(epoll_create) X(epoll_create1) X(epoll_ctl) X(epoll_wait) X(epoll_pwait) X(epoll_pwait2) \
    X(execve) X(execvpe) X(system) X(popen) X(pclose) X(daemon) X(forkpty) X(waitpid) X(waitid) X(kill) \
    X(raise) X(sigaction) X(signal) X(sigprocmask) X(sigwait) X(sigwaitinfo) X(sigtimedwait) \
    X(sigsuspend) X(sigpending) X(pause) X(alarm) X(clock_gettime) X(gettimeofday) X(time) \
    X(clock_nanosleep) X(nanosleep) X(usleep) X(sleep) X(getrandom) X(getentropy) X(timerfd_create) X(signalfd) \
    X(timerfd_settime) X(timerfd_gettime) X(setitimer) X(getitimer) X(closefrom) X(close_range) \
    X(posix_spawn) X(posix_spawnp) X(setuid) X(setgid) X(seteuid) X(setegid) X(setreuid) X(setregid) X(setresuid) \
    X(setresgid) X(setgroups) X(initgroups)
#define CRANE_REAL_TRAPPED(X) \
    X(fork) X(pthread_once) X(dlopen) X(pthread_exit) X(_exit) X(siglongjmp) X(fclose) X(fdopen) X(freopen) X(fflush) \
    X(__cxa_finalize)
// clang-format on

extern "C" void __cxa_finalize(void* object);

namespace crane::interpose {

// The attributes that libc's declarations carry (nonnull, noexcept) are dropped with the type.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wignored-attributes"

/// A function of libc's, called with its system calls let through (backstop.hpp).
template <typename F>
struct RealFunction {
    F function;
    template <typename... A>
    auto operator()(A... arguments) const {
        const CallsPass pass;
        return function(arguments...);
    }
};

struct Real {
#define X(name) RealFunction<decltype(&::name)> name;
    CRANE_REAL_FUNCTIONS(X)
    CRANE_REAL_FAMILIES(X)
#undef X
    // What may come back to code of the program, or has a lock of libc's that another thread may wait for in
    // the schedule, leaves the selector alone.
#define X(name) decltype(&::name) name;
    CRANE_REAL_TRAPPED(X)
#undef X
    RealFunction<int (*)(pthread_cond_t*, pthread_mutex_t*)> pthread_cond_wait;
    RealFunction<int (*)(pthread_cond_t*, pthread_mutex_t*, const timespec*)> pthread_cond_timedwait;
    RealFunction<int (*)(pthread_cond_t*, pthread_mutex_t*, clockid_t, const timespec*)>
        pthread_cond_clockwait;
    RealFunction<int (*)(pthread_cond_t*)> pthread_cond_signal;
    RealFunction<int (*)(pthread_cond_t*)> pthread_cond_broadcast;
    RealFunction<int (*)(int, int, ...)> fcntl;
    RealFunction<int (*)(int, unsigned long, ...)> ioctl;
    RealFunction<long (*)(long, ...)> syscall;
    RealFunction<int (*)(const char*, int, ...)> open;
    RealFunction<int (*)(int, const char*, int, ...)> openat;
    FILE* (*fopen)(const char*, const char*);
    void* (*dlsym)(void*, const char*);
};
#pragma GCC diagnostic pop

extern Real real;

/// Fills `real`. Cheap when done already; safe before any constructor has run.
void resolve_real() noexcept;

}  // namespace crane::interpose
