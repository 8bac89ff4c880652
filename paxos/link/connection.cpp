#include "paxos/link/connection.hpp"

#include <event2/event.h>
#include <event2/util.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/check.hpp"

namespace crane::paxos {
namespace {

constexpr size_t kReadBytes = 64u << 10;           // per system call
constexpr size_t kMaxReadBytesPerTurn = 1u << 20;  // then others get their turn
constexpr int kMaxPieces = 16;                     // per writev
// In the socket and not sent yet: what is urgent waits for these bytes, and for one frame.
constexpr int kMaxUnsentBytes = 128 << 10;
constexpr int kUserTimeoutMs = 5000, kKeepaliveIdleSeconds = 5, kKeepaliveIntervalSeconds = 2,
              kKeepaliveCount = 3;

class PlainStream : public Stream {
  public:
    explicit PlainStream(int fd) : fd_(fd) {
        evutil_make_socket_nonblocking(fd);
        evutil_make_socket_closeonexec(fd);
        const int on = 1;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &kMaxUnsentBytes, sizeof kMaxUnsentBytes);
        setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
        setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &kUserTimeoutMs, sizeof kUserTimeoutMs);
        setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &kKeepaliveIdleSeconds, sizeof kKeepaliveIdleSeconds);
        setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &kKeepaliveIntervalSeconds,
                   sizeof kKeepaliveIntervalSeconds);
        setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &kKeepaliveCount, sizeof kKeepaliveCount);
    }
    ~PlainStream() override { ::close(fd_); }
    ssize_t read(void* buffer, size_t size) override { return recv(fd_, buffer, size, MSG_DONTWAIT); }
    ssize_t write(const iovec* pieces, int count) override {
        msghdr message{};
        message.msg_iov = const_cast<iovec*>(pieces);
        message.msg_iovlen = static_cast<size_t>(count);
        return sendmsg(fd_, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    int fd() const override { return fd_; }

  private:
    const int fd_;
};

}  // namespace

std::string Stream::describe(int error) const {
    return std::strerror(error);
}

std::unique_ptr<Stream> make_plain_stream(int fd) {
    return std::make_unique<PlainStream>(fd);
}

Connection::Connection(event_base* base, std::unique_ptr<Stream> stream, bool connecting, Handlers handlers)
    : stream_(std::move(stream)), connecting_(connecting), handlers_(std::move(handlers)) {
    readable_ = event_new(base, stream_->fd(), EV_READ | EV_PERSIST, on_readable, this);
    writable_ = event_new(base, stream_->fd(), EV_WRITE | EV_PERSIST, on_writable, this);
    CRANE_CHECK(readable_ != nullptr && writable_ != nullptr);
    if (connecting_)
        event_add(writable_, nullptr);
    else
        event_add(readable_, nullptr);
    waiting_to_write_ = connecting_;
}

Connection::~Connection() {
    event_free(readable_);
    event_free(writable_);
}

void Connection::close() {
    if (closed_) return;
    closed_ = true;
    event_del(readable_);
    event_del(writable_);
    if (!connecting_) stream_->finish();
    shutdown(stream_->fd(), SHUT_RDWR);
}

void Connection::fail(const std::string& reason) {
    if (closed_) return;
    close();
    if (handlers_.on_closed) handlers_.on_closed(reason);
}

void Connection::on_readable(int, short, void* self) {
    static_cast<Connection*>(self)->read_some();
}

void Connection::on_writable(int, short, void* self) {
    auto* connection = static_cast<Connection*>(self);
    if (connection->connecting_) {
        int error = 0;
        socklen_t size = sizeof error;
        getsockopt(connection->stream_->fd(), SOL_SOCKET, SO_ERROR, &error, &size);
        if (error != 0) {
            connection->connect_error_ = error;
            connection->fail(std::strerror(error));
            return;
        }
        connection->connecting_ = false;
        event_add(connection->readable_, nullptr);
    }
    if (connection->prepare()) connection->flush();
}

bool Connection::prepare() {
    if (ready_) return true;
    if (!stream_->handshake()) {
        const int error = errno;
        if (error == EAGAIN || error == EINTR)
            wait_to_write(stream_->has_unsent());
        else
            fail(stream_->describe(error));
        return false;
    }
    ready_ = true;
    if (stream_->has_unread()) event_active(readable_, EV_READ, 0);
    if (handlers_.on_ready) handlers_.on_ready();
    if (!closed_) flush();
    return !closed_;
}

