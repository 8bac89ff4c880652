// Listeners, and how a connection comes to one: from a client or from inside the domain.
#include <cstring>

#include "interpose/core/datagrams.hpp"
#include "interpose/core/egress.hpp"
#include "interpose/core/socket_options.hpp"
#include "interpose/core/socket_table.hpp"

namespace crane::interpose {

using timebubble::OutputKind;

namespace {

uint32_t places_of_port(uint16_t port) {
    const DomainState& d = domain();
    uint32_t places = 0;
    for (uint32_t i = 0; i < d.listener_count; ++i) {
        const VirtualSocket& l = socket_at(d.listeners[i]);
        if (l.local.port == port) places += l.places;
    }
    return places;
}

void emit_listen(OutputKind kind, const VirtualSocket& s, uint16_t flags = 0) {
    timebubble::ListenRecord record{};
    record.family = s.local.family;
    record.port = s.local.port;
    std::memcpy(record.address, s.local.bytes, sizeof(record.address));
    record.defer_accept_s = s.defer_accept_s;
    record.places = places_of_port(s.local.port);
    emit(kind, 0, flags, &record, sizeof(record));
}

}  // namespace

/// As the kernel looks it up: the address itself before any address, its own family before a dual-stack
/// socket. Clients from outside come to an address of craned's: a listener on an address that no host of the
/// cluster has is meant for them too, and one on loopback alone when nobody else would have them (craned
/// serves it only where that is right).
Fit listener_fit(const VirtualSocket& listener, const Address& to, bool outside) {
    if (listener.local.port != to.port) return Fit::kNone;
    const Address own = plain(listener.local);
    const bool same_kind = listener.local.family == to.family;
    if (is_any(own)) {
        if (same_kind) return Fit::kAny;
        return listener.local.family == AF_INET6 && !listener.v6_only ? Fit::kAnyDual : Fit::kNone;
    }
    if (own.family != to.family) return Fit::kNone;
    if (std::memcmp(own.bytes, to.bytes, sizeof(own.bytes)) == 0)
        return same_kind ? Fit::kExact : Fit::kMapped;
    if (!outside) return Fit::kNone;
    return is_loopback(own) ? Fit::kLoopback : Fit::kElsewhere;
}

uint32_t find_listener(const Address& to, bool outside) {
    DomainState& d = domain();
    uint32_t matches[256], count = 0;
    Fit best = Fit::kNone;
    for (uint32_t i = 0; i < d.listener_count; ++i) {
        const Fit here = listener_fit(socket_at(d.listeners[i]), plain(to), outside);
        if (here == Fit::kNone || here < best) continue;
        if (here > best) count = 0;
        best = here;
        matches[count++] = d.listeners[i];
    }
    if (count == 0) return kNone;
    return matches[count == 1 ? 0 : d.reuse_turn++ % count];
}

bool port_has_place(uint16_t port) {
    const DomainState& d = domain();
    uint32_t waiting = 0;
    for (uint32_t i = 0; i < d.listener_count; ++i) {
        const VirtualSocket& l = socket_at(d.listeners[i]);
        if (l.local.port == port) waiting += l.queued_clients;
    }
    return waiting < places_of_port(port);
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
    if (s.connection) ++l.queued_clients;
    notify(listener, EPOLLIN);
}

void close_listener(uint32_t index) {
    DomainState& d = domain();
    VirtualSocket& l = socket_at(index);
    for (uint32_t i = 0; i < d.listener_count; ++i) {
        if (d.listeners[i] != index) continue;
        for (uint32_t j = i + 1; j < d.listener_count; ++j) d.listeners[j - 1] = d.listeners[j];
        --d.listener_count;
        break;
    }
    emit_listen(OutputKind::kUnlisten, l);
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
    l.queued_clients = 0;
}

int socket_listen(uint32_t index, int backlog) {
    VirtualSocket& s = socket_at(index);
    DomainState& d = domain();
    const uint32_t places = timebubble::backlog_places(backlog);
    if (s.state == SocketState::kListening) {
        const bool changed = places != s.places;
        s.places = places;
        if (changed) emit_listen(OutputKind::kListen, s, timebubble::kListenChanged);
        return 0;
    }
    if (s.state == SocketState::kDatagram) return -EOPNOTSUPP;
    if (s.state != SocketState::kNew) return -EINVAL;
    if (d.listener_count == sizeof(d.listeners) / sizeof(d.listeners[0])) return -ENOBUFS;
    if (!s.bound) {
        if (const int error = choose_port_of(index, s.local)) return error;
        s.bound = 1;
        hold_port(index);
    } else if (port_is_taken(index, s.local, true)) {
        return -EADDRINUSE;  // another that was bound beside it has come first
    }
    s.places = places;
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

namespace {

/// Nobody listens there; who does not wait in connect() is told by what comes next.
int refuse_later(uint32_t index) {
    VirtualSocket& s = socket_at(index);
    s.connect_error = ECONNREFUSED;
    s.outcome_untold = 1;
    notify(index, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLHUP | EPOLLERR);
    return -EINPROGRESS;
}

}  // namespace

int socket_connect(uint32_t index, const sockaddr* address, socklen_t length) {
    VirtualSocket& s = socket_at(index);
    if (s.state == SocketState::kDatagram) return datagram_connect(index, address, length);
    if (length < sizeof(sa_family_t)) return -EINVAL;
    if (address->sa_family == AF_UNSPEC) return socket_disconnect(index);
    if (s.state == SocketState::kConnecting) return s.nonblocking ? -EALREADY : -EINPROGRESS;
    if (s.outcome_untold) return egress_outcome(index);
    if (s.state == SocketState::kConnected) return -EISCONN;
    if (s.state != SocketState::kNew) return -EOPNOTSUPP;
    Address to;
    if (const int error = address_from_sockaddr(address, length, to)) return error;
    if (to.family != s.local.family) return -EAFNOSUPPORT;
    to = plain(to);
    const uint16_t port = to.port;
    // No address at all means this host.
    if (is_any(to)) to = loopback_of(to.family);
    to.port = port;
    if (!is_here(to)) return egress_connect(index, to);
    const uint32_t listener = find_listener(to, false);
    if (listener == kNone) return s.nonblocking ? refuse_later(index) : -ECONNREFUSED;
    const uint16_t far_family = socket_at(listener).local.family;
    Address own = s.local;
    if (!s.bound && choose_port_of(index, own) != 0) return -EADDRNOTAVAIL;
    const uint32_t end = new_socket(far_family, false);
    if (end == kNone) return -ENOBUFS;
    VirtualSocket& e = socket_at(end);
    if (!s.bound || is_any(plain(s.local))) {
        Address from = near_to(to);
        from.port = own.port;
        s.local = as_family(from, s.local.family);
    }
    s.bound = 1;
    s.peer = as_family(to, s.local.family);
    e.local = as_family(to, far_family);
    e.peer = as_family(plain(s.local), far_family);
    e.references = 0;
    s.state = e.state = SocketState::kConnected;
    s.other = end;
    s.input.inside = e.input.inside = 1;
    e.other = index;
    s.window_end = e.window_end = ~uint64_t{0};
    enqueue(listener, end);
    // As over loopback: it is there already, but the call does not know.
    if (!s.nonblocking) return 0;
    s.outcome_untold = 1;
    notify(index, EPOLLOUT);
    return -EINPROGRESS;
}

uint32_t socket_accept(uint32_t listener) {
    VirtualSocket& l = socket_at(listener);
    if (l.queued == 0) return kNone;
    const uint32_t index = l.queue_head - 1;
    VirtualSocket& s = socket_at(index);
    l.queue_head = s.queue_next;
    s.queue_next = 0;
    if (s.connection) --l.queued_clients;
    if (--l.queued != 0) notify(listener, EPOLLIN);
    s.references = 1;
    s.nodelay = l.nodelay;
    s.linger_reset = l.linger_reset;
    s.receive_timeout_ns = l.receive_timeout_ns;
    s.send_timeout_ns = l.send_timeout_ns;
    s.probes = l.probes;
    inherit_options(listener, index);
    if (s.connection) {
        domain().served = 1;
        emit(OutputKind::kAccept, s.connection, 0, nullptr, 0);
    }
    if (s.probes != timebubble::ProbeRecord{}) tell_probes(s);
    return index;
}

}  // namespace crane::interpose
