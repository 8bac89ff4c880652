// What goes through a connected socket.
#include <cstring>

#include "interpose/core/datagrams.hpp"
#include "interpose/core/egress.hpp"
#include "interpose/core/socket_table.hpp"
#include "interpose/core/user_memory.hpp"

namespace crane::interpose {

using timebubble::OutputKind;

namespace {

/// 0 if the socket can be written to now.
long check_writable(uint32_t index) {
    VirtualSocket& s = socket_at(index);
    if (s.state == SocketState::kConnecting) return -EAGAIN;
    if (const int error = egress_take_error(index)) return -error;
    if (s.state != SocketState::kConnected) return s.state == SocketState::kNew ? -EPIPE : -ENOTCONN;
    if (s.shut_write) return -EPIPE;
    if (s.reset) {
        const int error = take_reset_error(s);
        return error != 0 ? -error : -EPIPE;
    }
    if (s.connection) return s.sent < s.window_end ? 0 : -EAGAIN;
    return pair_room(s) > 0 ? 0 : -EAGAIN;
}

/// The pieces of a vector behind its first bytes, one after the other.
class Pieces {
  public:
    Pieces(const iovec* vector, int count, size_t skip) : vector_(vector), count_(count), offset_(skip) {
        for (int i = 0; i < count; ++i) left_ += vector[i].iov_len;
        left_ -= skip;
    }
    size_t left() const { return left_; }
    /// The next bytes that lie together, at most `most`.
    iovec next(size_t most) {
        while (at_ < count_ && offset_ >= vector_[at_].iov_len) offset_ -= vector_[at_++].iov_len;
        const size_t here = vector_[at_].iov_len - offset_;
        const iovec piece{static_cast<char*>(vector_[at_].iov_base) + offset_, here < most ? here : most};
        offset_ += piece.iov_len;
        left_ -= piece.iov_len;
        return piece;
    }

