// splice, tee, vmsplice. Nothing is taken out of one end before the other has room for it: what was taken
// would be lost with an error.
#include "interpose/core/blocking.hpp"
#include "interpose/core/opaque.hpp"
#include "interpose/core/threads.hpp"
#include "interpose/core/user_memory.hpp"
#include "interpose/streams.hpp"

namespace crane::interpose {
namespace {

/// A pipe that is ready takes, or gives, this much at once.
constexpr size_t kPieceBytes = PIPE_BUF;
constexpr size_t kMostBytes = 16 * kPieceBytes;

bool is_virtual(const FdEntry* entry) {
    return entry && entry->kind == FdKind::kSocket;
}

bool is_pipe(int fd) {
    struct stat info;
    return raw(SYS_fstat, fd, &info) == 0 && S_ISFIFO(info.st_mode);
}

bool is_socket(int fd) {
    struct stat info;
    return raw(SYS_fstat, fd, &info) == 0 && S_ISSOCK(info.st_mode);
}

bool ready(int fd, short events) {
    pollfd probe{fd, events, 0};
    return probe_streams(&probe, 1, 0) > 0;
}

/// Waits for the pipe unless the call is not to block; 0 when it is ready.
long wait_for_pipe(Operation& turn, int fd, short events, bool dont_wait) {
    if (!dont_wait) {
        if (const long error = wait_for_stream(turn, fd, *fd_entry(fd), events)) return error;
    }
    return ready(fd, events) ? 0 : -EAGAIN;
}

uint64_t deadline_after(uint64_t timeout_ns) {
    return timeout_ns ? deadline_from_relative_ns(timeout_ns) : dmt::kNoDeadline;
}

long from_socket(Operation& turn, uint32_t socket, int pipe, size_t bytes, bool dont_wait) {
    SocketHold hold;
    const VirtualSocket& s = domain().sockets[socket];
    const uint64_t deadline = deadline_after(s.receive_timeout_ns);
    char piece[kPieceBytes];
    long done = 0;
    while (static_cast<size_t>(done) < bytes) {
        hold.take(socket);
        // First, since another thread may read from the socket while this one waits for room.
        if (const long error = wait_for_pipe(turn, pipe, POLLOUT, dont_wait || done > 0))
            return done > 0 ? done : error;
        const size_t left = bytes - static_cast<size_t>(done);
        iovec one{piece, left < sizeof(piece) ? left : sizeof(piece)};
        const long got = socket_receive(socket, &one, 1, true);
        if (got == -EAGAIN && done == 0 && !s.nonblocking) {
            if (const long error = wait_on_socket(turn, hold, socket, socket_key(socket), deadline))
                return error;
            continue;
        }
        if (got <= 0) return done > 0 ? done : got;
        const long put = uninterrupted([&] { return raw(SYS_write, pipe, piece, got); });
        if (put == -EPIPE && done == 0) raise_sigpipe();
        if (put <= 0) return done > 0 ? done : put;
        one.iov_len = static_cast<size_t>(put);
        socket_receive(socket, &one, 1, false, true);
        stream_event(*fd_entry(pipe));
        done += put;
    }
    return done;
}

long to_socket(Operation& turn, int pipe, uint32_t socket, size_t bytes, bool dont_wait) {
    SocketHold hold;
    const VirtualSocket& s = domain().sockets[socket];
    const uint64_t deadline = deadline_after(s.send_timeout_ns);
    for (;;) {
        hold.take(socket);
        if (const long error = wait_for_pipe(turn, pipe, POLLIN, dont_wait)) return error;
        iovec one{nullptr, 0};
        if (const long error = socket_send(socket, &one, 1)) {
            if (error == -EPIPE) raise_sigpipe();
            return error;
        }
        if (socket_room(socket) > 0) break;
        if (s.nonblocking) return -EAGAIN;
        if (const long error = wait_on_socket(turn, hold, socket, socket_write_key(socket), deadline))
            return error;
    }
    char piece[kPieceBytes];
    const uint64_t room = socket_room(socket);
    size_t most = bytes < sizeof(piece) ? bytes : sizeof(piece);
    if (most > room) most = room;
    const long got = uninterrupted([&] { return raw(SYS_read, pipe, piece, most); });
    if (got <= 0) return got;
    stream_event(*fd_entry(pipe));
    const iovec one{piece, static_cast<size_t>(got)};
    return socket_send(socket, &one, 1);
}

/// One of two descriptors of the kernel between which something is moved.
struct Side {
    int fd;
    short events;
    bool socket = false;
    bool waits = false;
    StreamWait wait{};

