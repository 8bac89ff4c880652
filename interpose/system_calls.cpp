// syscall(): the system calls that programs make by number. Those that have a wrapper go the same way, those
// that would leave the schedule are refused, and the others, which concern nobody but the process itself, go
// to the kernel.
#include <aio.h>
#include <linux/seccomp.h>
#include <mqueue.h>
#include <sys/file.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/signalfd.h>
#include <sys/timex.h>
#include <utime.h>

#include <array>
#include <cstdarg>
#include <utility>

#include "interpose/core/blocking.hpp"
#include "interpose/core/sandbox.hpp"
#include "interpose/core/signal_masks.hpp"
#include "interpose/core/signals.hpp"
#include "interpose/core/threads.hpp"
#include "interpose/core/user_memory.hpp"
#include "interpose/futex.hpp"
#include "interpose/scheduling.hpp"

/// glibc's own header (2.36) is none for C++.
extern "C" int pidfd_send_signal(int fd, int signal, siginfo_t* info, unsigned flags) noexcept;

namespace crane::interpose {
namespace {

using Arguments = const long*;
using Served = long (*)(Arguments);
constexpr size_t kNumbers = 512;

long fail(int error) {
    errno = error;
    return -1;
}

long to_kernel(long number, Arguments a) {
    return as_libc(raw6(number, a[0], a[1], a[2], a[3], a[4], a[5]));
}

template <typename T>
T as(long value) {
    if constexpr (std::is_pointer_v<T>) {
        return reinterpret_cast<T>(value);
    } else {
        return static_cast<T>(value);
    }
}

/// Calls a function of libc's, or its wrapper, with as many of the arguments as it takes.
template <typename R, typename... P>
long call(R (*function)(P...), Arguments a) {
    return [&]<size_t... I>(std::index_sequence<I...>)->long {
        if constexpr (std::is_void_v<R>) {
            function(as<P>(a[I])...);
            return 0;
        } else {
            return static_cast<long>(function(as<P>(a[I])...));
        }
    }
    (std::index_sequence_for<P...>{});
}

/// For functions that return an error's number.
long by_error(int error) {
    return error == 0 ? 0 : fail(error);
}

// --- signals: the kernel's structures are not libc's

struct KernelAction {
    void (*handler)(int);
    unsigned long flags;
    void (*restorer)();
    uint64_t mask;
};
constexpr unsigned long kRestorer = 0x04000000;  ///< SA_RESTORER

long rt_sigaction(Arguments a) {
    if (a[3] != sizeof(uint64_t)) return fail(EINVAL);
    KernelAction given{};
    if (a[1] != 0 && !fetch(given, as<const void*>(a[1]))) return fail(EFAULT);
    struct sigaction action {
    }, old{};
    action.sa_handler = given.handler;
    action.sa_flags = static_cast<int>(given.flags & ~kRestorer);
    mask_to(given.mask, &action.sa_mask);
    if (::sigaction(static_cast<int>(a[0]), a[1] ? &action : nullptr, &old) != 0) return -1;
    const KernelAction shown{old.sa_handler, static_cast<unsigned long>(old.sa_flags), nullptr,
                             mask_from(&old.sa_mask)};
    return a[2] != 0 && !store(as<void*>(a[2]), shown) ? fail(EFAULT) : 0;
}

/// The kernel's set in libc's, which is longer.
struct GivenSet {
    explicit GivenSet(long address) {
        uint64_t mask = 0;
        good = address == 0 || fetch(mask, as<const void*>(address));
        mask_to(mask, &set);
        pointer = address == 0 ? nullptr : &set;
    }
    bool good;
    sigset_t set;
    sigset_t* pointer;
};

long rt_sigprocmask(Arguments a) {
    if (a[3] != sizeof(uint64_t)) return fail(EINVAL);
    const GivenSet given(a[1]);
    if (!given.good) return fail(EFAULT);
    sigset_t old;
    if (::sigprocmask(static_cast<int>(a[0]), given.pointer, &old) != 0) return -1;
    return a[2] != 0 && !store(as<void*>(a[2]), mask_from(&old)) ? fail(EFAULT) : 0;
}

long rt_sigpending(Arguments a) {
    sigset_t set;
    ::sigpending(&set);
    return store(as<void*>(a[0]), mask_from(&set)) ? 0 : fail(EFAULT);
}

long rt_sigtimedwait(Arguments a) {
    const GivenSet given(a[0]);
    if (!given.good || !given.pointer) return fail(EFAULT);
    return ::sigtimedwait(given.pointer, as<siginfo_t*>(a[1]), as<const timespec*>(a[2]));
}

long rt_sigsuspend(Arguments a) {
    const GivenSet given(a[0]);
    return given.good && given.pointer ? ::sigsuspend(given.pointer) : fail(EFAULT);
}

long rt_sigqueueinfo(Arguments a) {
    siginfo_t info;
    if (!fetch(info, as<const void*>(a[2]))) return fail(EFAULT);
    return ::sigqueue(static_cast<pid_t>(a[0]), static_cast<int>(a[1]), info.si_value);
}

/// The same with the mask in a structure of its own.
long pselect6(Arguments a) {
    long mask[2] = {0, 0};
    if (a[5] != 0 && !fetch(mask, as<const void*>(a[5]))) return fail(EFAULT);
    const GivenSet given(mask[0]);
    if (!given.good) return fail(EFAULT);
    return ::pselect(static_cast<int>(a[0]), as<fd_set*>(a[1]), as<fd_set*>(a[2]), as<fd_set*>(a[3]),
                     as<const timespec*>(a[4]), given.pointer);
}

long ppoll5(Arguments a) {
    const GivenSet given(a[3]);
    if (!given.good) return fail(EFAULT);
    return ::ppoll(as<pollfd*>(a[0]), static_cast<nfds_t>(a[1]), as<const timespec*>(a[2]), given.pointer);
}

long epoll_pwait6(Arguments a) {
    const GivenSet given(a[4]);
    if (!given.good) return fail(EFAULT);
    return ::epoll_pwait(static_cast<int>(a[0]), as<epoll_event*>(a[1]), static_cast<int>(a[2]),
                         static_cast<int>(a[3]), given.pointer);
}

long signalfd4(Arguments a) {
    const GivenSet given(a[1]);
    if (!given.good || !given.pointer) return fail(EFAULT);
    return ::signalfd(static_cast<int>(a[0]), given.pointer, static_cast<int>(a[3]));
}

// --- processes and threads

long refuse_birth(Arguments) {
    refuse_call("a process or thread made by syscall(): it would run outside the schedule");
    return fail(ENOSYS);
}

constexpr long kNamespaces =
    CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET;
constexpr long kSetsTid = CLONE_PARENT_SETTID | CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID;

/// A fork by another name. In namespaces of its own a process is refused as one without privilege is: those
/// who try know what to do then.
long clone_process(Arguments a) {
    const long flags = a[0];
    if (flags & kNamespaces) {
        refuse_call("a process in namespaces of its own (clone)");
        return fail(EPERM);
    }
    const bool as_vfork = (flags & (CLONE_VM | CLONE_VFORK)) == (CLONE_VM | CLONE_VFORK);
    const long beside = CSIGNAL | kSetsTid | (as_vfork ? CLONE_VM | CLONE_VFORK : 0);
    if ((flags & CSIGNAL) != SIGCHLD || (flags & ~beside) || a[1] != 0) return refuse_birth(a);
    const pid_t child = ::fork();
    if (child == 0 && (flags & CLONE_CHILD_SETTID)) store(as<void*>(a[3]), ::getpid());
    if (child > 0 && (flags & CLONE_PARENT_SETTID)) store(as<void*>(a[2]), child);
    return child;
}

[[noreturn]] long end_process(Arguments a) {
    ::_exit(static_cast<int>(a[0]));
}

[[noreturn]] long end_thread(Arguments a) {
    if (count_threads() == 1) end_process(a);
    ::pthread_exit(nullptr);
}

long seccomp(Arguments a) {
    if (a[0] == SECCOMP_SET_MODE_STRICT) return ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
    if (a[0] == SECCOMP_SET_MODE_FILTER)
        return as_libc(set_filter(static_cast<unsigned>(a[1]), as<const void*>(a[2])));
    return to_kernel(SYS_seccomp, a);
}

long absent(Arguments) {
    return fail(ENOSYS);
}

// --- where the kernel's call has another shape than libc's

long timer_create3(Arguments a) {
    timer_t timer{};
    if (::timer_create(static_cast<clockid_t>(a[0]), as<sigevent*>(a[1]), &timer) != 0) return -1;
    return store(as<void*>(a[2]), static_cast<int>(reinterpret_cast<long>(timer))) ? 0 : fail(EFAULT);
}

/// The kernel says how many bytes of its mask there are.
long sched_getaffinity3(Arguments a) {
    const int rc =
        ::sched_getaffinity(static_cast<pid_t>(a[0]), static_cast<size_t>(a[1]), as<cpu_set_t*>(a[2]));
    return rc < 0 ? rc : std::min<long>(a[1], sizeof(uint64_t));
}

#define SAME(name)                                                                        \
    {                                                                                     \
        SYS_##name, []([[maybe_unused]] Arguments a) -> long { return call(&::name, a); } \
    }
#define AS(name, expression)                                                        \
    {                                                                               \
        SYS_##name, []([[maybe_unused]] Arguments a) -> long { return expression; } \
    }
#define BY(name, function) \
    { SYS_##name, function }

struct Row {
    long number;
    Served served;
};
// clang-format off
constexpr Row kRows[] = {
    SAME(accept), SAME(accept4), SAME(adjtimex), SAME(alarm), SAME(bind), SAME(chmod), SAME(chown), SAME(chroot),
    SAME(clock_adjtime), SAME(clock_getres), SAME(clock_gettime), SAME(clock_settime), SAME(close),
    SAME(connect), SAME(creat), SAME(dup), SAME(dup2), SAME(dup3), SAME(epoll_create),
    SAME(epoll_create1), SAME(epoll_ctl), SAME(epoll_wait), SAME(execve), SAME(fallocate), SAME(fchmod), SAME(fchown),
    SAME(fchownat), SAME(flock), SAME(ftruncate), SAME(getcpu), SAME(getpeername),
    SAME(getrandom), SAME(getsockname), SAME(getsockopt), SAME(kill), SAME(lchown), SAME(link), SAME(linkat),
    SAME(listen), SAME(msgctl), SAME(msgget), SAME(msgrcv), SAME(msgsnd), SAME(nanosleep), SAME(pause), SAME(pipe),
    SAME(pipe2), SAME(poll), SAME(readv), SAME(read), SAME(recvfrom), SAME(recvmmsg), SAME(recvmsg), SAME(rename),
    SAME(renameat), SAME(renameat2), SAME(rmdir), SAME(sched_setaffinity), SAME(sched_yield), SAME(select),
    SAME(semget), SAME(semop), SAME(semtimedop), SAME(sendfile), SAME(sendmmsg), SAME(sendmsg), SAME(sendto),
    SAME(setsockopt), SAME(shmget), SAME(shmctl), SAME(shutdown), SAME(socket), SAME(socketpair), SAME(splice),
    SAME(stat), SAME(fstat), SAME(lstat), SAME(statx), SAME(sysinfo), SAME(tee), SAME(tgkill), SAME(time),
    SAME(timerfd_create), SAME(timerfd_gettime), SAME(timerfd_settime), SAME(times), SAME(truncate), SAME(uname),
    SAME(unlink), SAME(unlinkat), SAME(utime), SAME(utimensat), SAME(utimes), SAME(vmsplice), SAME(wait4),
    SAME(write), SAME(writev), SAME(getppid), SAME(mq_timedsend), SAME(mq_timedreceive),
    AS(futex, do_futex(a[0], a[1], a[2], a[3], a[4], a[5])),
    AS(gettimeofday, ::gettimeofday(as<timeval*>(a[0]), as<void*>(a[1]))),
    AS(clock_nanosleep, by_error(::clock_nanosleep(static_cast<clockid_t>(a[0]), static_cast<int>(a[1]),
                                                   as<const timespec*>(a[2]), as<timespec*>(a[3])))),
    AS(open, ::open(as<const char*>(a[0]), static_cast<int>(a[1]), static_cast<mode_t>(a[2]))),
    AS(openat, ::openat(static_cast<int>(a[0]), as<const char*>(a[1]), static_cast<int>(a[2]),
                        static_cast<mode_t>(a[3]))),
    AS(newfstatat, ::fstatat(static_cast<int>(a[0]), as<const char*>(a[1]), as<struct stat*>(a[2]),
                             static_cast<int>(a[3]))),
    AS(fchmodat, ::fchmodat(static_cast<int>(a[0]), as<const char*>(a[1]), static_cast<mode_t>(a[2]), 0)),
    AS(fcntl, ::fcntl(static_cast<int>(a[0]), static_cast<int>(a[1]), a[2])),
    AS(ioctl, ::ioctl(static_cast<int>(a[0]), static_cast<unsigned long>(a[1]), a[2])),
    AS(prctl, ::prctl(static_cast<int>(a[0]), a[1], a[2], a[3], a[4])),
    AS(semctl, ::semctl(static_cast<int>(a[0]), static_cast<int>(a[1]), static_cast<int>(a[2]), a[3])),
    AS(pread64, ::pread(static_cast<int>(a[0]), as<void*>(a[1]), static_cast<size_t>(a[2]), a[3])),
    AS(pwrite64, ::pwrite(static_cast<int>(a[0]), as<const void*>(a[1]), static_cast<size_t>(a[2]), a[3])),
    AS(close_range, ::close_range(static_cast<unsigned>(a[0]), static_cast<unsigned>(a[1]), static_cast<int>(a[2]))),
    AS(eventfd, ::eventfd(static_cast<unsigned>(a[0]), 0)),
    AS(eventfd2, ::eventfd(static_cast<unsigned>(a[0]), static_cast<int>(a[1]))),
    AS(getrusage, ::getrusage(static_cast<__rusage_who>(a[0]), as<rusage*>(a[1]))),
    AS(getrlimit, ::getrlimit(static_cast<__rlimit_resource>(a[0]), as<rlimit*>(a[1]))),
    AS(setrlimit, ::setrlimit(static_cast<__rlimit_resource>(a[0]), as<const rlimit*>(a[1]))),
    AS(prlimit64, ::prlimit(static_cast<pid_t>(a[0]), static_cast<__rlimit_resource>(a[1]),
                            as<const rlimit*>(a[2]), as<rlimit*>(a[3]))),
    AS(getitimer, ::getitimer(static_cast<__itimer_which>(a[0]), as<itimerval*>(a[1]))),
    AS(setitimer, ::setitimer(static_cast<__itimer_which>(a[0]), as<const itimerval*>(a[1]), as<itimerval*>(a[2]))),
    AS(timer_settime, ::timer_settime(as<timer_t>(a[0]), static_cast<int>(a[1]), as<const itimerspec*>(a[2]),
                                      as<itimerspec*>(a[3]))),
    AS(timer_gettime, ::timer_gettime(as<timer_t>(a[0]), as<itimerspec*>(a[1]))),
    AS(timer_getoverrun, ::timer_getoverrun(as<timer_t>(a[0]))),
    AS(timer_delete, ::timer_delete(as<timer_t>(a[0]))),
    AS(tkill, as_libc(signal_task(-1, static_cast<int>(a[0]), static_cast<int>(a[1])))),
    AS(waitid, ::waitid(static_cast<idtype_t>(a[0]), static_cast<id_t>(a[1]), as<siginfo_t*>(a[2]),
                        static_cast<int>(a[3]))),
    AS(sched_setscheduler, ::sched_setscheduler(static_cast<pid_t>(a[0]), static_cast<int>(a[1]),
                                                as<const sched_param*>(a[2]))),
    AS(sched_getscheduler, ::sched_getscheduler(static_cast<pid_t>(a[0]))),
    AS(sched_setparam, ::sched_setparam(static_cast<pid_t>(a[0]), as<const sched_param*>(a[1]))),
    AS(sched_getparam, ::sched_getparam(static_cast<pid_t>(a[0]), as<sched_param*>(a[1]))),
    AS(sched_setattr, as_libc(set_scheduling_attributes(static_cast<pid_t>(a[0]), as<const void*>(a[1])))),
    AS(sched_getattr, as_libc(get_scheduling_attributes(static_cast<pid_t>(a[0]), as<void*>(a[1]),
                                                        static_cast<unsigned>(a[2])))),
    AS(pidfd_send_signal, ::pidfd_send_signal(static_cast<int>(a[0]), static_cast<int>(a[1]), as<siginfo_t*>(a[2]),
                                              static_cast<unsigned>(a[3]))),
    AS(fork, ::fork()), AS(vfork, ::fork()),
    BY(clone, clone_process), BY(clone3, refuse_birth), BY(exit, end_thread), BY(exit_group, end_process),
    BY(timer_create, timer_create3), BY(sched_getaffinity, sched_getaffinity3), BY(seccomp, seccomp),
    BY(rt_sigaction, rt_sigaction), BY(rt_sigprocmask, rt_sigprocmask), BY(rt_sigpending, rt_sigpending),
    BY(rt_sigtimedwait, rt_sigtimedwait), BY(rt_sigsuspend, rt_sigsuspend), BY(rt_sigqueueinfo, rt_sigqueueinfo),
    BY(pselect6, pselect6), BY(ppoll, ppoll5), BY(epoll_pwait, epoll_pwait6), BY(signalfd4, signalfd4),
    BY(io_uring_setup, absent), BY(io_setup, absent), BY(futex_waitv, absent),
};
// clang-format on
#undef SAME
#undef AS
#undef BY

constexpr std::array<Served, kNumbers> by_number() {
    std::array<Served, kNumbers> table{};
    for (const Row& row : kRows) table[static_cast<size_t>(row.number)] = row.served;
    return table;
}
constexpr std::array<Served, kNumbers> kServed = by_number();

}  // namespace
}  // namespace crane::interpose

using namespace crane::interpose;

CRANE_EXPORT long syscall(long number, ...) noexcept {
    va_list list;
    va_start(list, number);
    long a[6];
    for (long& value : a) value = va_arg(list, long);
    va_end(list);
    const auto index = static_cast<size_t>(number);
    if (active() && index < kNumbers && kServed[index]) return kServed[index](a);
    return to_kernel(number, a);
}
