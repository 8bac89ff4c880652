// recv, send and their kin, read and write, scatter and gather, sendfile: one path for virtual sockets, one
// for the kernel's streams (streams.hpp), one for what never waits.
#include <climits>
#include <cstring>

#include "interpose/core/blocking.hpp"
#include "interpose/core/datagrams.hpp"
#include "interpose/core/entropy.hpp"
#include "interpose/core/file_times.hpp"
#include "interpose/core/shared_operation.hpp"
#include "interpose/core/signal_fds.hpp"
#include "interpose/core/size_limit.hpp"
#include "interpose/core/sockets.hpp"
#include "interpose/core/threads.hpp"
#include "interpose/core/timers.hpp"
#include "interpose/core/user_memory.hpp"
#include "interpose/datagrams.hpp"
#include "interpose/pieces.hpp"
#include "interpose/streams.hpp"

namespace crane::interpose {
namespace {

uint64_t timeout_deadline(uint64_t timeout_ns) {
    return timeout_ns ? deadline_from_relative_ns(timeout_ns) : dmt::kNoDeadline;
}

long receive_virtual(uint32_t socket, const iovec* vector, int count, int flags) {
    if (is_datagram(socket)) return receive_datagram(socket, vector, count, flags, {});
    if (flags & MSG_OOB) return -EINVAL;
    if (flags & MSG_ERRQUEUE) return -EAGAIN;
    Operation turn(Op::kReceive, socket_key(socket));
    SocketHold hold;
    VirtualSocket& s = domain().sockets[socket];
    const bool peek = flags & MSG_PEEK, all = flags & MSG_WAITALL;
    const bool nonblocking = s.nonblocking || (flags & MSG_DONTWAIT);
    const size_t wanted = all ? total_bytes(vector, static_cast<size_t>(count)) : 1;
    const uint64_t deadline = timeout_deadline(s.receive_timeout_ns);
    size_t done = 0;
    for (bool patient = peek && all && !nonblocking;;) {
        const bool ended = s.fin_received || s.reset || s.shut_read;
        // How it ended is for the next call.
        if (done > 0 && ended && s.input.unread() == 0) return static_cast<long>(done);
        long n = -EAGAIN;
        if (!patient || ended || s.input.unread() >= wanted) {
            const Piece rest(vector, static_cast<size_t>(count), done, SIZE_MAX);
            n = done > 0 ? socket_receive(socket, rest.buffers, rest.count, peek, flags & MSG_TRUNC)
                         : socket_receive(socket, vector, count, peek, flags & MSG_TRUNC);
        }
        if (n > 0) done += static_cast<size_t>(n);
        if (n > 0 && !peek && done < wanted) continue;
        if (n != -EAGAIN) return done > 0 ? static_cast<long>(done) : n;
        if (nonblocking) {
            turn.yield();
            return done > 0 ? static_cast<long>(done) : n;
        }
        const long error = wait_on_socket(turn, hold, socket, socket_key(socket), deadline);
        if (error && (!patient || s.input.unread() == 0)) return done > 0 ? static_cast<long>(done) : error;
        if (error) patient = false;  // what is there is looked at
    }
}

/// Runs `send_it` (core result) until `wanted` bytes are sent, or the socket is not to block, or it fails:
/// then what was sent before counts, and the error only if that is nothing.
template <typename Send>
long send_virtual(uint32_t socket, int flags, size_t wanted, Send send_it) {
    Operation turn(Op::kSend, socket_key(socket));
    SocketHold hold;
    const VirtualSocket& s = domain().sockets[socket];
    const uint64_t deadline = timeout_deadline(s.send_timeout_ns);
    size_t done = 0;
    for (;;) {
        const long n = send_it();
        if (n > 0) done += static_cast<size_t>(n);
        const bool nonblocking = s.nonblocking || (flags & MSG_DONTWAIT);
        if (n >= 0 && (done >= wanted || n == 0 || nonblocking)) return static_cast<long>(done);
        if (n < 0 && n != -EAGAIN) {
            if (done > 0) return static_cast<long>(done);
            if (n == -EPIPE && !(flags & MSG_NOSIGNAL)) raise_sigpipe();
            return n;
        }
        if (n > 0) continue;
        if (nonblocking) {
            turn.yield();
            return n;
        }
        if (const long error = wait_on_socket(turn, hold, socket, socket_write_key(socket), deadline))
            return done > 0 ? static_cast<long>(done) : error;
    }
}

/// A blocking send returns when all is sent; each piece of it goes out when the window has room.
long send_vector(uint32_t socket, const iovec* vector, int count, int flags) {
    if (is_datagram(socket)) return send_datagram(socket, vector, count, flags, nullptr, 0);
    const size_t wanted = total_bytes(vector, static_cast<size_t>(count));
    size_t done = 0;
    return send_virtual(socket, flags, wanted, [&] {
        const long n = socket_send(socket, vector, count, done);
        if (n > 0) done += static_cast<size_t>(n);
        return n;
    });
}

long read_timer(int fd, uint32_t index, void* out, size_t bytes) {
    if (bytes < sizeof(uint64_t)) return -EINVAL;
    if (is_kernels(out)) return -EFAULT;
    Operation turn(Op::kTimer, make_key(ObjectKind::kTimer, index));
    const FdEntry then = *fd_entry(fd);
    for (;;) {
        if (!same_descriptor(fd, then)) return -EBADF;
        const uint64_t times = timer_take(index);
        if (times) return store(out, times) ? long{sizeof(times)} : -EFAULT;
        if (domain().timers[index].nonblocking) {
            turn.yield();
            return -EAGAIN;
        }
        if (turn.wait(own_key(), timer_deadline(index), true, ~uint64_t{0}) ==
            dmt::WaitResult::kInterrupted) {
            if (!restart_after_signals()) return -EINTR;
        }
    }
}

template <typename Call>
long on_file(int fd, Call call) {
    long rc;
    {
        SharedOperation turn(Op::kFile, descriptor_key(fd));
        rc = uninterrupted(call);
    }
    return after_growth(rc);
}

long do_read(int fd, void* buffer, size_t bytes) {
    const FdEntry* entry = fd_entry(fd);
    const iovec one{buffer, bytes};
    switch (entry ? entry->kind : FdKind::kUnknown) {
        case FdKind::kSocket:
            return receive_virtual(entry->object, &one, 1, 0);
        case FdKind::kStream:
            return read_stream(fd, *entry, &one, 1);
        case FdKind::kEntropy: {
            if (!writable(buffer, bytes)) return -EFAULT;
            Operation turn(Op::kEntropy, entropy_key());
            fill_random(buffer, bytes);
            return static_cast<long>(bytes);
        }
        case FdKind::kTimer:
            return read_timer(fd, entry->object, buffer, bytes);
        case FdKind::kSignals:
            return read_signals(entry->object, buffer, bytes);
        default:
            return on_file(fd, [&] { return raw(SYS_read, fd, buffer, bytes); });
    }
}

long do_readv(int fd, const iovec* vector, int count) {
    if (count < 0) return -EINVAL;
    if (const long error = check_vector(vector, static_cast<size_t>(count))) return error;
    const FdEntry* entry = fd_entry(fd);
    switch (entry ? entry->kind : FdKind::kUnknown) {
        case FdKind::kSocket:
            return receive_virtual(entry->object, vector, count, 0);
        case FdKind::kStream:
            return read_stream(fd, *entry, vector, count);
        case FdKind::kEntropy:
        case FdKind::kTimer:
        case FdKind::kSignals:
            return count ? do_read(fd, vector[0].iov_base, vector[0].iov_len) : 0;
        default:
            return on_file(fd, [&] { return raw(SYS_readv, fd, vector, count); });
    }
}

long do_write(int fd, const void* buffer, size_t bytes) {
    const FdEntry* entry = fd_entry(fd);
    const iovec one{const_cast<void*>(buffer), bytes};
    switch (entry ? entry->kind : FdKind::kUnknown) {
        case FdKind::kSocket:
            return send_vector(entry->object, &one, 1, 0);
        case FdKind::kStream:
            return write_stream(fd, *entry, &one, 1);
        case FdKind::kTimer:
        case FdKind::kSignals:
            return -EINVAL;
        case FdKind::kPlain:
            note_file_write(fd);
            [[fallthrough]];
        default:
            return on_file(fd, [&] { return raw(SYS_write, fd, buffer, bytes); });
    }
}

long do_writev(int fd, const iovec* vector, int count) {
    if (count < 0) return -EINVAL;
    if (const long error = check_vector(vector, static_cast<size_t>(count))) return error;
    const FdEntry* entry = fd_entry(fd);
    switch (entry ? entry->kind : FdKind::kUnknown) {
        case FdKind::kSocket:
            return send_vector(entry->object, vector, count, 0);
        case FdKind::kStream:
            return write_stream(fd, *entry, vector, count);
        case FdKind::kTimer:
        case FdKind::kSignals:
            return -EINVAL;
        case FdKind::kPlain:
            note_file_write(fd);
            [[fallthrough]];
        default:
            return on_file(fd, [&] { return raw(SYS_writev, fd, vector, count); });
    }
}

long do_recvfrom(int fd, void* buffer, size_t bytes, int flags, sockaddr* address, socklen_t* length) {
    if (only_seems_socket(fd)) return -ENOTSOCK;
    const FdEntry* entry = fd_entry(fd);
    if (entry && entry->kind == FdKind::kSocket) {
        const iovec one{buffer, bytes};
        if (is_datagram(entry->object))
            return receive_datagram(entry->object, &one, 1, flags, {address, address ? length : nullptr});
        // TCP gives no address here.
        if (address) {
            int room;
            if (!fetch(room, length)) return -EFAULT;
            if (room < 0) return -EINVAL;
            if (!store(length, socklen_t{0})) return -EFAULT;
        }
        return receive_virtual(entry->object, &one, 1, flags);
    }
    if (!entry || entry->kind != FdKind::kStream)
        return raw(SYS_recvfrom, fd, buffer, bytes, flags, address, length);
    return receive_from_stream(fd, *entry, buffer, bytes, flags, address, length);
}

long check_message(const msghdr& message) {
    return message.msg_iovlen > IOV_MAX ? -EMSGSIZE : check_vector(message.msg_iov, message.msg_iovlen);
}

long do_recvmsg(int fd, msghdr* message, int flags) {
    if (only_seems_socket(fd)) return -ENOTSOCK;
    const FdEntry* entry = fd_entry(fd);
    if (entry && entry->kind == FdKind::kSocket) {
        if (!writable(message, sizeof(*message))) return -EFAULT;
        if (const long error = check_message(*message)) return error;
        if (is_datagram(entry->object))
            return receive_datagram(
                entry->object, message->msg_iov, static_cast<int>(message->msg_iovlen), flags,
                {static_cast<sockaddr*>(message->msg_name), &message->msg_namelen, message});
        message->msg_namelen = 0;
        message->msg_controllen = 0;
        message->msg_flags = 0;
        return receive_virtual(entry->object, message->msg_iov, static_cast<int>(message->msg_iovlen), flags);
    }
    if (!entry || entry->kind != FdKind::kStream) return raw(SYS_recvmsg, fd, message, flags);
    return receive_from_stream(fd, *entry, message, flags);
}

long do_sendto(int fd, const void* buffer, size_t bytes, int flags, const sockaddr* address,
               socklen_t length) {
    if (only_seems_socket(fd)) return -ENOTSOCK;
    const FdEntry* entry = fd_entry(fd);
    if (entry && entry->kind == FdKind::kSocket) {
        const iovec one{const_cast<void*>(buffer), bytes};
        if (is_datagram(entry->object)) return send_datagram(entry->object, &one, 1, flags, address, length);
        return send_vector(entry->object, &one, 1, flags);
    }
    if (!entry || entry->kind != FdKind::kStream)
        return raw(SYS_sendto, fd, buffer, bytes, flags, address, length);
    return send_to_stream(fd, *entry, buffer, bytes, flags, address, length);
}

long do_sendmsg(int fd, const msghdr* message, int flags) {
    if (only_seems_socket(fd)) return -ENOTSOCK;
    const FdEntry* entry = fd_entry(fd);
    if (entry && entry->kind == FdKind::kSocket) {
        msghdr given;
        if (!fetch(given, message)) return -EFAULT;
        if (const long error = check_message(given)) return error;
        if (is_datagram(entry->object))
            return send_datagram(entry->object, given.msg_iov, static_cast<int>(given.msg_iovlen), flags,
                                 given.msg_namelen ? static_cast<sockaddr*>(given.msg_name) : nullptr,
                                 given.msg_namelen);
        return send_vector(entry->object, given.msg_iov, static_cast<int>(given.msg_iovlen), flags);
    }
    if (!entry || entry->kind != FdKind::kStream) return raw(SYS_sendmsg, fd, message, flags);
    return send_to_stream(fd, *entry, message, flags);
}

/// From a random device: what the schedule has drawn, and no byte of the kernel's.
long send_random(int out, size_t bytes) {
    char piece[4096];
    size_t done = 0;
    while (done < bytes) {
        const size_t left = bytes - done, next = left < sizeof(piece) ? left : sizeof(piece);
        {
            SharedOperation turn(Op::kEntropy, entropy_key());
            fill_random(piece, next);
        }
        const long put = do_write(out, piece, next);
        if (put < 0 && done == 0) return put;
        if (put <= 0) break;
        done += static_cast<size_t>(put);
        if (static_cast<size_t>(put) < next) break;
    }
    return static_cast<long>(done);
}

/// A pipe, a socket and their kin: it has no places that a file has. False for what is not open.
bool has_no_places(int fd) {
    const FdEntry* const entry = fd_entry(fd);
    return entry && entry->kind != FdKind::kPlain && raw(SYS_lseek, fd, 0, SEEK_CUR) == -ESPIPE;
}

bool is_of_type(int fd, mode_t type) {
    struct stat info;
    return raw(SYS_fstat, fd, &info) == 0 && (info.st_mode & S_IFMT) == type;
}

long do_sendfile(int out, int in, off_t* offset, size_t bytes) {
    const FdEntry* entry = fd_entry(out);
    if (entry_of_kind(in, FdKind::kEntropy)) {
        if (offset && !writable(offset, sizeof(*offset))) return -EFAULT;
        const long sent = send_random(out, bytes);
        if (offset && sent > 0) *offset += sent;
        return sent;
    }
    if (has_no_places(in)) {
        if (entry && entry->kind == FdKind::kSocket) return offset ? -ESPIPE : -EINVAL;
        const bool spliced = !offset && is_of_type(in, S_IFSOCK) && is_of_type(out, S_IFIFO);
        return spliced ? splice_stream(in, out, bytes) : raw(SYS_sendfile, out, in, offset, bytes);
    }
    if (entry && entry->kind == FdKind::kSocket) {
        if (offset && !writable(offset, sizeof(*offset))) return -EFAULT;
        if (is_datagram(entry->object)) {
            refuse_call("sendfile to a UDP socket");
            return -EINVAL;
        }
        size_t done = 0;
        return send_virtual(entry->object, 0, bytes, [&] {
            const long n = socket_send_file(entry->object, in, offset, bytes - done);
            if (n > 0) done += static_cast<size_t>(n);
            return n;
        });
    }
    if (!entry || entry->kind != FdKind::kStream)
        return after_growth(raw(SYS_sendfile, out, in, offset, bytes));
    return send_file_to_stream(out, *entry, in, offset, bytes);
}

}  // namespace
}  // namespace crane::interpose

