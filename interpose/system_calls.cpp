// System calls by number: made by syscall(), or trapped (trapped_calls.cpp). The table says of each one what
// is done: those that have a wrapper go the same way, those that would leave the schedule are refused, and
// the others, which concern nobody but the process itself, go to the kernel. docs/system-calls.md is made of
// it (scripts/system_calls.py).
#include "interpose/system_calls.hpp"

#include <aio.h>
#include <limits.h>
#include <linux/openat2.h>
#include <linux/seccomp.h>
#include <mqueue.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/signalfd.h>
#include <sys/timex.h>
#include <sys/xattr.h>
#include <utime.h>

#include <algorithm>
#include <array>
#include <cstdarg>
#include <iterator>
#include <utility>

#include "interpose/alarms.hpp"
#include "interpose/core/backstop.hpp"
#include "interpose/core/blocking.hpp"
#include "interpose/core/file_times.hpp"
#include "interpose/core/sandbox.hpp"
#include "interpose/core/shared_operation.hpp"
#include "interpose/core/signal_masks.hpp"
#include "interpose/core/signals.hpp"
#include "interpose/core/size_limit.hpp"
#include "interpose/core/threads.hpp"
#include "interpose/core/uncancelled.hpp"
#include "interpose/core/user_memory.hpp"
#include "interpose/directories.hpp"
#include "interpose/forking.hpp"
#include "interpose/futex.hpp"
#include "interpose/scheduling.hpp"
#include "interpose/waiting.hpp"

/// glibc's own header (2.36) is none for C++.
extern "C" int pidfd_send_signal(int fd, int signal, siginfo_t* info, unsigned flags) noexcept;

