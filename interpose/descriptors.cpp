// Descriptor numbers: close, dup, fcntl, ioctl, pipes, eventfd, and what travels over unix sockets.
#include <asm/sockios.h>
#include <sys/ioctl.h>

#include <cstdarg>

#include "interpose/core/blocking.hpp"
#include "interpose/core/datagrams.hpp"
#include "interpose/core/file_locks.hpp"
#include "interpose/core/file_times.hpp"
#include "interpose/core/passed.hpp"
#include "interpose/core/sockets.hpp"
#include "interpose/core/syncs.hpp"
#include "interpose/core/terminals.hpp"
#include "interpose/core/threads.hpp"
#include "interpose/core/user_memory.hpp"
#include "interpose/core/watched_files.hpp"

namespace crane::interpose {

namespace {

long close_fd(int fd) {
    if (fd < 0 || is_reserved_fd(fd)) return -EBADF;
    Operation turn(Op::kClose, descriptor_key(fd), object_of(fd));
    settle_file_times(fd);
    await_syncs(static_cast<unsigned>(fd), static_cast<unsigned>(fd));
    const long rc = raw(SYS_close, fd);
    if (rc != -EBADF) drop_entry(fd);
    settle_passed_if_any();
    file_lock_event();
    file_event();
    return rc;
}

long dup_to(int fd, int copy, int flags, bool same_is_fine) {
    if (is_reserved_fd(copy) || is_reserved_fd(fd)) return -EBADF;
    Operation turn(Op::kDup, descriptor_key(fd), descriptor_key(copy));
    if (fd == copy) {
        if (!same_is_fine) return -EINVAL;
        const long rc = raw(SYS_fcntl, fd, F_GETFD);
        return rc < 0 ? rc : copy;
    }
    settle_file_times(copy);
    await_syncs(static_cast<unsigned>(copy), static_cast<unsigned>(copy));
    const long rc = raw(SYS_dup3, fd, copy, flags);
    if (rc >= 0) {
        drop_entry(copy);
        copy_entry(fd, copy);
        settle_passed_if_any();
    }
    return rc;
}

long duplicate(int fd, int command, int from) {
    if (is_reserved_fd(fd)) return -EBADF;
    Operation turn(Op::kDup, descriptor_key(fd), object_of(fd));
    const long rc = raw(SYS_fcntl, fd, command, from);
    if (rc >= 0) copy_entry(fd, static_cast<int>(rc));
    return rc;
}

/// fcntl on descriptors whose state is ours. True if it was answered.
bool virtual_fcntl(const FdEntry& entry, int command, long argument, long& rc) {
    if (entry.kind == FdKind::kSocket) {
        VirtualSocket& s = domain().sockets[entry.object];
        if (command == F_GETFL) {
            rc = O_RDWR | (s.nonblocking ? O_NONBLOCK : 0);
            return true;
        }
        if (command == F_SETFL) {
            Operation turn(Op::kSocketOption, entry_key(entry));
            s.nonblocking = (argument & O_NONBLOCK) != 0;
            rc = 0;
            return true;
        }
    }
    if (entry.kind == FdKind::kTimer || entry.kind == FdKind::kSignals) {
        uint32_t& nonblocking = entry.kind == FdKind::kTimer ? domain().timers[entry.object].nonblocking
                                                             : domain().signal_fds[entry.object].nonblocking;
        if (command == F_GETFL) {
            rc = O_RDWR | (nonblocking ? O_NONBLOCK : 0);
            return true;
        }
        if (command == F_SETFL) {
            nonblocking = (argument & O_NONBLOCK) != 0;
            rc = 0;
            return true;
        }
    }
    return false;
}

/// Signals that the kernel sends when it likes have no place in the schedule: signal-driven I/O is accepted,
/// since programs set it up whose work does not depend on it, and no signal is ever sent.
void refuse_io_signals() {
    static bool said = false;
    Operation turn(Op::kSignal, process_key(runtime.process->pid));  // who is first is the schedule's to say
    if (said) return;
    said = true;
    refuse_call("a signal for input or output (O_ASYNC, F_SETSIG): none is sent");
}

/// fcntl commands by which the kernel is told to send signals. True if it was answered.
bool signal_fcntl(int fd, int command, long& argument, long& rc) {
    const auto answer = [&](long answered) {
        rc = raw(SYS_fcntl, fd, F_GETFD);
        if (rc >= 0) rc = answered;
        return true;
    };
    switch (command) {
        case F_SETOWN:
        case F_SETOWN_EX:
        case F_SETSIG:
            return answer(0);
        case F_NOTIFY:
            return answer(-EINVAL);
        case F_SETLEASE:
            return argument != F_UNLCK && answer(-EINVAL);
        case F_SETFL:
            if (argument & O_ASYNC) refuse_io_signals();
            argument &= ~long{O_ASYNC};
            return false;
        default:
            return false;
    }
}

long do_fcntl(int fd, int command, long argument) {
    count_cheap_call();
    if (is_reserved_fd(fd)) return -EBADF;
    if (command == F_DUPFD || command == F_DUPFD_CLOEXEC)
        return duplicate(fd, command, static_cast<int>(argument));
    if (is_file_lock(command)) return lock_by_fcntl(fd, command, argument);
    const FdEntry* entry = fd_entry(fd);
    long rc = 0;
    if (signal_fcntl(fd, command, argument, rc)) return rc;
    if (entry && virtual_fcntl(*entry, command, argument, rc)) return rc;
    return raw(SYS_fcntl, fd, command, argument);
}

long do_ioctl(int fd, unsigned long request, void* argument) {
    if (request == FIOASYNC || request == FIOSETOWN || request == SIOCSPGRP) {
        int given = 0;
        if (!fetch(given, argument)) return -EFAULT;
        if (request == FIOASYNC && given != 0) refuse_io_signals();
        const long known = raw(SYS_fcntl, fd, F_GETFD);
        return known < 0 ? known : 0;
    }
    const FdEntry* entry = fd_entry(fd);
    if (entry && request == FIONBIO) {
        int given = 0;
        long rc = 0;
        if (!fetch(given, argument)) return -EFAULT;
        if (virtual_fcntl(*entry, F_SETFL, given ? O_NONBLOCK : 0, rc)) return rc;
    }
    if (entry && (entry->flags & kFdTerminal)) return control_terminal(fd, request, argument);
    if (!entry || entry->kind != FdKind::kSocket) return raw(SYS_ioctl, fd, request, argument);
    VirtualSocket& s = domain().sockets[entry->object];
    const bool told = request == FIONREAD || request == TIOCOUTQ;
    if (told && !writable(argument, sizeof(int))) return -EFAULT;
    Operation turn(Op::kSocketOption, entry_key(*entry));
    switch (request) {
        case FIONREAD:
            *static_cast<int*>(argument) = static_cast<int>(
                is_datagram(entry->object) ? datagram_next_bytes(entry->object) : s.input.unread());
            return 0;
        case TIOCOUTQ:
            *static_cast<int*>(argument) = 0;
            return 0;
        default:
            return raw(SYS_ioctl, fd, request, argument);
    }
}

}  // namespace

}  // namespace crane::interpose