using namespace crane::interpose;

// --- read and write

#define CRANE_TRANSFER(result) return as_libc(at_cancellation_point([&] { return result; }))

CRANE_EXPORT ssize_t read(int fd, void* buffer, size_t bytes) {
    if (!active()) return resolve_real(), real.read(fd, buffer, bytes);
    CRANE_TRANSFER(do_read(fd, buffer, bytes));
}
CRANE_EXPORT ssize_t __read_chk(int fd, void* buffer, size_t bytes, size_t room) {
    CRANE_CHECK(bytes <= room);
    return read(fd, buffer, bytes);
}
CRANE_EXPORT ssize_t readv(int fd, const iovec* vector, int count) {
    if (!active()) return resolve_real(), real.readv(fd, vector, count);
    CRANE_TRANSFER(do_readv(fd, vector, count));
}
CRANE_EXPORT int eventfd_read(int fd, eventfd_t* value) {
    return ::read(fd, value, sizeof(*value)) == sizeof(*value) ? 0 : -1;
}

CRANE_EXPORT int eventfd_write(int fd, eventfd_t value) {
    return ::write(fd, &value, sizeof(value)) == sizeof(value) ? 0 : -1;
}

CRANE_EXPORT ssize_t write(int fd, const void* buffer, size_t bytes) {
    if (!active()) return resolve_real(), real.write(fd, buffer, bytes);
    CRANE_TRANSFER(do_write(fd, buffer, bytes));
}
CRANE_EXPORT ssize_t writev(int fd, const iovec* vector, int count) {
    if (!active()) return resolve_real(), real.writev(fd, vector, count);
    CRANE_TRANSFER(do_writev(fd, vector, count));
}
CRANE_EXPORT ssize_t pwrite(int fd, const void* buffer, size_t bytes, off_t at) {
    if (!active()) return resolve_real(), real.pwrite(fd, buffer, bytes, at);
    test_cancel();
    if (!fd_entry(fd)) return as_libc(-EBADF);
    if (fd_entry(fd)->kind == FdKind::kPlain) note_file_write(fd);
    return as_libc(on_file(fd, [&] { return raw(SYS_pwrite64, fd, buffer, bytes, at); }));
}
CRANE_EXPORT ssize_t pwrite64(int fd, const void* buffer, size_t bytes, off64_t at) {
    return pwrite(fd, buffer, bytes, at);
}
CRANE_EXPORT ssize_t pwritev(int fd, const iovec* vector, int count, off_t at) {
    if (!active()) return resolve_real(), real.pwritev(fd, vector, count, at);
    test_cancel();
    if (fd_entry(fd) && fd_entry(fd)->kind == FdKind::kPlain) note_file_write(fd);
    return as_libc(on_file(fd, [&] { return raw(SYS_pwritev, fd, vector, count, at, 0); }));
}
CRANE_EXPORT ssize_t pwritev64(int fd, const iovec* vector, int count, off64_t at) {
    return pwritev(fd, vector, count, at);
}