void Connection::read_some() {
    if (!prepare()) return;
    size_t total = 0;
    while (!closed_ && total < kMaxReadBytesPerTurn) {
        const size_t got = read_once();
        total += got;
        if (got < kReadBytes) break;  // most likely drained; readiness is level-triggered
    }
    if (closed_) return;
    if (stream_->has_unread()) event_active(readable_, EV_READ, 0);
    if (stream_->has_unsent()) flush();
}

size_t Connection::read_once() {
    const size_t before = input_.size();
    input_.resize(before + kReadBytes);
    const ssize_t got = stream_->read(input_.data() + before, kReadBytes);
    const int error = errno;
    input_.resize(before + static_cast<size_t>(std::max<ssize_t>(got, 0)));
    if (got == 0) fail("closed by the other side");
    if (got < 0 && error != EAGAIN && error != EINTR) fail(stream_->describe(error));
    if (got <= 0) return 0;
    bytes_received += static_cast<size_t>(got);
    parse_input();
    return static_cast<size_t>(got);
}

void Connection::parse_input() {
    while (!closed_) {
        FrameType type;
        std::string_view payload;
        size_t size = 0;
        const std::string_view rest = std::string_view(input_).substr(input_start_);
        const FrameStatus status = parse_frame(rest, max_payload_bytes_, type, payload, size);
        if (status == FrameStatus::kIncomplete) break;
        if (status == FrameStatus::kBad || !handlers_.on_frame(type, payload)) {
            fail("malformed data");
            return;
        }
        input_start_ += size;
    }
    if (input_start_ == input_.size()) {
        input_.clear();
        input_start_ = 0;
        if (input_.capacity() > (4u << 20)) input_.shrink_to_fit();
    } else if (input_start_ >= (1u << 20)) {
        input_.erase(0, input_start_);
        input_start_ = 0;
    }
}

void Connection::queue(std::string frame, bool urgent, bool overtakes_all) {
    (urgent ? urgent_bytes_ : bulk_bytes_) += frame.size();
    (overtakes_all && urgent ? first_ : urgent ? urgent_ : bulk_).push_back(std::move(frame));
}

void Connection::flush() {
    while (!closed_ && ready_) {
        iovec pieces[kMaxPieces];
        int count = 0;
        if (!current_.empty())
            pieces[count++] = {current_.data() + current_done_, current_.size() - current_done_};
        for (auto* queue : {&first_, &urgent_, &bulk_})
            for (auto it = queue->begin(); it != queue->end() && count < kMaxPieces; ++it)
                pieces[count++] = {it->data(), it->size()};
        if (count == 0 && !stream_->has_unsent()) break;
        const ssize_t sent = stream_->write(pieces, count);
        if (sent < 0) {
            if (errno == EINTR) continue;
            if (errno == EAGAIN) {
                wait_to_write(true);
                return;
            }
            fail(stream_->describe(errno));
            return;
        }
        bytes_sent += static_cast<size_t>(sent);
        consume_output(static_cast<size_t>(sent));
    }
    if (ready_ && !closed_) wait_to_write(false);
}

void Connection::wait_to_write(bool wanted) {
    if (wanted == waiting_to_write_) return;
    waiting_to_write_ = wanted;
    if (wanted)
        event_add(writable_, nullptr);
    else
        event_del(writable_);
}

void Connection::consume_output(size_t bytes) {
    if (!current_.empty()) {
        const size_t part = std::min(bytes, current_.size() - current_done_);
        current_done_ += part;
        bytes -= part;
        if (current_done_ < current_.size()) return;
        current_.clear();
        current_done_ = 0;
    }
    for (auto* queue : {&first_, &urgent_, &bulk_}) {
        size_t& queued = queue == &bulk_ ? bulk_bytes_ : urgent_bytes_;
        while (bytes > 0 && !queue->empty()) {
            queued -= queue->front().size();
            std::string frame = std::move(queue->front());
            queue->pop_front();
            if (bytes < frame.size()) {
                current_ = std::move(frame);
                current_done_ = bytes;
                return;
            }
            bytes -= frame.size();
        }
    }
    CRANE_CHECK(bytes == 0);
}

}  // namespace crane::paxos