using namespace crane::interpose;

CRANE_EXPORT int close(int fd) {
    if (!active()) return resolve_real(), real.close(fd);
    test_cancel();
    return static_cast<int>(as_libc(close_fd(fd)));
}

CRANE_EXPORT int close_range(unsigned first, unsigned last, int flags) noexcept {
    if (!active()) return resolve_real(), real.close_range(first, last, flags);
    if (first > last || (flags & ~(CLOSE_RANGE_CLOEXEC | CLOSE_RANGE_UNSHARE)))
        return static_cast<int>(as_libc(-EINVAL));
    for (unsigned fd = first; fd <= last && fd < kMaxFds; ++fd) {
        if (is_reserved_fd(static_cast<int>(fd)) || runtime.process->fds[fd].kind == FdKind::kUnknown)
            continue;
        if (flags & CLOSE_RANGE_CLOEXEC) {
            raw(SYS_fcntl, fd, F_SETFD, FD_CLOEXEC);
        } else {
            close_fd(static_cast<int>(fd));
        }
    }
    if (!(flags & CLOSE_RANGE_CLOEXEC)) await_syncs(first, last);
    // Descriptors that no wrapper has met yet, in the two ranges around Crane's own.
    const auto below = static_cast<unsigned>(reserved_fd(0)) - 1,
               above = static_cast<unsigned>(reserved_fd(crane::kReservedFds));
    if (first <= below) raw(SYS_close_range, first, last < below ? last : below, flags);
    if (last >= above) raw(SYS_close_range, first > above ? first : above, last, flags);
    return 0;
}