namespace crane::interpose {
namespace {

using Arguments = const long*;
constexpr size_t kNumbers = 512;

long fail(int error) {
    errno = error;
    return -1;
}

/// Where the program's own filters are to judge it, from the one place of the shim that they see.
long kernels_answer(long number, Arguments a) {
    if (runtime.process->judged != Judged::kByNobody) return crane_judged_call(a, number);
    return raw6(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

long to_kernel(long number, Arguments a) {
    return as_libc(kernels_answer(number, a));
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

long rt_tgsigqueueinfo(Arguments a) {
    siginfo_t info;
    if (!fetch(info, as<const void*>(a[3]))) return fail(EFAULT);
    return as_libc(
        queue_to_task(static_cast<int>(a[0]), static_cast<int>(a[1]), static_cast<int>(a[2]), info));
}

long rt_sigqueueinfo(Arguments a) {
    siginfo_t info;
    if (!fetch(info, as<const void*>(a[2]))) return fail(EFAULT);
    return as_libc(queue_to_process(static_cast<int>(a[0]), static_cast<int>(a[1]), info));
}

/// The same with the mask in a structure of its own.
/// The kernel leaves the time that was not slept, where it can; libc hands it a copy.
class TimeLeft {
  public:
    explicit TimeLeft(long given) : told_(as<timespec*>(given)), start_ns_(now_realtime_ns()) {
        good = told_ == nullptr || fetch(asked_, told_);
    }
    ~TimeLeft() {
        if (!told_ || !good || asked_.tv_sec < 0 || asked_.tv_nsec < 0) return;
        const uint64_t spent_ns = now_realtime_ns() - start_ns_, asked_ns = to_ns(asked_);
        store(told_, to_timespec(spent_ns < asked_ns ? asked_ns - spent_ns : 0));
    }
    TimeLeft(const TimeLeft&) = delete;
    TimeLeft& operator=(const TimeLeft&) = delete;
    const timespec* asked() const { return told_ ? &asked_ : nullptr; }

    bool good = false;

  private:
    timespec* told_;
    uint64_t start_ns_;
    timespec asked_{};
};

long pselect6(Arguments a) {
    long mask[2] = {0, 0};
    if (a[5] != 0 && !fetch(mask, as<const void*>(a[5]))) return fail(EFAULT);
    const GivenSet given(mask[0]);
    const TimeLeft time(a[4]);
    if (!given.good || !time.good) return fail(EFAULT);
    return ::pselect(static_cast<int>(a[0]), as<fd_set*>(a[1]), as<fd_set*>(a[2]), as<fd_set*>(a[3]),
                     time.asked(), given.pointer);
}

long ppoll5(Arguments a) {
    const GivenSet given(a[3]);
    const TimeLeft time(a[2]);
    if (!given.good || !time.good) return fail(EFAULT);
    return ::ppoll(as<pollfd*>(a[0]), static_cast<nfds_t>(a[1]), time.asked(), given.pointer);
}

long epoll_pwait6(Arguments a) {
    const GivenSet given(a[4]);
    if (!given.good) return fail(EFAULT);
    return ::epoll_pwait(static_cast<int>(a[0]), as<epoll_event*>(a[1]), static_cast<int>(a[2]),
                         static_cast<int>(a[3]), given.pointer);
}

long epoll_pwait2_6(Arguments a) {
    const GivenSet given(a[4]);
    if (!given.good) return fail(EFAULT);
    return ::epoll_pwait2(static_cast<int>(a[0]), as<epoll_event*>(a[1]), static_cast<int>(a[2]),
                          as<const timespec*>(a[3]), given.pointer);
}

long signalfd3(Arguments a) {
    const GivenSet given(a[1]);
    if (!given.good || !given.pointer) return fail(EFAULT);
    return ::signalfd(static_cast<int>(a[0]), given.pointer, 0);
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
/// They change nothing for who shares no memory and is not traced.
constexpr long kWithoutMeaning = CLONE_PTRACE | CLONE_DETACHED | CLONE_UNTRACED | CLONE_IO;
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
    const long beside = CSIGNAL | kSetsTid | kWithoutMeaning | CLONE_PARENT | CLONE_VFORK | CLONE_PIDFD |
                        (as_vfork ? CLONE_VM : 0);
    if ((flags & CSIGNAL) >= kSignals) return fail(EINVAL);
    if ((flags & ~beside) || a[1] != 0) return refuse_birth(a);
    const bool tells = flags & CLONE_PIDFD;
    if (tells && (flags & (CLONE_PARENT_SETTID | CLONE_DETACHED))) return fail(EINVAL);
    if (tells && !writable(as<void*>(a[2]), sizeof(int))) return fail(EFAULT);
    int pidfd = -1;
    const pid_t child = fork_as({static_cast<int>(flags & CSIGNAL), (flags & CLONE_PARENT) != 0,
                                 (flags & CLONE_VFORK) != 0, tells ? &pidfd : nullptr});
    if (child > 0 && tells) store(as<void*>(a[2]), pidfd);
    if (child == 0 && (flags & CLONE_CHILD_SETTID)) store(as<void*>(a[3]), static_cast<int>(raw(SYS_getpid)));
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

/// What openat() cannot say, or would not refuse, is the kernel's.
bool as_openat(const open_how& how) {
    constexpr uint64_t kFlags = O_ACCMODE | O_CREAT | O_EXCL | O_NOCTTY | O_TRUNC | O_APPEND | O_NONBLOCK |
                                O_SYNC | O_ASYNC | O_DIRECT | O_NOFOLLOW | O_NOATIME | O_CLOEXEC | O_PATH |
                                O_TMPFILE;  // O_DIRECTORY is part of it
    const bool creates = (how.flags & O_CREAT) || (how.flags & O_TMPFILE) == O_TMPFILE;
    return how.resolve == 0 && !(how.flags & ~kFlags) && !(how.mode & ~uint64_t{creates ? 07777U : 0U});
}

long openat2(Arguments a) {
    open_how how{};
    if (a[3] != static_cast<long>(sizeof(how)) || !fetch(how, as<const void*>(a[2])) || !as_openat(how))
        return to_kernel(SYS_openat2, a);
    return ::openat(static_cast<int>(a[0]), as<const char*>(a[1]), static_cast<int>(how.flags),
                    static_cast<mode_t>(how.mode));
}

long execveat(Arguments a) {
    const auto* path = as<const char*>(a[1]);
    char first = 0;
    if (!fetch(first, path)) return fail(EFAULT);
    auto* const* argv = as<char* const*>(a[2]);
    auto* const* environment = as<char* const*>(a[3]);
    if (first == 0 && (a[4] & AT_EMPTY_PATH)) return ::fexecve(static_cast<int>(a[0]), argv, environment);
    if (first == '/' || static_cast<int>(a[0]) == AT_FDCWD) return ::execve(path, argv, environment);
    if (first == 0) return fail(ENOENT);
    if (raw(SYS_fcntl, static_cast<int>(a[0]), F_GETFD) < 0) return fail(EBADF);
    char whole[PATH_MAX];
    const int bytes = snprintf(whole, sizeof(whole), "/proc/self/fd/%d/%s", static_cast<int>(a[0]), path);
    return bytes < static_cast<int>(sizeof(whole)) ? ::execve(whole, argv, environment) : fail(ENAMETOOLONG);
}

/// The kernel takes the offset in two halves.
long pwritev4(Arguments a) {
    return ::pwritev(static_cast<int>(a[0]), as<const iovec*>(a[1]), static_cast<int>(a[2]), a[3]);
}

// --- where the kernel's call has another shape than libc's

long timer_create3(Arguments a) {
    timer_t timer{};
    if (::timer_create(static_cast<clockid_t>(a[0]), as<sigevent*>(a[1]), &timer) != 0) return -1;
    return store(as<void*>(a[2]), static_cast<int>(reinterpret_cast<long>(timer))) ? 0 : fail(EFAULT);
}

/// libc does not ask the kernel about a thread's own time, and has another error.
long clock_nanosleep4(Arguments a) {
    const auto clock = static_cast<clockid_t>(a[0]);
    if (clock == CLOCK_THREAD_CPUTIME_ID) return fail(EOPNOTSUPP);
    return by_error(
        ::clock_nanosleep(clock, static_cast<int>(a[1]), as<const timespec*>(a[2]), as<timespec*>(a[3])));
}

/// The kernel says how many bytes of its mask there are.
long sched_getaffinity3(Arguments a) {
    const int rc =
        ::sched_getaffinity(static_cast<pid_t>(a[0]), static_cast<size_t>(a[1]), as<cpu_set_t*>(a[2]));
    return rc < 0 ? rc : std::min<long>(a[1], sizeof(uint64_t));
}

long kernels_part(long number, Arguments a);

/// What is in the kernel's memory without waiting (RWF_NOWAIT) differs by replica: it is as if all of a file
/// were, and nothing of what is none, as some file systems have it.
long transfer_with_flags(long number, Arguments a) {
    const int fd = static_cast<int>(a[0]);
    const FdEntry* const entry = fd_entry(fd);
    const bool plain = !entry || entry->kind == FdKind::kPlain, random = entry_of_kind(fd, FdKind::kEntropy);
    if (!plain && !random && (a[5] & RWF_NOWAIT)) return fail(EOPNOTSUPP);
    const long b[] = {a[0], a[1], a[2], a[3], a[4], plain ? a[5] & ~long{RWF_NOWAIT} : a[5]};
    const bool reads = number == SYS_preadv2;
    if ((b[3] == -1 && b[5] == 0) || (reads && random && b[3] >= 0))
        return reads ? ::readv(fd, as<const iovec*>(b[1]), static_cast<int>(b[2]))
                     : ::writev(fd, as<const iovec*>(b[1]), static_cast<int>(b[2]));
    if (!reads && entry && plain) note_file_write(fd);
    return kernels_part(number, b);
}

long preadv2_6(Arguments a) {
    return transfer_with_flags(SYS_preadv2, a);
}

long pwritev2_6(Arguments a) {
    return transfer_with_flags(SYS_pwritev2, a);
}

/// All pages are there, for the same reason.
long mincore3(Arguments a) {
    const long rc = kernels_part(SYS_mincore, a);
    if (rc != 0) return rc;
    constexpr uint64_t kPageBytes = 4096;
    const uint64_t pages = (static_cast<uint64_t>(a[1]) + kPageBytes - 1) / kPageBytes;
    for (uint64_t i = 0; i < pages; ++i)
        if (!store(as<char*>(a[2]) + i, char{1})) return fail(EFAULT);
    return 0;
}

long mapped_at(const void* place) {
    return reinterpret_cast<long>(place);  // MAP_FAILED is -1
}

#define SAME(name)                                                                               \
    {                                                                                            \
        SYS_##name, #name, []([[maybe_unused]] Arguments a) -> long { return call(&::name, a); } \
    }
#define AS(name, expression)                                                               \
    {                                                                                      \
        SYS_##name, #name, []([[maybe_unused]] Arguments a) -> long { return expression; } \
    }
#define BY(name, function) \
    { SYS_##name, #name, function }

struct Row {
    long number;
    const char* name;
    long (*served)(Arguments);
};
// clang-format off
constexpr Row kRows[] = {
    SAME(accept), SAME(accept4), SAME(adjtimex), SAME(alarm), SAME(bind), SAME(chmod), SAME(chown), SAME(chroot),
    SAME(clock_adjtime), SAME(clock_getres), SAME(clock_gettime), SAME(clock_settime), SAME(close),
    SAME(connect), SAME(creat), SAME(dup), SAME(dup2), SAME(dup3), SAME(epoll_create),
    SAME(epoll_create1), SAME(epoll_ctl), SAME(epoll_wait), SAME(execve), SAME(fallocate), SAME(fchmod), SAME(fchown),
    SAME(fchownat), SAME(flock), SAME(ftruncate), SAME(getcpu), SAME(getpeername),
    SAME(getdents64), SAME(getrandom), SAME(getsockname), SAME(getsockopt), SAME(inotify_add_watch),
    SAME(inotify_init), SAME(inotify_init1), SAME(inotify_rm_watch), SAME(kill), SAME(lchown), SAME(link), SAME(linkat),
    SAME(listen), SAME(msgctl), SAME(msgget), SAME(msgrcv), SAME(msgsnd), SAME(nanosleep), SAME(pause), SAME(pipe),
    SAME(pipe2), SAME(poll), SAME(readv), SAME(read), SAME(recvfrom), SAME(recvmmsg), SAME(recvmsg), SAME(rename),
    SAME(renameat), SAME(renameat2), SAME(rmdir), SAME(sched_setaffinity), SAME(sched_yield), SAME(select),
    SAME(semget), SAME(semop), SAME(semtimedop), SAME(sendfile), SAME(sendmmsg), SAME(sendmsg), SAME(sendto),
    SAME(setsockopt), SAME(shmget), SAME(shmctl), SAME(shutdown), SAME(socket), SAME(socketpair), SAME(splice),
    SAME(stat), SAME(fstat), SAME(lstat), SAME(statx), SAME(statfs), SAME(fstatfs), SAME(readlink),
    SAME(readlinkat), SAME(sysinfo), SAME(tee), SAME(tgkill), SAME(time), SAME(timerfd_create),
    SAME(timerfd_gettime), SAME(timerfd_settime), SAME(times), SAME(uname),
    SAME(unlink), SAME(unlinkat), SAME(utime), SAME(utimensat), SAME(utimes), SAME(vmsplice),
    SAME(setxattr), SAME(lsetxattr), SAME(fsetxattr), SAME(removexattr), SAME(lremovexattr), SAME(fremovexattr),
    SAME(fsync), SAME(fdatasync), SAME(syncfs), SAME(sync_file_range),
    SAME(write), SAME(writev), SAME(getppid), SAME(mq_timedsend), SAME(mq_timedreceive), SAME(mq_notify),
    SAME(settimeofday), SAME(munmap), SAME(mprotect), SAME(madvise), SAME(remap_file_pages), SAME(pkey_mprotect),
    AS(mmap, mapped_at(::mmap(as<void*>(a[0]), static_cast<size_t>(a[1]), static_cast<int>(a[2]),
                              static_cast<int>(a[3]), static_cast<int>(a[4]), a[5]))),
    AS(mremap, mapped_at(::mremap(as<void*>(a[0]), static_cast<size_t>(a[1]), static_cast<size_t>(a[2]),
                                  static_cast<int>(a[3]), as<void*>(a[4])))),
    AS(futex, do_futex(a[0], a[1], a[2], a[3], a[4], a[5])),
    AS(gettimeofday, ::gettimeofday(as<timeval*>(a[0]), as<void*>(a[1]))),
    BY(clock_nanosleep, clock_nanosleep4),
    AS(open, ::open(as<const char*>(a[0]), static_cast<int>(a[1]), static_cast<mode_t>(a[2]))),
    AS(openat, ::openat(static_cast<int>(a[0]), as<const char*>(a[1]), static_cast<int>(a[2]),
                        static_cast<mode_t>(a[3]))),
    AS(newfstatat, ::fstatat(static_cast<int>(a[0]), as<const char*>(a[1]), as<struct stat*>(a[2]),
                             static_cast<int>(a[3]))),
    AS(fchmodat, ::fchmodat(static_cast<int>(a[0]), as<const char*>(a[1]), static_cast<mode_t>(a[2]), 0)),
    AS(fcntl, ::fcntl(static_cast<int>(a[0]), static_cast<int>(a[1]), a[2])),
    AS(ioctl, ::ioctl(static_cast<int>(a[0]), static_cast<unsigned long>(a[1]), a[2])),
    AS(prctl, ::prctl(static_cast<int>(a[0]), a[1], a[2], a[3], a[4])),
    AS(ptrace, ::ptrace(static_cast<__ptrace_request>(a[0]), a[1], a[2], a[3])),
    AS(semctl, ::semctl(static_cast<int>(a[0]), static_cast<int>(a[1]), static_cast<int>(a[2]), a[3])),
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
    AS(wait4, wait_for_child(static_cast<pid_t>(a[0]), as<int*>(a[1]), static_cast<int>(a[2]), as<rusage*>(a[3]))),
    AS(waitid, wait_by_number(static_cast<idtype_t>(a[0]), static_cast<id_t>(a[1]), as<siginfo_t*>(a[2]),
                              static_cast<int>(a[3]), as<rusage*>(a[4]))),
    AS(sched_setscheduler, ::sched_setscheduler(static_cast<pid_t>(a[0]), static_cast<int>(a[1]),
                                                as<const sched_param*>(a[2]))),
    AS(sched_getscheduler, ::sched_getscheduler(static_cast<pid_t>(a[0]))),
    AS(sched_setparam, ::sched_setparam(static_cast<pid_t>(a[0]), as<const sched_param*>(a[1]))),
    AS(sched_getparam, ::sched_getparam(static_cast<pid_t>(a[0]), as<sched_param*>(a[1]))),
    AS(sched_setattr, as_libc(set_scheduling_attributes(static_cast<pid_t>(a[0]), as<const void*>(a[1])))),
    AS(sched_getattr, as_libc(get_scheduling_attributes(static_cast<pid_t>(a[0]), as<void*>(a[1]),
                                                        static_cast<unsigned>(a[2]), static_cast<unsigned>(a[3])))),
    AS(pidfd_send_signal, ::pidfd_send_signal(static_cast<int>(a[0]), static_cast<int>(a[1]), as<siginfo_t*>(a[2]),
                                              static_cast<unsigned>(a[3]))),
    AS(getdents, as_libc(read_old_entries(static_cast<int>(a[0]), as<char*>(a[1]), static_cast<unsigned>(a[2])))),
    AS(fork, ::fork()), AS(vfork, ::vfork()),
    BY(clone, clone_process), BY(exit, end_thread), BY(exit_group, end_process),
    BY(timer_create, timer_create3), BY(sched_getaffinity, sched_getaffinity3), BY(seccomp, seccomp),
    BY(rt_sigaction, rt_sigaction), BY(rt_sigprocmask, rt_sigprocmask), BY(rt_sigpending, rt_sigpending),
    BY(rt_sigtimedwait, rt_sigtimedwait), BY(rt_sigsuspend, rt_sigsuspend), BY(rt_sigqueueinfo, rt_sigqueueinfo),
    BY(pselect6, pselect6), BY(ppoll, ppoll5), BY(epoll_pwait, epoll_pwait6), BY(signalfd4, signalfd4),
    BY(signalfd, signalfd3), BY(epoll_pwait2, epoll_pwait2_6), BY(openat2, openat2), BY(execveat, execveat),
    BY(pwritev, pwritev4), BY(preadv2, preadv2_6), BY(pwritev2, pwritev2_6), BY(mincore, mincore3), BY(rt_tgsigqueueinfo, rt_tgsigqueueinfo),
};

// They concern nobody but the process, or are the same on every replica as they are.
#define CRANE_KERNEL_CALLS(X) \
    X(rt_sigreturn) X(userfaultfd) X(lseek) X(pread64) X(truncate) X(brk) X(access) X(msync) \
    X(shmat) X(getpid) X(shmdt) X(getcwd) X(chdir) X(fchdir) X(mkdir) \
    X(symlink) X(umask) X(getuid) X(syslog) X(getgid) X(setuid) X(setgid) X(geteuid) \
    X(getegid) X(setpgid) X(getpgrp) X(setsid) X(setreuid) X(setregid) X(getgroups) X(setgroups) X(setresuid) \
    X(getresuid) X(setresgid) X(getresgid) X(getpgid) X(setfsuid) X(setfsgid) X(getsid) X(capget) X(capset) \
    X(sigaltstack) X(mknod) X(personality) X(ustat) X(getpriority) X(setpriority) \
    X(sched_get_priority_max) X(sched_get_priority_min) X(sched_rr_get_interval) X(mlock) X(munlock) X(mlockall) \
    X(munlockall) X(vhangup) X(modify_ldt) X(pivot_root) X(arch_prctl) X(sync) X(acct) X(mount) X(umount2) \
    X(swapon) X(swapoff) X(reboot) X(sethostname) X(setdomainname) X(iopl) X(ioperm) X(init_module) \
    X(delete_module) X(quotactl) X(gettid) X(readahead) X(getxattr) \
    X(lgetxattr) X(fgetxattr) X(listxattr) X(llistxattr) X(flistxattr) X(set_tid_address) X(restart_syscall) X(fadvise64) X(mbind) X(set_mempolicy) \
    X(get_mempolicy) X(mq_open) X(mq_unlink) X(mq_getsetattr) X(kexec_load) X(add_key) X(request_key) X(keyctl) \
    X(ioprio_set) X(ioprio_get) X(migrate_pages) \
    X(mkdirat) X(mknodat) X(futimesat) X(symlinkat) X(faccessat) X(unshare) X(set_robust_list) \
    X(get_robust_list) X(move_pages) X(preadv) X(perf_event_open) \
    X(fanotify_init) X(fanotify_mark) X(name_to_handle_at) X(open_by_handle_at) X(setns) \
    X(process_vm_readv) X(process_vm_writev) X(kcmp) X(finit_module) X(memfd_create) X(kexec_file_load) X(bpf) \
    X(membarrier) X(mlock2) X(copy_file_range) X(pkey_free) X(open_tree) \
    X(move_mount) X(fsopen) X(fsconfig) X(fsmount) X(fspick) X(pidfd_open) X(faccessat2) X(process_madvise) \
    X(mount_setattr) X(quotactl_fd) X(landlock_create_ruleset) X(landlock_add_rule) X(landlock_restrict_self) \
    X(memfd_secret) X(process_mrelease) X(set_mempolicy_home_node)

// Programs go on without them when they are told that there are none: they then do it by calls that are served.
#define CRANE_ABSENT_CALLS(X) \
    X(clone3) X(io_uring_setup) X(io_uring_enter) X(io_uring_register) X(io_setup) X(io_destroy) X(io_getevents) \
    X(io_submit) X(io_cancel) X(io_pgetevents) X(futex_waitv) X(rseq) X(uselib) X(create_module) \
    X(get_kernel_syms) X(query_module) X(nfsservctl) X(getpmsg) X(putpmsg) X(afs_syscall) X(tuxcall) X(security) \
    X(set_thread_area) X(get_thread_area) X(epoll_ctl_old) X(epoll_wait_old) X(vserver) X(_sysctl) \
    X(lookup_dcookie) X(sysfs) X(pkey_alloc)

// What they do would leave the schedule, and nobody can be told that more quietly.
#define CRANE_REFUSED_CALLS(X) \
    X(pidfd_getfd)
// clang-format on
#undef SAME
#undef AS
#undef BY

constexpr std::array<SystemCall, kNumbers> by_number() {
    std::array<SystemCall, kNumbers> table{};
    for (const Row& row : kRows)
        table[static_cast<size_t>(row.number)] = {row.name, Treatment::kServed, row.served};
#define X(name) table[SYS_##name] = {#name, Treatment::kKernel, nullptr};
    CRANE_KERNEL_CALLS(X)
#undef X
#define X(name) table[SYS_##name] = {#name, Treatment::kAbsent, nullptr};
    CRANE_ABSENT_CALLS(X)
#undef X
#define X(name) table[SYS_##name] = {#name, Treatment::kRefused, nullptr};
    CRANE_REFUSED_CALLS(X)
#undef X
    return table;
}
constexpr std::array<SystemCall, kNumbers> kTable = by_number();

constexpr SystemCall kUnknownCall{"", Treatment::kUnknown, nullptr};

/// What a thread may do, or whose it is.
bool is_of_identity(long number) {
    constexpr long kIdentity[] = {SYS_capset,    SYS_setuid,    SYS_setgid,   SYS_setreuid, SYS_setregid,
                                  SYS_setresuid, SYS_setresgid, SYS_setfsuid, SYS_setfsgid, SYS_setgroups};
    return std::ranges::find(kIdentity, number) != std::end(kIdentity);
}

long change_identity(long number, Arguments a) {
    const long rc = to_kernel(number, a);
    have_timer_thread_follow(number, a, rc >= 0);
    return rc;
}

/// So that who watches files hears of it.
bool changes_files(long number) {
    if (domain().inotify_stream == 0) return false;
    constexpr long kChanges[] = {SYS_mkdir,           SYS_mkdirat,   SYS_mknod,    SYS_mknodat,
                                 SYS_symlink,         SYS_symlinkat, SYS_truncate, SYS_futimesat,
                                 SYS_copy_file_range, SYS_pwritev2,  SYS_preadv,   SYS_preadv2,
                                 SYS_pread64,         SYS_umount2};
    return std::ranges::find(kChanges, number) != std::end(kChanges);
}

/// The number of the served call that does the same: of random devices, whose bytes are the schedule's.
/// kNotServed: none (0 is read()).
constexpr long kNotServed = -1;
long served_as(long number, Arguments a) {
    if (number != SYS_pread64 && number != SYS_preadv) return kNotServed;
    const bool random = entry_of_kind(static_cast<int>(a[0]), FdKind::kEntropy) && a[3] >= 0;
    if (!random) return kNotServed;
    return number == SYS_pread64 ? SYS_read : SYS_readv;
}

/// In a strict process the kernel ends it for all but these.
bool is_left_by_strict_rules(long number) {
    return number == SYS_read || number == SYS_write || number == SYS_exit;
}

/// Where libc's functions write their result without asking, as they may, and the kernel asks.
struct Result {
    long number;
    size_t argument, bytes;
};
constexpr Result kResults[] = {
    {SYS_clock_gettime, 1, sizeof(timespec)},
    {SYS_clock_getres, 1, sizeof(timespec)},
    {SYS_gettimeofday, 0, sizeof(timeval)},
    {SYS_time, 0, sizeof(time_t)},
    {SYS_times, 0, sizeof(tms)},
    {SYS_getrusage, 1, sizeof(rusage)},
    {SYS_uname, 0, sizeof(utsname)},
    {SYS_sysinfo, 0, sizeof(struct sysinfo)},
    {SYS_getcpu, 0, sizeof(unsigned)},
    {SYS_getcpu, 1, sizeof(unsigned)},
};

bool results_have_room(long number, const long* a) {
    for (const Result& one : kResults) {
        if (one.number != number || a[one.argument] == 0) continue;
        if (!writable(as<void*>(a[one.argument]), one.bytes)) return false;
    }
    return true;
}

long kernels_part(long number, Arguments a) {
    long rc;
    if (changes_files(number)) {
        const SharedOperation turn(Op::kFile, files_key());
        rc = kernels_answer(number, a);
    } else {
        count_file_call();
        rc = kernels_answer(number, a);
    }
    return as_libc(after_growth(rc));
}

long refuse(long number, const SystemCall& call) {
    char text[100];
    if (call.treatment == Treatment::kUnknown) {
        snprintf(text, sizeof(text), "system call number %ld", number);
    } else {
        snprintf(text, sizeof(text), "the system call %s (number %ld)", call.name, number);
    }
    const Operation turn(Op::kOther, own_key());
    refuse_call(text);
    return fail(ENOSYS);
}

}  // namespace

const SystemCall& system_call(long number) {
    const auto index = static_cast<size_t>(number);
    return index < kNumbers ? kTable[index] : kUnknownCall;
}

long lead_system_call(long number, const long* a) {
    if (runtime.process->judged == Judged::kStrictly && !is_left_by_strict_rules(number))
        return to_kernel(number, a);
    const SystemCall& call = system_call(number);
    switch (call.treatment) {
        case Treatment::kServed:
            return results_have_room(number, a) ? call.served(a) : fail(EFAULT);
        case Treatment::kKernel: {
            if (const long served = served_as(number, a); served != kNotServed)
                return system_call(served).served(a);
            if (is_of_identity(number)) return change_identity(number, a);
            return kernels_part(number, a);
        }
        case Treatment::kAbsent:
            return fail(ENOSYS);
        case Treatment::kRefused:
        case Treatment::kUnknown:
            break;
    }
    return refuse(number, call);
}

}  // namespace crane::interpose

using namespace crane::interpose;

CRANE_EXPORT long syscall(long number, ...) noexcept {
    va_list list;
    va_start(list, number);
    long a[6];
    for (long& value : a) value = va_arg(list, long);
    va_end(list);
    if (active()) {
        const Uncancelled whole;
        return lead_system_call(number, a);
    }
    return as_libc(raw6(number, a[0], a[1], a[2], a[3], a[4], a[5]));
}