    Side(int descriptor, short wanted, bool dont_wait) : fd(descriptor), events(wanted) {
        const FdEntry* const entry = fd < 0 ? nullptr : fd_entry(fd);
        if (!entry || entry->kind != FdKind::kStream || kernel_nonblocking(fd)) return;
        socket = is_socket(fd);
        // Who says that the pipe is not to be waited for says nothing of a socket that is to be written to.
        waits = !dont_wait || (socket && events == POLLOUT);
    }
    bool lacks() const { return fd >= 0 && !ready(fd, events); }
};

/// Between descriptors of the kernel: makes the call, which does not wait, and waits for both in the schedule
/// where it would have to. First the call: what it cannot be made on is said without a wait, and a unix
/// socket takes more than poll promises.
template <typename Call>
long between_streams(int in, int out, bool dont_wait, Call call) {
    Side from(in, POLLIN, dont_wait), to(out, POLLOUT, dont_wait);
    Operation turn(Op::kWrite, descriptor_key(in), descriptor_key(out));
    for (bool tried = false;; tried = true) {
        if (!tried) settle_opaque();
        for (Side* const side : {&from, &to}) {
            if (!tried || !side->waits) continue;
            if (const long error =
                    wait_for_stream(turn, side->fd, *fd_entry(side->fd), side->events, side->wait))
                return error;
        }
        long rc = 0;
        {
            const WithoutWaiting kernel(to.socket ? out : -1);
            rc = uninterrupted(call);
        }
        if (rc > 0) all_streams_event();
        if (rc == -EPIPE) raise_sigpipe();
        if (rc != -EAGAIN) return rc;
        Side* const lacking = from.lacks() ? &from : to.lacks() ? &to : nullptr;
        if (!(lacking ? lacking->waits : from.waits || to.waits)) return turn.yield(), rc;
        // Ready and yet not to be had: something has to happen first.
        if (!lacking) ++(to.waits ? to : from).wait.in_vain;
    }
}

long do_splice(int in, off64_t* in_at, int out, off64_t* out_at, size_t bytes, unsigned flags) {
    const FdEntry* from = fd_entry(in);
    const FdEntry* to = fd_entry(out);
    const bool dont_wait = flags & SPLICE_F_NONBLOCK;
    if (!is_virtual(from) && !is_virtual(to)) {
        if (!is_pipe(in) && !is_pipe(out)) return raw(SYS_splice, in, in_at, out, out_at, bytes, flags);
        return between_streams(in, out, dont_wait, [&] {
            return raw(SYS_splice, in, in_at, out, out_at, bytes, flags | SPLICE_F_NONBLOCK);
        });
    }
    if (!is_pipe(is_virtual(from) ? out : in)) return -EINVAL;
    if (in_at || out_at) return -ESPIPE;
    if (bytes == 0) return 0;
    const uint32_t source = is_virtual(from) ? from->object : kNone,
                   sink = is_virtual(to) ? to->object : kNone;
    Operation turn(Op::kWrite, descriptor_key(in), descriptor_key(out));
    const long rc = source != kNone
                        ? from_socket(turn, source, out, bytes < kMostBytes ? bytes : kMostBytes, dont_wait)
                        : to_socket(turn, in, sink, bytes, dont_wait);
    if (rc == -EAGAIN) turn.yield();
    return rc;
}

}  // namespace

long splice_stream(int in, int pipe, size_t bytes) {
    return do_splice(in, nullptr, pipe, nullptr, bytes, 0);
}

}  // namespace crane::interpose

using namespace crane::interpose;

CRANE_EXPORT ssize_t splice(int in, off64_t* in_at, int out, off64_t* out_at, size_t bytes, unsigned flags) {
    if (!active()) return resolve_real(), real.splice(in, in_at, out, out_at, bytes, flags);
    return as_libc(at_cancellation_point([&] { return do_splice(in, in_at, out, out_at, bytes, flags); }));
}

CRANE_EXPORT ssize_t tee(int in, int out, size_t bytes, unsigned flags) {
    if (!active()) return resolve_real(), real.tee(in, out, bytes, flags);
    return as_libc(at_cancellation_point([&] {
        return between_streams(in, out, flags & SPLICE_F_NONBLOCK,
                               [&] { return raw(SYS_tee, in, out, bytes, flags | SPLICE_F_NONBLOCK); });
    }));
}

CRANE_EXPORT ssize_t vmsplice(int fd, const iovec* vector, size_t count, unsigned flags) {
    if (!active()) return resolve_real(), real.vmsplice(fd, vector, count, flags);
    const long mode = raw(SYS_fcntl, fd, F_GETFL);
    const bool reads = mode >= 0 && (mode & O_ACCMODE) == O_RDONLY;
    return as_libc(at_cancellation_point([&] {
        return between_streams(reads ? fd : -1, reads ? -1 : fd, flags & SPLICE_F_NONBLOCK, [&] {
            return raw(SYS_vmsplice, fd, vector, count, flags | SPLICE_F_NONBLOCK);
        });
    }));
}