CRANE_EXPORT void closefrom(int first) noexcept {
    if (!active()) return resolve_real(), real.closefrom(first);
    close_range(first < 0 ? 0 : static_cast<unsigned>(first), ~0u, 0);
}

CRANE_EXPORT int dup(int fd) noexcept {
    if (!active()) return resolve_real(), real.dup(fd);
    return static_cast<int>(as_libc(duplicate(fd, F_DUPFD, 0)));
}

CRANE_EXPORT int dup2(int fd, int copy) noexcept {
    if (!active()) return resolve_real(), real.dup2(fd, copy);
    return static_cast<int>(as_libc(dup_to(fd, copy, 0, true)));
}

CRANE_EXPORT int dup3(int fd, int copy, int flags) noexcept {
    if (!active()) return resolve_real(), real.dup3(fd, copy, flags);
    return static_cast<int>(as_libc(dup_to(fd, copy, flags, false)));
}

CRANE_EXPORT int pipe2(int fds[2], int flags) noexcept {
    if (!active()) return resolve_real(), real.pipe2(fds, flags);
    Operation turn(Op::kPipe, process_key(runtime.process->pid));
    const long rc = raw(SYS_pipe2, fds, flags);
    if (rc == 0) set_stream(fds[0], fds[1]);
    return static_cast<int>(as_libc(rc));
}

CRANE_EXPORT int pipe(int fds[2]) noexcept {
    if (!active()) return resolve_real(), real.pipe(fds);
    return pipe2(fds, 0);
}

CRANE_EXPORT int eventfd(unsigned value, int flags) noexcept {
    if (!active()) return resolve_real(), real.eventfd(value, flags);
    Operation turn(Op::kPipe, process_key(runtime.process->pid));
    const long fd = raw(SYS_eventfd2, value, flags);
    if (fd >= 0) {
        set_stream(static_cast<int>(fd), -1);
        if (FdEntry* entry = fd_entry(static_cast<int>(fd))) entry->flags |= kFdCounter;
    }
    return static_cast<int>(as_libc(fd));
}

CRANE_EXPORT int fcntl(int fd, int command, ...) {
    va_list list;
    va_start(list, command);
    const long argument = va_arg(list, long);
    va_end(list);
    if (!active()) return resolve_real(), real.fcntl(fd, command, argument);
    return static_cast<int>(as_libc(do_fcntl(fd, command, argument)));
}

CRANE_EXPORT int fcntl64(int fd, int command, ...) {
    va_list list;
    va_start(list, command);
    const long argument = va_arg(list, long);
    va_end(list);
    if (!active()) return resolve_real(), real.fcntl(fd, command, argument);
    return static_cast<int>(as_libc(do_fcntl(fd, command, argument)));
}

CRANE_EXPORT int ioctl(int fd, unsigned long request, ...) noexcept {
    va_list list;
    va_start(list, request);
    void* argument = va_arg(list, void*);
    va_end(list);
    if (!active()) return resolve_real(), real.ioctl(fd, request, argument);
    return static_cast<int>(as_libc(do_ioctl(fd, request, argument)));
}
