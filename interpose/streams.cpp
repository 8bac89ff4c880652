#include "interpose/streams.hpp"

#include <climits>

#include "interpose/core/blocking.hpp"
#include "interpose/core/opaque.hpp"
#include "interpose/core/passed.hpp"
#include "interpose/core/terminals.hpp"
#include "interpose/core/user_memory.hpp"
#include "interpose/core/watched_files.hpp"
#include "interpose/pieces.hpp"

namespace crane::interpose {
namespace {

/// A pipe that is ready takes so much at once.
constexpr size_t kPipePieceBytes = PIPE_BUF;
constexpr int kNoWait = MSG_DONTWAIT | MSG_ERRQUEUE;

msghdr message_of(Piece& piece) {
    msghdr message{};
    message.msg_iov = piece.buffers;
    message.msg_iovlen = static_cast<size_t>(piece.count);
    return message;
}

/// Makes a call that does not wait until it has moved something, or waits no longer. Turn in hand.
/// `never_waits`: nor does the kernel in it, so it is made at once. A unix socket takes more than poll
/// promises.
template <typename Call>
long until_moved(Operation& turn, int fd, const FdEntry& entry, short events, bool dont_wait,
                 StreamWait& wait, Call call, bool never_waits = false) {
    bool tried = !never_waits;
    for (wait.in_vain = 0;;) {
        if (!dont_wait && tried) {
            if (const long error = wait_for_stream(turn, fd, entry, events, wait)) return error;
        } else {
            settle_opaque();
        }
        const long rc = uninterrupted(call);
        if (rc >= 0) stream_event(entry);
        if (rc != -EAGAIN) return rc;
        if (dont_wait || kernel_nonblocking(fd)) {
            turn.yield();
            return rc;
        }
        // A datagram's receiver has no room, and poll does not know for which one it is meant.
        if (tried) ++wait.in_vain;
        tried = true;
    }
}

template <typename Call>
long read_once(Op op, int fd, const FdEntry& entry, bool dont_wait, StreamWait& wait, Call call) {
    const FdEntry then = entry;
    Operation turn(op, descriptor_key(fd), entry_key(then));
    const long rc = until_moved(turn, fd, then, POLLIN, dont_wait, wait, call);
    settle_passed_if_any();  // a read drops the descriptors of the message that it reads
    return rc;
}

/// SOCK_STREAM and so on; 0: no socket.
int socket_type(int fd) {
    int type = 0;
    socklen_t length = sizeof(type);
    return raw(SYS_getsockopt, fd, SOL_SOCKET, SO_TYPE, &type, &length) == 0 ? type : 0;
}

/// Collects the rest of what MSG_WAITALL asks for, into what the first call left of the buffers; `control`,
/// when not null, has room for what comes with it, and is given that, behind which it ends.
long receive_rest(int fd, const FdEntry& entry, const iovec* vector, size_t count, int flags, long first,
                  StreamWait& wait, msghdr* control) {
    const size_t wanted = total_bytes(vector, count);
    auto done = static_cast<size_t>(first);
    if (!(flags & MSG_WAITALL) || flags & (MSG_PEEK | MSG_DONTWAIT) || done >= wanted) return first;
    if (kernel_nonblocking(fd) || socket_type(fd) != SOCK_STREAM) return first;
    while (done < wanted) {
        Piece piece(vector, count, done, wanted - done);
        msghdr message = message_of(piece);
        if (control) {
            message.msg_control = control->msg_control;
            message.msg_controllen = control->msg_controllen;
        }
        const long rc = read_once(Op::kReceive, fd, entry, false, wait,
                                  [&] { return receive_message(fd, &message, flags | MSG_DONTWAIT); });
        if (rc <= 0) break;
        done += static_cast<size_t>(rc);
        if (!control || message.msg_controllen == 0) continue;
        control->msg_controllen = message.msg_controllen;
        control->msg_flags = message.msg_flags;
        return static_cast<long>(done);
    }
    if (control) control->msg_controllen = 0;
    return static_cast<long>(done);
}

/// Turn in hand: the signal comes before the call returns.
void tell_of_broken(long rc, int flags) {
    if (rc == -EPIPE && !(flags & MSG_NOSIGNAL)) raise_sigpipe();
}

/// Writes a vector from byte `done` on to its end: `put` makes the call for a piece, and may take a part of
/// it.
template <typename Put>
long write_rest(Op op, int fd, const FdEntry& entry, const iovec* vector, size_t count, size_t done,
                size_t piece_bytes, Put put) {
    const FdEntry then = entry;
    Operation turn(op, descriptor_key(fd), entry_key(then));
    StreamWait wait;
    for (const size_t wanted = total_bytes(vector, count); done < wanted;) {
        Piece piece(vector, count, done, piece_bytes);
        const long rc = until_moved(
            turn, fd, then, POLLOUT, false, wait, [&] { return put(piece); }, op == Op::kSend);
        // A socket says nothing of it when it has taken something, a pipe does.
        if (done == 0 || op == Op::kWrite) tell_of_broken(rc, 0);
        if (rc < 0 && done == 0) return rc;
        if (rc <= 0) break;
        done += static_cast<size_t>(rc);
    }
    return static_cast<long>(done);
}

/// One call with everything, which may take a part of it.
template <typename Call>
long write_once(Op op, int fd, const FdEntry& entry, int flags, Call call) {
    const FdEntry then = entry;
    Operation turn(op, descriptor_key(fd), entry_key(then));
    StreamWait wait;
    const long rc = until_moved(turn, fd, then, POLLOUT, flags & MSG_DONTWAIT, wait, call, op == Op::kSend);
    tell_of_broken(rc, flags);
    return rc;
}

/// The rest of a message of which a byte stream took `first` bytes.
long send_rest(int fd, const FdEntry& entry, const iovec* vector, size_t count, int flags, long first) {
    const auto done = static_cast<size_t>(first);
    if (done >= total_bytes(vector, count) || flags & MSG_DONTWAIT || kernel_nonblocking(fd)) return first;
    return write_rest(Op::kSend, fd, entry, vector, count, done, SIZE_MAX, [&](Piece& piece) {
        const msghdr message = message_of(piece);
        return raw(SYS_sendmsg, fd, &message, flags | MSG_DONTWAIT | MSG_NOSIGNAL);
    });
}

/// A blocking write to a terminal waits in the kernel for who reads, even if there was some room.
long write_to_terminal(int fd, const FdEntry& entry, const iovec* vector, size_t count) {
    return write_rest(Op::kWrite, fd, entry, vector, count, 0, kPipePieceBytes, [&](Piece& piece) {
        const WithoutWaiting kernel(fd);
        return raw(SYS_writev, fd, piece.buffers, piece.count);
    });
}

enum class StreamFile { kPipe, kSocket, kNameless, kOther };

StreamFile file_of(int fd) {
    struct stat info;
    if (raw(SYS_fstat, fd, &info) != 0) return StreamFile::kOther;
    if (S_ISFIFO(info.st_mode)) return StreamFile::kPipe;
    if (S_ISSOCK(info.st_mode)) return StreamFile::kSocket;
    return (info.st_mode & S_IFMT) == 0 ? StreamFile::kNameless : StreamFile::kOther;
}

/// A read so short that the kernel may have an answer however long a longer one would wait: nothing, or that
/// an eventfd's number does not fit. -EAGAIN: it has none.
long read_at_once(int fd, const FdEntry& entry, const iovec* vector, int count) {
    const StreamFile file = file_of(fd);
    const bool nothing = total_bytes(vector, static_cast<size_t>(count)) == 0;
    const bool answers = file == StreamFile::kNameless ||
                         (nothing && (file == StreamFile::kPipe || file == StreamFile::kSocket));
    if (!answers || entry.flags & kFdWatches) return -EAGAIN;
    Operation turn(Op::kRead, descriptor_key(fd), entry_key(entry));
    const WithoutWaiting kernel(fd);
    return uninterrupted([&] {
        return count == 1 ? raw(SYS_read, fd, vector->iov_base, vector->iov_len)
                          : raw(SYS_readv, fd, vector, count);
    });
}

/// The same of writing: 0 bytes are no message to a stream.
bool is_nothing(int fd, const iovec* vector, size_t count) {
    if (total_bytes(vector, count) > 0) return false;
    const StreamFile file = file_of(fd);
    return file == StreamFile::kPipe || (file == StreamFile::kSocket && socket_type(fd) == SOCK_STREAM);
}

}  // namespace

long read_stream(int fd, const FdEntry& entry, const iovec* vector, int count) {
    StreamWait wait;
    const bool watches = entry.flags & kFdWatches;
    if (total_bytes(vector, static_cast<size_t>(count)) < sizeof(uint64_t)) {
        const long rc = read_at_once(fd, entry, vector, count);
        if (rc != -EAGAIN) return rc;
    }
    return read_once(Op::kRead, fd, entry, false, wait, [&] {
        if (count < 1 || (count > 1 && !watches)) return raw(SYS_readv, fd, vector, count);
        const iovec* into = vector;  // events are whole: what one buffer takes is enough
        while (into->iov_len == 0 && into + 1 < vector + count) ++into;
        const long rc = raw(SYS_read, fd, into->iov_base, into->iov_len);
        if (watches && rc > 0) show_cookies(static_cast<char*>(into->iov_base), static_cast<size_t>(rc));
        return rc;
    });
}

long write_stream(int fd, const FdEntry& entry, const iovec* vector, int count) {
    const auto length = static_cast<size_t>(count);
    // A counter with room for less than this number says that it has some.
    const bool counts = entry.flags & kFdCounter;
    const auto whole = [&] {
        const WithoutWaiting kernel(counts ? fd : -1);
        return count == 1 ? raw(SYS_write, fd, vector->iov_base, vector->iov_len)
                          : raw(SYS_writev, fd, vector, count);
    };
    const bool terminal = entry.flags & kFdTerminal;
    long rc = 0;
    if (is_nothing(fd, vector, length)) {
        Operation turn(Op::kWrite, descriptor_key(fd), entry_key(entry));
        rc = uninterrupted(whole);
        tell_of_broken(rc, 0);
    } else if (terminal && total_bytes(vector, length) > 0 && !kernel_nonblocking(fd)) {
        rc = write_to_terminal(fd, entry, vector, length);
    } else if (total_bytes(vector, length) <= kPipePieceBytes) {
        rc = write_once(Op::kWrite, fd, entry, 0, whole);
    } else if (socket_type(fd) != 0) {
        msghdr message{};
        message.msg_iov = const_cast<iovec*>(vector);
        message.msg_iovlen = length;
        return send_to_stream(fd, entry, &message, 0);
    } else if (kernel_nonblocking(fd)) {
        rc = write_once(Op::kWrite, fd, entry, MSG_DONTWAIT, whole);
    } else {
        rc = write_rest(Op::kWrite, fd, entry, vector, length, 0, kPipePieceBytes,
                        [&](Piece& piece) { return raw(SYS_writev, fd, piece.buffers, piece.count); });
    }
    if (terminal && rc > 0) note_typed(fd, vector, length, static_cast<size_t>(rc));
    return rc;
}

long receive_from_stream(int fd, const FdEntry& entry, void* buffer, size_t bytes, int flags,
                         sockaddr* address, socklen_t* length) {
    const FdEntry then = entry;
    StreamWait wait;
    const long first = read_once(Op::kReceive, fd, then, flags & kNoWait, wait, [&] {
        return raw(SYS_recvfrom, fd, buffer, bytes, flags | MSG_DONTWAIT, address, length);
    });
    const iovec one{buffer, bytes};
    return first > 0 ? receive_rest(fd, then, &one, 1, flags, first, wait, nullptr) : first;
}

long receive_from_stream(int fd, const FdEntry& entry, msghdr* message, int flags) {
    const FdEntry then = entry;
    msghdr given;
    if (!fetch(given, message)) return -EFAULT;
    StreamWait wait;
    const long first = read_once(Op::kReceive, fd, then, flags & kNoWait, wait,
                                 [&] { return receive_message(fd, message, flags | MSG_DONTWAIT); });
    if (first <= 0 || !(flags & MSG_WAITALL) || message->msg_controllen > 0) return first;
    const bool has_room = given.msg_control && given.msg_controllen > 0;
    if (has_room) message->msg_controllen = given.msg_controllen;
    return receive_rest(fd, then, given.msg_iov, given.msg_iovlen, flags, first, wait,
                        has_room ? message : nullptr);
}

long send_to_stream(int fd, const FdEntry& entry, const void* buffer, size_t bytes, int flags,
                    const sockaddr* address, socklen_t length) {
    const FdEntry then = entry;
    const long first = write_once(Op::kSend, fd, then, flags, [&] {
        return raw(SYS_sendto, fd, buffer, bytes, flags | MSG_DONTWAIT | MSG_NOSIGNAL, address, length);
    });
    const iovec one{const_cast<void*>(buffer), bytes};
    return first > 0 ? send_rest(fd, then, &one, 1, flags, first) : first;
}

long send_to_stream(int fd, const FdEntry& entry, const msghdr* message, int flags) {
    const FdEntry then = entry;
    msghdr given;
    if (!fetch(given, message)) return -EFAULT;
    const long first = write_once(Op::kSend, fd, then, flags, [&] {
        return send_message(fd, message, flags | MSG_DONTWAIT | MSG_NOSIGNAL);
    });
    return first > 0 ? send_rest(fd, then, given.msg_iov, given.msg_iovlen, flags, first) : first;
}

long send_file_to_stream(int fd, const FdEntry& entry, int file, off_t* offset, size_t bytes) {
    const FdEntry then = entry;
    Operation turn(Op::kWrite, descriptor_key(fd), entry_key(then));
    size_t done = 0;
    StreamWait wait;
    while (done < bytes) {
        const size_t left = bytes - done, piece = left < kPipePieceBytes ? left : kPipePieceBytes;
        const bool more = done > 0 && kernel_nonblocking(fd);
        const long rc = until_moved(turn, fd, then, POLLOUT, more, wait,
                                    [&] { return raw(SYS_sendfile, fd, file, offset, piece); });
        if (rc == -EPIPE && (done == 0 || socket_type(fd) == 0)) raise_sigpipe();
        if (rc < 0 && done == 0) return rc;
        if (rc <= 0) break;
        done += static_cast<size_t>(rc);
        if (static_cast<size_t>(rc) < piece) break;
    }
    return static_cast<long>(done);
}

}  // namespace crane::interpose