  private:
    const iovec* vector_;
    int count_, at_ = 0;
    size_t offset_, left_ = 0;
};

/// Nobody reads there any more, and the kernel says so to what is sent.
bool takes_nothing(const VirtualSocket& s) {
    return s.other == kNone || (socket_at(s.other).shut_read && socket_at(s.other).shut_write);
}

/// What was sent is lost, which only the next call is told; so is the other end, if it is there.
void reset_by_sending(uint32_t index) {
    constexpr uint32_t kAll = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLHUP | EPOLLERR;
    VirtualSocket& s = socket_at(index);
    s.reset = s.rst_reported = 1;
    s.connect_error = EPIPE;
    notify(index, kAll);
    if (s.other == kNone) return;
    socket_at(s.other).reset = 1;
    notify(s.other, kAll);
}

/// Of the next `most` bytes those before the first that cannot be read: a large message is looked at as it
/// goes out, a segment at a time, of which all is lost.
size_t count_readable(Pieces pieces, size_t most) {
    constexpr size_t kSegmentBytes = 65482;
    size_t good = 0;
    while (good < most) {
        const iovec piece = pieces.next(most - good);
        if (!readable(piece.iov_base, piece.iov_len)) break;
        good += piece.iov_len;
    }
    return good < most ? good - good % kSegmentBytes : good;
}

/// `total`: as much as there is room for.
long send_to_pair(uint32_t index, Pieces pieces, size_t total) {
    VirtualSocket& s = socket_at(index);
    if (takes_nothing(s)) {
        reset_by_sending(index);
        return static_cast<long>(total);
    }
    VirtualSocket& other = socket_at(s.other);
    for (size_t left = total; left > 0;) {
        const iovec piece = pieces.next(left);
        const bool fits = chunks_append(domain().input_pool, other.input,
                                        static_cast<const uint8_t*>(piece.iov_base), piece.iov_len);
        CRANE_CHECK(fits);
        left -= piece.iov_len;
    }
    if (total) notify(s.other, EPOLLIN);
    return static_cast<long>(total);
}

}  // namespace

int take_reset_error(VirtualSocket& s) {
    if (!s.reset || s.rst_reported) return 0;
    s.rst_reported = 1;
    return s.fin_received && !s.shut_write ? EPIPE : ECONNRESET;
}

uint64_t pair_room(const VirtualSocket& s) {
    if (takes_nothing(s)) return kPairBufferBytes;
    const InputQueue& input = socket_at(s.other).input;
    if (input.unread() >= kPairBufferBytes) return 0;
    const uint64_t below = kPairBufferBytes - input.unread();
    const uint64_t room = chunks_room(domain().input_pool, input);
    return below < room ? below : room;
}

void report_consumed(VirtualSocket& s) {
    const InputQueue& input = s.input;
    if (!timebubble::consumption_is_news(s.consumed_reported, input.consumed, input.received)) return;
    s.consumed_reported = input.consumed;
    // A drained socket's server answers or waits next, and either wakes craned.
    const bool drained = input.unread() == 0;
    emit(OutputKind::kConsumed, s.connection, 0, &input.consumed, sizeof(input.consumed), !drained);
}

namespace {

/// How many of the vector's pieces, the first ones, can take what is there to be read.
int count_good(const VirtualSocket& s, const iovec* vector, int count) {
    size_t left = s.input.unread();
    for (int i = 0; i < count; ++i) {
        const size_t here = vector[i].iov_len < left ? vector[i].iov_len : left;
        if (!writable(vector[i].iov_base, here)) return i;
        left -= here;
    }
    return count;
}

size_t total_of(const iovec* vector, int count) {
    size_t total = 0;
    for (int i = 0; i < count; ++i) total += vector[i].iov_len;
    return total;
}

}  // namespace

long socket_receive(uint32_t index, const iovec* vector, int count, bool peek, bool discard) {
    VirtualSocket& s = socket_at(index);
    if (s.state == SocketState::kConnecting) return -EAGAIN;
    if (s.state != SocketState::kConnected) {
        const int error = egress_take_error(index);
        return error ? -error : -ENOTCONN;
    }
    if (s.input.unread() == 0) {
        if (s.fin_received) return 0;  // whatever came behind it
        if (s.reset) return -take_reset_error(s);
        if (s.shut_read) return 0;
        size_t room = 0;
        for (int i = 0; i < count; ++i) room += vector[i].iov_len;
        return room == 0 ? 0 : -EAGAIN;
    }
    size_t taken;
    if (discard) {
        const size_t wanted = total_of(vector, count), there = s.input.unread();
        taken = wanted < there ? wanted : there;
        if (!peek) chunks_skip(domain().input_pool, s.input, taken);
    } else {
        const int good = count_good(s, vector, count);
        if (good == 0 && count > 0) return -EFAULT;
        taken = chunks_read(domain().input_pool, s.input, vector, good, peek);
    }
    if (peek) return static_cast<long>(taken);
    if (s.connection) {
        if (!s.reset) report_consumed(s);  // nobody sends more
    } else if (s.other != kNone) {
        notify(s.other, EPOLLOUT);
    }
    return static_cast<long>(taken);
}

uint64_t socket_room(uint32_t index) {
    const VirtualSocket& s = socket_at(index);
    if (s.connection) return s.window_end > s.sent ? s.window_end - s.sent : 0;
    return pair_room(s);
}

long socket_send(uint32_t index, const iovec* vector, int count, size_t skip) {
    const bool nothing = total_of(vector, count) <= skip;
    if (const long error = check_writable(index)) return error == -EAGAIN && nothing ? 0 : error;
    if (nothing) return 0;
    VirtualSocket& s = socket_at(index);
    Pieces pieces(vector, count, skip);
    const uint64_t room = socket_room(index);
    const size_t total = count_readable(pieces, pieces.left() < room ? pieces.left() : room);
    if (total == 0) return -EFAULT;
    if (s.connection == 0) return send_to_pair(index, pieces, total);
    for (size_t left = total; left > 0;) {
        const size_t bytes = left < timebubble::kMaxOutputPayload ? left : timebubble::kMaxOutputPayload;
        uint8_t* place = reserve_output(bytes);
        for (size_t filled = 0; filled < bytes;) {
            const iovec piece = pieces.next(bytes - filled);
            std::memcpy(place + filled, piece.iov_base, piece.iov_len);
            filled += piece.iov_len;
        }
        emit_reserved(OutputKind::kSend, s.connection, 0, bytes);
        left -= bytes;
    }
    s.sent += total;
    return static_cast<long>(total);
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
        const uint64_t room = pair ? pair_room(s) : s.window_end - s.sent;
        if (piece > room) piece = room;
        uint8_t* place = pair ? small : reserve_output(piece);
        const long got =
            offset ? raw(SYS_pread64, file, place, piece, *offset) : raw(SYS_read, file, place, piece);
        if (got < 0) return sent ? static_cast<long>(sent) : got;
        if (got == 0) break;
        if (offset) *offset += got;
        if (pair) {
            iovec one{place, static_cast<size_t>(got)};
            const long done = send_to_pair(index, Pieces(&one, 1, 0), one.iov_len);
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
        if (how == SHUT_WR) return 0;
        // As Linux has it: the listener stops listening, and threads in accept return.
        close_listener(index);
        s.state = SocketState::kNew;
        notify(index, EPOLLIN | EPOLLHUP);
        return 0;
    }
    if (s.state == SocketState::kDatagram) return datagram_shutdown(index, how);
    if (s.state == SocketState::kConnecting) return egress_give_up(index), 0;
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
