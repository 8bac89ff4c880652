#include "proxy/native_backend.hpp"

#include <arpa/inet.h>
#include <errno.h>
#include <event2/buffer.h>
#include <event2/event.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

namespace crane::proxy {

using timebubble::CallKind;
using timebubble::OutputKind;

struct NativeBackend::Connection {
    NativeBackend& all;
    uint64_t id;
    int fd;
    event* read_event;
    event* write_event;
    evbuffer* input;  ///< from the client, for the server
    uint64_t consumed = 0;
    uint64_t sent = 0;
    uint64_t window_end = timebubble::kFirstWindowBytes;
    bool input_ended = false;
    bool output_ended = false;

    Connection(NativeBackend& owner, uint64_t connection, int socket)
        : all(owner),
          id(connection),
          fd(socket),
          read_event(event_new(owner.base_, fd, EV_READ | EV_PERSIST, &Connection::on_readable, this)),
          write_event(event_new(owner.base_, fd, EV_WRITE, &Connection::on_writable, this)),
          input(evbuffer_new()) {
        event_add(read_event, nullptr);
        event_add(write_event, nullptr);
    }
    ~Connection() {
        event_free(read_event);
        event_free(write_event);
        evbuffer_free(input);
        close(fd);
    }

    static void on_readable(int, short, void* self) { static_cast<Connection*>(self)->read_some(); }
    static void on_writable(int, short, void* self) { static_cast<Connection*>(self)->write_some(); }

    void read_some() {
        char bytes[64 * 1024];
        const uint64_t room = window_end - std::min(sent, window_end);
        if (room == 0) {
            event_del(read_event);  // until the window moves
            return;
        }
        const ssize_t got = recv(fd, bytes, std::min<uint64_t>(sizeof(bytes), room), 0);
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
        if (got < 0) {
            all.end(id, true);
        } else if (got == 0) {
            event_del(read_event);
            output_ended = true;
            if (input_ended) {
                all.end(id, false);
            } else {
                // Whether it has closed or only shut down is seen when the next byte is written to it.
                all.emit(OutputKind::kShutdown, 0, id, {});
                if (evbuffer_get_length(input) > 0) write_some();
            }
        } else {
            sent += static_cast<uint64_t>(got);
            all.emit(OutputKind::kSend, 0, id, {bytes, static_cast<size_t>(got)});
        }
    }

    void write_some() {
        const uint64_t before = consumed;
        while (evbuffer_get_length(input) > 0) {
            const int wrote = evbuffer_write(input, fd);
            if (wrote > 0) {
                consumed += static_cast<uint64_t>(wrote);
            } else if (errno == EAGAIN || errno == EINTR) {
                event_add(write_event, nullptr);
                break;
            } else {
                all.end(id, true);
                return;
            }
        }
        if (consumed != before) {
            all.emit(OutputKind::kConsumed, 0, id,
                     {reinterpret_cast<const char*>(&consumed), sizeof(consumed)});
        }
        if (evbuffer_get_length(input) == 0 && input_ended) {
            shutdown(fd, SHUT_WR);
            if (output_ended) all.end(id, false);
        }
    }
};

NativeBackend::NativeBackend(event_base* base, Output output) : base_(base), output_(std::move(output)) {}
NativeBackend::~NativeBackend() = default;

void NativeBackend::listen(const timebubble::ListenRecord& record) {
    const auto known = listeners_.find(record.port);
    // IPv4 where there is a choice: its listener is never of one family only.
    if (known != listeners_.end() && known->second.family == AF_INET) return;
    listeners_[record.port] = record;
}

/// A loopback connection, under way, to the real port behind one that the server asked for; -1 with errno.
int NativeBackend::connect_to(uint16_t listen_port) const {
    const auto known = listeners_.find(listen_port);
    timebubble::ListenRecord record{};
    record.family = AF_INET;
    record.port = listen_port;
    if (known != listeners_.end()) record = known->second;
    const uint16_t port = htons(record.actual_port ? record.actual_port : record.port);
    sockaddr_in four{};
    four.sin_family = AF_INET;
    four.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    four.sin_port = port;
    sockaddr_in6 six{};
    six.sin6_family = AF_INET6;
    six.sin6_addr = in6addr_loopback;
    six.sin6_port = port;
    const bool is_six = record.family == AF_INET6;
    const auto* to = is_six ? reinterpret_cast<sockaddr*>(&six) : reinterpret_cast<sockaddr*>(&four);
    const int fd = socket(is_six ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (connect(fd, to, is_six ? sizeof(six) : sizeof(four)) == 0 || errno == EINPROGRESS) return fd;
    close(fd);
    return -1;
}

void NativeBackend::emit(OutputKind kind, uint16_t flags, uint64_t connection, std::string_view payload) {
    output_({static_cast<uint32_t>(payload.size()), kind, flags, connection, ++clock_, 0}, payload);
}

void NativeBackend::end(uint64_t connection, bool reset) {
    emit(OutputKind::kClose, reset ? 1 : 0, connection, {});
    all_.erase(connection);
}

void NativeBackend::apply(uint64_t index, std::string_view batch) {
    timebubble::BatchDecoder decoder;
    if (!decoder.open(reinterpret_cast<const uint8_t*>(batch.data()), batch.size())) return;
    admitted_index_ = index;
    const timebubble::AdmittedRecord admitted{index, clock_};
    emit(OutputKind::kAdmitted, 0, 0, {reinterpret_cast<const char*>(&admitted), sizeof(admitted)});
    for (timebubble::Call one; decoder.next(one);) call(one);
}

void NativeBackend::call(const timebubble::Call& call) {
    if (call.kind == CallKind::kConnect) {
        timebubble::ConnectPayload addresses;
        if (call.payload.size() != sizeof(addresses)) return;
        memcpy(&addresses, call.payload.data(), sizeof(addresses));
        const int fd = connect_to(addresses.listen_port);
        if (fd < 0) {
            emit(OutputKind::kClose, 1, call.connection, {});
            return;
        }
        all_.emplace(call.connection, std::make_unique<Connection>(*this, call.connection, fd));
        emit(OutputKind::kAccept, 0, call.connection, {});
        return;
    }
    const auto found = all_.find(call.connection);
    if (found == all_.end()) return;
    Connection& connection = *found->second;
    if (call.kind == CallKind::kSend) {
        evbuffer_add(connection.input, call.payload.data(), call.payload.size());
        event_add(connection.write_event, nullptr);
    } else if (call.kind == CallKind::kShutdown) {
        connection.input_ended = true;
        event_add(connection.write_event, nullptr);
    } else if (call.kind == CallKind::kReset) {
        const linger abort{1, 0};
        setsockopt(connection.fd, SOL_SOCKET, SO_LINGER, &abort, sizeof(abort));
        end(call.connection, true);
    } else if (call.kind == CallKind::kWindow && call.payload.size() == sizeof(uint64_t)) {
        memcpy(&connection.window_end, call.payload.data(), sizeof(uint64_t));
        if (!connection.output_ended) event_add(connection.read_event, nullptr);
    }
}

}  // namespace crane::proxy