// --- recv and send

CRANE_EXPORT ssize_t recv(int fd, void* buffer, size_t bytes, int flags) {
    if (!active()) return resolve_real(), real.recv(fd, buffer, bytes, flags);
    CRANE_TRANSFER(do_recvfrom(fd, buffer, bytes, flags, nullptr, nullptr));
}
CRANE_EXPORT ssize_t __recv_chk(int fd, void* buffer, size_t bytes, size_t room, int flags) {
    CRANE_CHECK(bytes <= room);
    return recv(fd, buffer, bytes, flags);
}
CRANE_EXPORT ssize_t recvfrom(int fd, void* buffer, size_t bytes, int flags, sockaddr* address,
                              socklen_t* length) {
    if (!active()) return resolve_real(), real.recvfrom(fd, buffer, bytes, flags, address, length);
    CRANE_TRANSFER(do_recvfrom(fd, buffer, bytes, flags, address, length));
}
CRANE_EXPORT ssize_t __recvfrom_chk(int fd, void* buffer, size_t bytes, size_t room, int flags,
                                    sockaddr* address, socklen_t* length) {
    CRANE_CHECK(bytes <= room);
    return recvfrom(fd, buffer, bytes, flags, address, length);
}
CRANE_EXPORT ssize_t recvmsg(int fd, msghdr* message, int flags) {
    if (!active()) return resolve_real(), real.recvmsg(fd, message, flags);
    CRANE_TRANSFER(do_recvmsg(fd, message, flags));
}
CRANE_EXPORT ssize_t send(int fd, const void* buffer, size_t bytes, int flags) {
    if (!active()) return resolve_real(), real.send(fd, buffer, bytes, flags);
    CRANE_TRANSFER(do_sendto(fd, buffer, bytes, flags, nullptr, 0));
}
CRANE_EXPORT ssize_t sendto(int fd, const void* buffer, size_t bytes, int flags, const sockaddr* address,
                            socklen_t length) {
    if (!active()) return resolve_real(), real.sendto(fd, buffer, bytes, flags, address, length);
    CRANE_TRANSFER(do_sendto(fd, buffer, bytes, flags, address, length));
}
CRANE_EXPORT ssize_t sendmsg(int fd, const msghdr* message, int flags) {
    if (!active()) return resolve_real(), real.sendmsg(fd, message, flags);
    CRANE_TRANSFER(do_sendmsg(fd, message, flags));
}
CRANE_EXPORT int recvmmsg(int fd, mmsghdr* messages, unsigned count, int flags, timespec* timeout) {
    if (!active()) return resolve_real(), real.recvmmsg(fd, messages, count, flags, timeout);
    timespec limit{};
    if (timeout && !fetch(limit, timeout)) return static_cast<int>(as_libc(-EFAULT));
    if (timeout && !valid_timespec(&limit)) return static_cast<int>(as_libc(-EINVAL));
    if (count == 0) return static_cast<int>(as_libc(raw(SYS_recvmmsg, fd, messages, 0, flags, nullptr)));
    const uint64_t begin_ns = now_realtime_ns();
    unsigned done = 0;
    while (done < count) {
        const bool waits = done == 0 || !(flags & MSG_WAITFORONE);
        const ssize_t n =
            recvmsg(fd, &messages[done].msg_hdr, (flags & ~MSG_WAITFORONE) | (waits ? 0 : MSG_DONTWAIT));
        if (n < 0 || !store(&messages[done].msg_len, static_cast<unsigned>(n))) break;
        ++done;
        // As Linux has it: the time is looked at behind each message, and not while one is waited for.
        if (timeout && now_realtime_ns() - begin_ns >= to_ns(limit)) break;
    }
    if (done == 0) return -1;
    const uint64_t spent_ns = now_realtime_ns() - begin_ns;
    const uint64_t left_ns = to_ns(limit) > spent_ns ? to_ns(limit) - spent_ns : 0;
    if (timeout && !store(timeout, to_timespec(left_ns))) return static_cast<int>(as_libc(-EFAULT));
    return static_cast<int>(done);
}
CRANE_EXPORT int sendmmsg(int fd, mmsghdr* messages, unsigned count, int flags) {
    if (!active()) return resolve_real(), real.sendmmsg(fd, messages, count, flags);
    if (count == 0) return static_cast<int>(as_libc(raw(SYS_sendmmsg, fd, messages, 0, flags)));
    unsigned done = 0;
    for (; done < count; ++done) {
        const ssize_t n = sendmsg(fd, &messages[done].msg_hdr, flags);
        if (n < 0) break;
        messages[done].msg_len = static_cast<unsigned>(n);
    }
    return done > 0 ? static_cast<int>(done) : -1;
}

// --- from file to socket

CRANE_EXPORT ssize_t sendfile(int out, int in, off_t* offset, size_t bytes) noexcept {
    if (!active()) return resolve_real(), real.sendfile(out, in, offset, bytes);
    return as_libc(do_sendfile(out, in, offset, bytes));
}
CRANE_EXPORT ssize_t sendfile64(int out, int in, off64_t* offset, size_t bytes) noexcept {
    return sendfile(out, in, offset, bytes);
}
