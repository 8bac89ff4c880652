#include "interpose/core/sockets.hpp"

#include <netinet/in.h>

#include <cstring>

#include "interpose/core/chunks.hpp"
#include "interpose/core/epolls.hpp"
#include "timebubble/batch.hpp"

namespace crane::interpose {

using timebubble::CallKind;
using timebubble::OutputKind;

namespace {

VirtualSocket& socket_at(uint32_t index) {
    return domain().sockets[index];
}

uint32_t take_slot() {
    DomainState& d = domain();
    // Free sockets are chained through queue_next, plus one so that zero is the end.
    if (d.socket_free) {
        const uint32_t index = d.socket_free - 1;
        d.socket_free = d.sockets[index].queue_next;
        return index;
    }
    return d.socket_high < kMaxSockets ? d.socket_high++ : kNone;
}

uint32_t& connection_bucket(uint64_t connection) {
    const uint64_t h = connection * 0x9e37'79b9'7f4a'7c15ULL;
    return domain().connections[(h >> 40) % kConnectionBuckets];
}

uint32_t find_connection(uint64_t connection) {
    uint32_t at = connection_bucket(connection);
    while (at != 0 && socket_at(at - 1).connection != connection) at = socket_at(at - 1).hash_next;
    return at == 0 ? kNone : at - 1;
}

void unhash(uint32_t index) {
    VirtualSocket& s = socket_at(index);
    if (s.connection == 0) return;
    uint32_t* link = &connection_bucket(s.connection);
    while (*link != 0 && *link != index + 1) link = &socket_at(*link - 1).hash_next;
    if (*link) *link = s.hash_next;
}

/// Input or its end has come, or the window has opened: whoever waits looks again.
void notify(uint32_t index, uint32_t events) {
    VirtualSocket& s = socket_at(index);
    if (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) {
        const bool listening = s.state == SocketState::kListening;
        scheduler().signal(socket_key(index), listening ? 1 : ~uint32_t{0});
    }
    if (events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) scheduler().signal(socket_write_key(index), ~uint32_t{0});
    scheduler().signal_set(set_bit(KeyKind::kSocket, index));
    notify_watchers(index, events);
}

void free_socket(uint32_t index) {
    VirtualSocket& s = socket_at(index);
    unhash(index);
    drop_watches(index);
    chunks_drop(s);
    const uint32_t generation = s.generation;
    s = {};
    s.generation = generation + 1;
    s.queue_next = domain().socket_free;
    domain().socket_free = index + 1;
}

/// How well a listener suits a client of that family: 2 its own, 1 a dual-stack one, 0 not at all.
int suits(const VirtualSocket& listener, uint16_t family, uint16_t port) {
    if (listener.local.port != port) return 0;
    if (listener.local.family == family) return 2;
    return listener.local.family == AF_INET6 && !listener.v6_only ? 1 : 0;
}

/// The listener for a port; among several that suit equally (SO_REUSEPORT) they take turns.
uint32_t find_listener(uint16_t family, uint16_t port) {
    DomainState& d = domain();
    uint32_t matches[256], count = 0;
    for (int wanted = 2; wanted > 0 && count == 0; --wanted) {
        for (uint32_t i = 0; i < d.listener_count; ++i) {
            if (suits(socket_at(d.listeners[i]), family, port) == wanted) matches[count++] = d.listeners[i];
        }
    }
    if (count == 0) return kNone;
    return matches[count == 1 ? 0 : d.reuse_turn++ % count];
}

void enqueue(uint32_t listener, uint32_t index) {
    VirtualSocket& l = socket_at(listener);
    VirtualSocket& s = socket_at(index);
    s.queue_next = 0;
    if (l.queued == 0) {
        l.queue_head = index + 1;
    } else {
        socket_at(l.queue_tail - 1).queue_next = index + 1;
    }
    l.queue_tail = index + 1;
    ++l.queued;
    notify(listener, EPOLLIN);
}

void send_close(uint32_t index, bool reset) {
    VirtualSocket& s = socket_at(index);
    emit(OutputKind::kClose, s.connection, reset ? 1 : 0, nullptr, 0);
}

void emit_listen(OutputKind kind, const VirtualSocket& s, uint16_t flags = 0) {
    timebubble::ListenRecord record{};
    record.family = s.local.family;
    record.port = s.local.port;
    std::memcpy(record.address, s.local.bytes, sizeof(record.address));
    record.defer_accept_s = s.defer_accept_s;
    emit(kind, 0, flags, &record, sizeof(record));
}

// --- decided calls
// ------------------------------------------------------------------------------------------

void apply_connect(uint64_t connection, const char* payload, size_t bytes) {
    timebubble::ConnectPayload call;
    if (bytes != sizeof(call)) return;
    std::memcpy(&call, payload, sizeof(call));
    const uint32_t listener = find_listener(call.family, call.listen_port);
    const uint32_t index = listener == kNone ? kNone : new_socket(call.family, false);
    if (index == kNone) {
        emit(OutputKind::kClose, connection, 1, nullptr, 0);
        return;
    }
    VirtualSocket& s = socket_at(index);
    s.references = 0;
    s.state = SocketState::kConnected;
    s.connection = connection;
    s.window_end = timebubble::kInitialWindowBytes;
    s.peer.family = s.local.family = call.family;
    s.peer.port = call.peer_port;
    s.local.port = call.local_port;
    std::memcpy(s.peer.bytes, call.peer, sizeof(call.peer));
    std::memcpy(s.local.bytes, call.local, sizeof(call.local));
    const VirtualSocket& l = socket_at(listener);
    if (l.local.family == AF_INET6 && call.family == AF_INET) {
        // A dual-stack listener shows IPv4 clients as mapped addresses.
        for (Address* a : {&s.peer, &s.local}) {
            uint8_t mapped[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
            std::memcpy(mapped + 12, a->bytes, 4);
            std::memcpy(a->bytes, mapped, sizeof(mapped));
            a->family = AF_INET6;
        }
    }
    s.local.port = l.local.port;
    uint32_t& bucket = connection_bucket(connection);
    s.hash_next = bucket;
    bucket = index + 1;
    enqueue(listener, index);
}

void apply_to_connection(CallKind kind, uint32_t index, const char* payload, size_t bytes) {
    VirtualSocket& s = socket_at(index);
    switch (kind) {
        case CallKind::kSend: {
            if (s.reset) return;
            if (s.shut_read) {  // nobody will read it: count it as taken
                s.consumed += bytes;
                return;
            }
            if (!chunks_append(s, reinterpret_cast<const uint8_t*>(payload), bytes)) {
                refuse_domain("the clients' unread input passes 256 MiB: craned should have held it back");
            }
            notify(index, EPOLLIN);
            break;
        }
        case CallKind::kShutdown:
            s.fin_received = 1;
            notify(index, EPOLLIN | EPOLLRDHUP | (s.shut_write ? uint32_t{EPOLLHUP} : 0));
            break;
        case CallKind::kReset:
            s.reset = 1;
            chunks_drop(s);
            notify(index, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLHUP | EPOLLERR);
            break;
        case CallKind::kWindow: {
            uint64_t end = 0;
            if (bytes == sizeof(end)) std::memcpy(&end, payload, sizeof(end));
            if (end > s.window_end) s.window_end = end;
            if (s.sent < s.window_end) notify(index, EPOLLOUT);
            break;
        }
        default:
            break;
    }
}

}  // namespace

uint32_t new_socket(int family, bool nonblocking) {
    const uint32_t index = take_slot();
    if (index == kNone) return kNone;
    VirtualSocket& s = socket_at(index);
    const uint32_t generation = s.generation;
    s = {};
    s.generation = generation;
    s.state = SocketState::kNew;
    s.nonblocking = nonblocking;
    s.references = 1;
    s.other = kNone;
    s.local.family = s.peer.family = static_cast<uint16_t>(family);
    s.chunk_head = s.chunk_tail = kNone;
    s.watchers = kNone;
    return index;
}

namespace {

void close_listener(uint32_t index) {
    DomainState& d = domain();
    VirtualSocket& l = socket_at(index);
    emit_listen(OutputKind::kUnlisten, l);
    for (uint32_t i = 0; i < d.listener_count; ++i) {
        if (d.listeners[i] != index) continue;
        for (uint32_t j = i + 1; j < d.listener_count; ++j) d.listeners[j - 1] = d.listeners[j];
        --d.listener_count;
        break;
    }
    while (l.queued != 0) {
        const uint32_t next = l.queue_head - 1;
        l.queue_head = socket_at(next).queue_next;
        --l.queued;
        if (socket_at(next).connection) {
            send_close(next, true);
        } else if (socket_at(next).other != kNone) {
            VirtualSocket& other = socket_at(socket_at(next).other);
            other.reset = 1;
            other.other = kNone;
            notify(socket_at(next).other, EPOLLIN | EPOLLOUT | EPOLLHUP | EPOLLERR);
        }
        free_socket(next);
    }
}

void close_pair(uint32_t index) {
    VirtualSocket& s = socket_at(index);
    if (s.other == kNone) return;
    VirtualSocket& other = socket_at(s.other);
    other.other = kNone;
    other.fin_received = 1;
    // Closing with unread input resets, as TCP does.
    if (s.unread || s.linger_reset) other.reset = 1;
    notify(s.other, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLHUP);
}

}  // namespace

void release_socket(uint32_t index, int fd) {
    (void)fd;
    VirtualSocket& s = socket_at(index);
    CRANE_CHECK(s.references > 0);
    if (--s.references != 0) return;
    if (s.state == SocketState::kListening) close_listener(index);
    if (s.state == SocketState::kConnected) {
        if (s.connection) {
            // A connection that the client has reset already has no more to say, but the proxy may drop it
            // now.
            send_close(index, s.linger_reset || s.unread > 0);
        } else {
            close_pair(index);
        }
    }
    free_socket(index);
}

int socket_bind(uint32_t index, const sockaddr* address, socklen_t length) {
    VirtualSocket& s = socket_at(index);
    if (s.bound) return -EINVAL;
    if (length < sizeof(sa_family_t)) return -EINVAL;
    Address wanted{};
    wanted.family = address->sa_family;
    if (address->sa_family == AF_INET && length >= sizeof(sockaddr_in)) {
        const auto* in = reinterpret_cast<const sockaddr_in*>(address);
        wanted.port = ntohs(in->sin_port);
        std::memcpy(wanted.bytes, &in->sin_addr, 4);
    } else if (address->sa_family == AF_INET6 && length >= sizeof(sockaddr_in6)) {
        const auto* in = reinterpret_cast<const sockaddr_in6*>(address);
        wanted.port = ntohs(in->sin6_port);
        std::memcpy(wanted.bytes, &in->sin6_addr, 16);
    } else {
        return address->sa_family == AF_INET || address->sa_family == AF_INET6 ? -EINVAL : -EAFNOSUPPORT;
    }
    if (wanted.family != s.local.family) return -EINVAL;
    DomainState& d = domain();
    if (wanted.port == 0) {
        // Ports that nobody asked for by number come in order, above the registered ones.
        wanted.port = static_cast<uint16_t>(49152 + d.next_port++ % 16384);
    }
    for (uint32_t i = 0; i < d.listener_count; ++i) {
        const VirtualSocket& other = socket_at(d.listeners[i]);
        const bool shared = other.reuse_port && s.reuse_port;
        const bool same = other.local.port == wanted.port && other.local.family == wanted.family;
        if (!same || shared) continue;
        static const uint8_t any[16] = {};
        const bool overlap = std::memcmp(other.local.bytes, wanted.bytes, 16) == 0 ||
                             std::memcmp(other.local.bytes, any, 16) == 0 ||
                             std::memcmp(wanted.bytes, any, 16) == 0;
        if (overlap) return -EADDRINUSE;
    }
    s.local = wanted;
    s.bound = 1;
    return 0;
}

int socket_listen(uint32_t index, int backlog) {
    VirtualSocket& s = socket_at(index);
    DomainState& d = domain();
    s.backlog = static_cast<uint32_t>(backlog > 0 ? backlog : 1);
    if (s.state == SocketState::kListening) return 0;
    if (s.state != SocketState::kNew) return -EINVAL;
    if (d.listener_count == sizeof(d.listeners) / sizeof(d.listeners[0])) return -ENOBUFS;
    if (!s.bound) {
        s.local.port = static_cast<uint16_t>(49152 + d.next_port++ % 16384);
        s.bound = 1;
    }
    s.state = SocketState::kListening;
    d.listeners[d.listener_count++] = index;
    emit_listen(OutputKind::kListen, s);
    return 0;
}

void socket_defer_accept(uint32_t index, int seconds) {
    VirtualSocket& s = socket_at(index);
    s.defer_accept_s = static_cast<uint16_t>(seconds < 0 ? 0 : seconds > 0xffff ? 0xffff : seconds);
    if (s.state == SocketState::kListening) emit_listen(OutputKind::kListen, s, timebubble::kListenChanged);
}

int socket_connect(uint32_t index, const sockaddr* address, socklen_t length) {
    VirtualSocket& s = socket_at(index);
    if (s.state == SocketState::kConnected) return -EISCONN;
    if (s.state != SocketState::kNew) return -EOPNOTSUPP;
    uint16_t port = 0;
    bool local = false;
    if (address->sa_family == AF_INET && length >= sizeof(sockaddr_in)) {
        const auto* in = reinterpret_cast<const sockaddr_in*>(address);
        port = ntohs(in->sin_port);
        local = (ntohl(in->sin_addr.s_addr) >> 24) == 127 || in->sin_addr.s_addr == 0;
    } else if (address->sa_family == AF_INET6 && length >= sizeof(sockaddr_in6)) {
        const auto* in = reinterpret_cast<const sockaddr_in6*>(address);
        port = ntohs(in->sin6_port);
        local = IN6_IS_ADDR_LOOPBACK(&in->sin6_addr) || IN6_IS_ADDR_UNSPECIFIED(&in->sin6_addr) ||
                (IN6_IS_ADDR_V4MAPPED(&in->sin6_addr) && in->sin6_addr.s6_addr[12] == 127);
    } else {
        return -EAFNOSUPPORT;
    }
    if (!local) {
        refuse_call("a connection from the server to the outside (connect)");
        return -ENETUNREACH;
    }
    const uint32_t listener = find_listener(address->sa_family, port);
    if (listener == kNone) return -ECONNREFUSED;
    const uint32_t end = new_socket(s.local.family, false);
    if (end == kNone) return -ENOBUFS;
    VirtualSocket& e = socket_at(end);
    if (!s.bound) {
        s.local.port = static_cast<uint16_t>(49152 + domain().next_port++ % 16384);
        std::memset(s.local.bytes, 0, sizeof(s.local.bytes));
        if (s.local.family == AF_INET) {
            s.local.bytes[0] = 127;
            s.local.bytes[3] = 1;
        } else {
            s.local.bytes[15] = 1;
        }
        s.bound = 1;
    }
    s.peer = s.local;
    s.peer.port = port;
    e.local = s.peer;
    e.peer = s.local;
    e.references = 0;
    s.state = e.state = SocketState::kConnected;
    s.other = end;
    e.other = index;
    s.window_end = e.window_end = ~uint64_t{0};
    enqueue(listener, end);
    return 0;
}

uint32_t socket_accept(uint32_t listener) {
    VirtualSocket& l = socket_at(listener);
    if (l.queued == 0) return kNone;
    const uint32_t index = l.queue_head - 1;
    VirtualSocket& s = socket_at(index);
    l.queue_head = s.queue_next;
    s.queue_next = 0;
    if (--l.queued != 0) notify(listener, EPOLLIN);
    s.references = 1;
    s.nodelay = l.nodelay;
    s.keepalive = l.keepalive;
    if (s.connection) emit(OutputKind::kAccept, s.connection, 0, nullptr, 0);
    return index;
}

long socket_receive(uint32_t index, const iovec* vector, int count, bool peek) {
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
    const size_t taken = chunks_read(s, vector, count, peek);
    if (peek) return static_cast<long>(taken);
    s.consumed += taken;
    if (s.connection == 0) {
        if (s.other != kNone) notify(s.other, EPOLLOUT);
        return static_cast<long>(taken);
    }
    // The proxy bounds what is under way by this; small steps are not worth a record.
    constexpr uint64_t kReportStep = 64 * 1024;
    if (s.consumed - s.consumed_reported >= kReportStep) {
        s.consumed_reported = s.consumed;
        emit(OutputKind::kConsumed, s.connection, 0, &s.consumed, sizeof(s.consumed));
    }
    return static_cast<long>(taken);
}

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

long socket_send(uint32_t index, const iovec* vector, int count) {
    if (const long error = check_writable(index)) return error;
    VirtualSocket& s = socket_at(index);
    if (s.connection == 0) return send_to_pair(s, vector, count);
    size_t left = 0;
    for (int i = 0; i < count; ++i) left += vector[i].iov_len;
    const size_t total = left;
    int at = 0;
    size_t offset = 0;
    while (left > 0) {
        const size_t piece = left < timebubble::kMaxOutputPayload ? left : timebubble::kMaxOutputPayload;
        uint8_t* place = reserve_output(piece);
        size_t filled = 0;
        while (filled < piece) {
            const size_t here = vector[at].iov_len - offset;
            const size_t n = here < piece - filled ? here : piece - filled;
            if (n) std::memcpy(place + filled, static_cast<const char*>(vector[at].iov_base) + offset, n);
            filled += n;
            offset += n;
            if (offset == vector[at].iov_len) {
                ++at;
                offset = 0;
            }
        }
        emit_reserved(OutputKind::kSend, s.connection, 0, piece);
        left -= piece;
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

uint32_t socket_events(uint32_t index) {
    const VirtualSocket& s = socket_at(index);
    if (s.state == SocketState::kListening) return s.queued ? EPOLLIN | EPOLLRDNORM : 0;
    if (s.state != SocketState::kConnected) return EPOLLOUT | EPOLLHUP | EPOLLWRNORM;
    uint32_t events = 0;
    const bool end_of_input = s.fin_received || s.shut_read || s.reset;
    if (s.unread || end_of_input) events |= EPOLLIN | EPOLLRDNORM;
    if (end_of_input) events |= EPOLLRDHUP;
    if ((s.fin_received || s.shut_read) && s.shut_write) events |= EPOLLHUP;
    if (s.reset) events |= EPOLLHUP | EPOLLERR | EPOLLOUT | EPOLLWRNORM;
    const bool room = s.connection ? s.sent < s.window_end
                                   : s.other == kNone || socket_at(s.other).unread < kPairBufferBytes;
    if (room || s.shut_write) events |= EPOLLOUT | EPOLLWRNORM;
    return events;
}

void apply_call(uint16_t kind_number, uint64_t connection, const char* payload, size_t bytes) {
    const auto kind = static_cast<CallKind>(kind_number);
    if (kind == CallKind::kGenesis) {
        timebubble::GenesisPayload genesis;
        if (bytes != sizeof(genesis)) refuse_domain("the first batch holds no secret");
        std::memcpy(domain().secret, payload, sizeof(domain().secret));
        return;
    }
    if (kind == CallKind::kConnect) {
        apply_connect(connection, payload, bytes);
        return;
    }
    if (connection == 0) return;
    const uint32_t index = find_connection(connection);
    // The server may have closed it while the call was under way.
    if (index != kNone) apply_to_connection(kind, index, payload, bytes);
}

void address_to_sockaddr(const Address& address, sockaddr* out, socklen_t* length) {
    sockaddr_in6 six{};
    sockaddr_in four{};
    const void* from = &four;
    socklen_t size = sizeof(four);
    if (address.family == AF_INET6) {
        six.sin6_family = AF_INET6;
        six.sin6_port = htons(address.port);
        std::memcpy(&six.sin6_addr, address.bytes, 16);
        from = &six;
        size = sizeof(six);
    } else {
        four.sin_family = AF_INET;
        four.sin_port = htons(address.port);
        std::memcpy(&four.sin_addr, address.bytes, 4);
    }
    std::memcpy(out, from, *length < size ? *length : size);
    *length = size;
}

}  // namespace crane::interpose
