// What goes through a connected socket.
#include <cstring>

#include "interpose/core/chunks.hpp"
#include "interpose/core/socket_table.hpp"
#include "interpose/core/user_memory.hpp"

namespace crane::interpose {

using timebubble::OutputKind;

namespace {

/// 0 if the socket can be written to now.
long check_writable(uint32_t index) {
    VirtualSocket& s = socket_at(index);
    if (s.state != SocketState::kConnected) return s.state == SocketState::kNew ? -EPIPE : -ENOTCONN;
    if (s.shut_write) return -EPIPE;
    if (s.reset) {
        if (s.rst_reported) return -EPIPE;
        s.rst_reported = 1;
        return -ECONNRESET;
    }
    if (s.connection) return s.sent < s.window_end ? 0 : -EAGAIN;
    if (s.other == kNone) return -EPIPE;
    return socket_at(s.other).unread < kPairBufferBytes ? 0 : -EAGAIN;
}

long send_to_pair(VirtualSocket& s, const iovec* vector, int count) {
    VirtualSocket& other = socket_at(s.other);
    size_t total = 0;
    for (int i = 0; i < count; ++i) {
        if (!readable(vector[i].iov_base, vector[i].iov_len)) return -EFAULT;
    }
    for (int i = 0; i < count; ++i) {
        if (!chunks_append(other, static_cast<const uint8_t*>(vector[i].iov_base), vector[i].iov_len)) {
            if (total == 0) return -ENOBUFS;
            break;
        }
        total += vector[i].iov_len;
    }
    if (total) notify(s.other, EPOLLIN);
    return static_cast<long>(total);
}

}  // namespace

long socket_receive(uint32_t index, const iovec* vector, int count, bool peek, bool discard) {
    VirtualSocket& s = socket_at(index);
    if (s.state != SocketState::kConnected) return -ENOTCONN;
    if (s.unread == 0) {
        if (s.reset) {
            if (s.rst_reported) return 0;
            s.rst_reported = 1;
            return -ECONNRESET;
        }
        if (s.fin_received || s.shut_read) return 0;
        size_t room = 0;
        for (int i = 0; i < count; ++i) room += vector[i].iov_len;
        return room == 0 ? 0 : -EAGAIN;
    }
    const long taken = chunks_read(s, vector, count, peek, discard);
    if (peek || taken < 0) return taken;
    s.consumed += static_cast<uint64_t>(taken);
    if (s.connection == 0) {
        if (s.other != kNone) notify(s.other, EPOLLOUT);
        return taken;
    }
    // The proxy bounds what is under way by this; small steps are not worth a record.
    constexpr uint64_t kReportStep = 64 * 1024;
    if (s.consumed - s.consumed_reported >= kReportStep) {
        s.consumed_reported = s.consumed;
        emit(OutputKind::kConsumed, s.connection, 0, &s.consumed, sizeof(s.consumed));
    }
    return taken;
}

long socket_send(uint32_t index, const iovec* vector, int count) {
    size_t left = 0;
    for (int i = 0; i < count; ++i) left += vector[i].iov_len;
    if (const long error = check_writable(index)) return error == -EAGAIN && left == 0 ? 0 : error;
    VirtualSocket& s = socket_at(index);
    if (s.connection == 0) return send_to_pair(s, vector, count);
    const size_t total = left;
    int at = 0;
    size_t offset = 0;
    bool bad = false;
    while (left > 0 && !bad) {
        const size_t piece = left < timebubble::kMaxOutputPayload ? left : timebubble::kMaxOutputPayload;
        uint8_t* place = reserve_output(piece);
        size_t filled = 0;
        while (filled < piece && !bad) {
            const size_t here = vector[at].iov_len - offset;
            const size_t n = here < piece - filled ? here : piece - filled;
            bad = n &&
                  crane_copy(place + filled, static_cast<const char*>(vector[at].iov_base) + offset, n) != 0;
            filled += n;
            offset += n;
            if (offset == vector[at].iov_len) {
                ++at;
                offset = 0;
            }
        }
        if (bad) break;  // a piece goes out whole or not at all, as the kernel has it
        emit_reserved(OutputKind::kSend, s.connection, 0, piece);
        left -= piece;
    }
    s.sent += total - left;
    return bad && left == total ? -EFAULT : static_cast<long>(total - left);
}

long socket_send_file(uint32_t index, int file, off_t* offset, size_t bytes) {
    VirtualSocket& s = socket_at(index);
    size_t sent = 0;
    while (sent < bytes) {
        if (const long error = check_writable(index)) return sent ? static_cast<long>(sent) : error;
        uint8_t small[16384];
        const bool pair = s.connection == 0;
        size_t piece = bytes - sent;
        const size_t limit = pair ? sizeof(small) : timebubble::kMaxOutputPayload;
        if (piece > limit) piece = limit;
        uint8_t* place = pair ? small : reserve_output(piece);
        const long got =
            offset ? raw(SYS_pread64, file, place, piece, *offset) : raw(SYS_read, file, place, piece);
        if (got < 0) return sent ? static_cast<long>(sent) : got;
        if (got == 0) break;
        if (offset) *offset += got;
        if (pair) {
            iovec one{place, static_cast<size_t>(got)};
            const long done = send_to_pair(s, &one, 1);
            if (done < 0) return done;
        } else {
            emit_reserved(OutputKind::kSend, s.connection, 0, static_cast<size_t>(got));
            s.sent += static_cast<size_t>(got);
        }
        sent += static_cast<size_t>(got);
    }
    return static_cast<long>(sent);
}

int socket_shutdown(uint32_t index, int how) {
    VirtualSocket& s = socket_at(index);
    if (s.state == SocketState::kListening) {
        // As Linux has it: the listener stops listening, and threads in accept return.
        close_listener(index);
        s.state = SocketState::kNew;
        notify(index, EPOLLIN | EPOLLHUP);
        return 0;
    }
    if (s.state != SocketState::kConnected || s.reset) return -ENOTCONN;
    if (how == SHUT_RD || how == SHUT_RDWR) s.shut_read = 1;
    if ((how == SHUT_WR || how == SHUT_RDWR) && !s.shut_write) {
        s.shut_write = 1;
        if (s.connection) {
            emit(OutputKind::kShutdown, s.connection, 0, nullptr, 0);
        } else if (s.other != kNone) {
            socket_at(s.other).fin_received = 1;
            notify(s.other, EPOLLIN | EPOLLRDHUP);
        }
    }
    notify(index, EPOLLIN | EPOLLOUT | (s.shut_read ? uint32_t{EPOLLRDHUP} : 0));
    return 0;
}

}  // namespace crane::interpose
