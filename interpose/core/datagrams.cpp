#include "interpose/core/datagrams.hpp"

#include <sys/epoll.h>

#include <cstring>

#include "interpose/core/egress.hpp"
#include "interpose/core/socket_options.hpp"
#include "interpose/core/socket_table.hpp"
#include "interpose/core/user_memory.hpp"
#include "timebubble/limits.hpp"

namespace crane::interpose {

using timebubble::OutputKind;

namespace {

/// In front of each datagram in its socket's input.
struct Frame {
    Address from, to;  ///< plain
    uint32_t bytes;
};

constexpr uint32_t kWays = 4;
constexpr uint16_t kNameServerPort = 53;

uint64_t hash_of(const Address& address) {
    uint64_t h = address.port;
    for (const uint8_t byte : address.bytes) h = (h ^ byte) * 0x9e37'79b9'7f4a'7c15ULL;
    return h ^ h >> 32;
}

bool same_end(const Address& one, const Address& other) {
    return one.port == other.port && same_host(one, other);
}

Address* heard_set(const Address& address) {
    return domain().heard + hash_of(address) % (kHeard / kWays) * kWays;
}

bool is_heard(const Address& address) {
    const Address* const set = heard_set(address);
    for (uint32_t i = 0; i < kWays; ++i)
        if (same_end(set[i], address)) return true;
    return false;
}

/// Clients at the server's own loopback addresses are told from its own processes by having been heard.
bool is_near_client(const Address& address) {
    return is_loopback(address) && is_heard(address);
}

void heard(const Address& client) {
    if (!is_loopback(client) && client.port != kNameServerPort) return;
    if (is_heard(client)) return;
    Address* const set = heard_set(client);
    for (uint32_t i = kWays - 1; i > 0; --i) set[i] = set[i - 1];
    set[0] = client;
}

/// A question to a name server that nobody would carry there. Who asks gives up late, and the server's
/// clients wait for that; no other datagram is refused, since whom it is for may be a client that has come by
/// TCP.
bool asks_in_vain(const Address& to) {
    return to.port == kNameServerPort && !egress_allowed() && !is_loopback(to) && !is_heard(to);
}

/// Where a datagram goes: to a socket connected to its sender before any other, and of several that share a
/// port (SO_REUSEPORT) always to the same one for the same sender. kNone: nobody.
uint32_t find_receiver(const Address& to, const Address& from, bool outside) {
    const DomainState& d = domain();
    uint32_t matches[64], count = 0;
    int best = 0;
    for (uint32_t i = 0; i < d.datagram_socket_count; ++i) {
        const VirtualSocket& s = socket_at(d.datagram_sockets[i]);
        if (s.local.port != to.port) continue;
        if (s.datagram.has_peer && !same_end(plain(s.peer), from)) continue;
        const Fit fit = listener_fit(s, to, outside);
        const int score = fit == Fit::kNone ? 0 : static_cast<int>(fit) + (s.datagram.has_peer ? 16 : 0);
        if (score == 0 || score < best) continue;
        if (score > best) count = 0;
        best = score;
        if (count < std::size(matches)) matches[count++] = d.datagram_sockets[i];
    }
    if (count == 0) return kNone;
    const bool shared = socket_at(matches[count - 1]).reuse_port;
    return matches[shared ? hash_of(from) % count : count - 1];
}

uint64_t receive_limit(uint32_t index) {
    return static_cast<uint64_t>(kept_number(index, SOL_SOCKET, SO_RCVBUF, kDatagramBufferBytes));
}

bool reuses_address(uint32_t index) {
    return kept_number(index, SOL_SOCKET, SO_REUSEADDR, 0) != 0;
}

void append(InputQueue& input, const void* bytes, size_t count) {
    CRANE_CHECK(chunks_append(domain().input_pool, input, static_cast<const uint8_t*>(bytes), count));
}

/// Lost if there is no place, as UDP has it.
void deliver(uint32_t index, const Frame& frame, const iovec* vector, int count) {
    VirtualSocket& s = socket_at(index);
    const uint64_t room = chunks_room(domain().input_pool, s.input);
    if (s.input.unread() >= receive_limit(index) || sizeof(frame) + frame.bytes > room) return;
    append(s.input, &frame, sizeof(frame));
    for (int i = 0; i < count; ++i) append(s.input, vector[i].iov_base, vector[i].iov_len);
    notify(index, EPOLLIN);
}

void emit_port(OutputKind kind, const VirtualSocket& s) {
    timebubble::ListenRecord record{};
    const Address& at = s.datagram.bound_to;
    record.family = at.family;
    record.port = at.port;
    record.protocol = timebubble::protocol_of(kind);
    std::memcpy(record.address, at.bytes, sizeof(record.address));
    emit(kind, 0, 0, &record, sizeof(record));
}

void announce(VirtualSocket& s) {
    if (s.datagram.announced) return;
    s.datagram.announced = 1;
    emit_port(OutputKind::kDatagramPort, s);
}

bool is_taken(uint32_t index, const Address& wanted) {
    const VirtualSocket& s = socket_at(index);
    const DomainState& d = domain();
    for (uint32_t i = 0; i < d.datagram_socket_count; ++i) {
        const VirtualSocket& other = socket_at(d.datagram_sockets[i]);
        if (other.local.port != wanted.port || other.local.family != wanted.family) continue;
        if (s.reuse_port && other.reuse_port) continue;
        if (reuses_address(index) && reuses_address(d.datagram_sockets[i])) continue;
        if (same_host(other.local, wanted) || is_any(other.local) || is_any(wanted)) return true;
    }
    return false;
}

int bind_to(uint32_t index, Address wanted) {
    VirtualSocket& s = socket_at(index);
    DomainState& d = domain();
    if (d.datagram_socket_count == timebubble::kMaxDatagramSockets) return -ENOBUFS;
    const auto taken = [index](const Address& address) { return is_taken(index, address); };
    if (const int error = choose_port(wanted, taken)) return error;
    s.local = s.datagram.bound_to = wanted;
    s.bound = 1;
    d.datagram_sockets[d.datagram_socket_count++] = index;
    return 0;
}

int bind_if_unbound(uint32_t index) {
    const VirtualSocket& s = socket_at(index);
    return s.bound ? 0 : bind_to(index, Address{s.local.family, 0, {}});
}

/// Sees to it that it is an address to send to: no address at all means this host.
int check_target(const VirtualSocket& s, Address& to) {
    if (to.family != s.local.family) {
        if (s.local.family != AF_INET6) return -EAFNOSUPPORT;
        if (s.v6_only) return -ENETUNREACH;
    }
    to = plain(to);
    if (is_any(to)) {
        const uint16_t port = to.port;
        to = loopback_of(to.family);
        to.port = port;
    }
    return 0;
}

void send_out(VirtualSocket& s, const Address& to, const iovec* vector, int count, size_t bytes) {
    announce(s);  // answers come there
    timebubble::DatagramRecord record{s.local.port, to.family, to.port, 0, {}};
    std::memcpy(record.peer, to.bytes, sizeof(record.peer));
    uint8_t* const place = reserve_output(sizeof(record) + bytes);
    std::memcpy(place, &record, sizeof(record));
    size_t filled = sizeof(record);
    for (int i = 0; i < count; ++i) {
        if (vector[i].iov_len) std::memcpy(place + filled, vector[i].iov_base, vector[i].iov_len);
        filled += vector[i].iov_len;
    }
    emit_reserved(OutputKind::kDatagram, 0, 0, filled);
}

void send_inside(uint32_t index, const Address& to, const iovec* vector, int count, size_t bytes) {
    VirtualSocket& s = socket_at(index);
    Frame frame{plain(s.local), to, static_cast<uint32_t>(bytes)};
    if (is_any(frame.from)) {
        frame.from = near_to(to);
        frame.from.port = s.local.port;
    }
    const uint32_t receiver = find_receiver(to, frame.from, false);
    if (receiver != kNone) {
        deliver(receiver, frame, vector, count);
    } else if (s.datagram.has_peer && same_end(plain(s.peer), to)) {
        s.datagram.error = ECONNREFUSED;  // the next call hears of it, and who waits
        notify(index, EPOLLERR);
    }
}

/// Once for each process: some send to groups every second. With the turn.
void say_who_hears() {
    static bool said = false;
    if (said) return;
    said = true;
    refuse_call("datagrams to a group or to all hosts (multicast, broadcast) but the server's own processes");
}

/// In the container's network is nobody else: who hears of it are the server's own, as if it came to a host.
void send_to_many(uint32_t index, const Address& to, const iovec* vector, int count, size_t bytes) {
    const VirtualSocket& s = socket_at(index);
    const DomainState& d = domain();
    say_who_hears();
    if (s.datagram.groups & kUnheard) return;
    Frame frame{plain(s.local), to, static_cast<uint32_t>(bytes)};
    if (is_any(frame.from)) frame.from = own_address_of(to.family, s.local.port);
    for (uint32_t i = 0; i < d.datagram_socket_count; ++i) {
        const VirtualSocket& other = socket_at(d.datagram_sockets[i]);
        const Address at = plain(other.local);
        const bool wants = (other.datagram.groups & kInGroups) || !is_group(to);
        if (!wants || other.datagram.has_peer || at.port != to.port) continue;
        if (is_any(at) || same_host(at, to)) deliver(d.datagram_sockets[i], frame, vector, count);
    }
}

}  // namespace

uint32_t new_datagram_socket(int family, bool nonblocking) {
    const uint32_t index = new_socket(family, nonblocking);
    if (index == kNone) return kNone;
    socket_at(index).state = SocketState::kDatagram;
    socket_at(index).input.inside = 1;  // counts as the server's own: clients' connections keep their stock
    return index;
}

int datagram_bind(uint32_t index, Address wanted) {
    const bool by_number = wanted.port != 0;
    const int rc = bind_to(index, wanted);
    // No client has a group's address to send to.
    if (rc == 0 && by_number && !is_for_many(plain(wanted))) announce(socket_at(index));
    return rc;
}

int datagram_connect(uint32_t index, const sockaddr* address, socklen_t length) {
    VirtualSocket& s = socket_at(index);
    if (length >= sizeof(sa_family_t) && address->sa_family == AF_UNSPEC) {
        s.datagram.has_peer = 0;
        if (s.bound) s.local = s.datagram.bound_to;
        return 0;
    }
    Address to;
    if (const int error = address_from_sockaddr(address, length, to)) return error;
    if (const int error = check_target(s, to)) return error;
    if (const int error = bind_if_unbound(index)) return error;
    s.peer = as_family(to, s.local.family);
    s.datagram.has_peer = 1;
    if (is_any(plain(s.local))) {
        const DomainState& d = domain();
        const Address& reached = d.reached_at[to.family == AF_INET6];
        const bool inside = is_here(to) && !is_near_client(to);
        Address own = inside ? near_to(to) : reached.family == 0 ? loopback_of(to.family) : reached;
        if (is_for_many(to)) own = own_address_of(to.family, 0);
        own.port = s.local.port;
        s.local = as_family(own, s.local.family);
    }
    return 0;
}

int datagram_shutdown(uint32_t index, int how) {
    VirtualSocket& s = socket_at(index);
    if (how == SHUT_RD || how == SHUT_RDWR) s.shut_read = 1;
    if (how == SHUT_WR || how == SHUT_RDWR) s.shut_write = 1;
    const bool both = s.shut_read && s.shut_write;
    notify(index,
           EPOLLIN | EPOLLOUT | (s.shut_read ? uint32_t{EPOLLRDHUP} : 0) | (both ? uint32_t{EPOLLHUP} : 0));
    return s.datagram.has_peer ? 0 : -ENOTCONN;  // done all the same
}

void datagram_close(uint32_t index) {
    VirtualSocket& s = socket_at(index);
    DomainState& d = domain();
    uint32_t kept = 0;
    for (uint32_t i = 0; i < d.datagram_socket_count; ++i)
        if (d.datagram_sockets[i] != index) d.datagram_sockets[kept++] = d.datagram_sockets[i];
    d.datagram_socket_count = kept;
    if (s.datagram.announced) emit_port(OutputKind::kDatagramPortEnd, s);
}

uint32_t datagram_events(uint32_t index) {
    const VirtualSocket& s = socket_at(index);
    uint32_t events = EPOLLOUT | EPOLLWRNORM;
    if (s.input.unread() || s.shut_read) events |= EPOLLIN | EPOLLRDNORM;
    if (s.shut_read) events |= EPOLLRDHUP;
    if (s.shut_read && s.shut_write) events |= EPOLLHUP;
    if (s.datagram.error) events |= EPOLLERR;
    return events;
}

int datagram_take_error(uint32_t index) {
    const int error = socket_at(index).datagram.error;
    socket_at(index).datagram.error = 0;
    return error;
}

size_t datagram_next_bytes(uint32_t index) {
    const VirtualSocket& s = socket_at(index);
    Frame frame;
    if (s.input.unread() == 0) return 0;
    chunks_peek(domain().input_pool, s.input, 0, &frame, sizeof(frame));
    return frame.bytes;
}

long datagram_receive(uint32_t index, const iovec* vector, int count, bool peek, DatagramInfo& info) {
    VirtualSocket& s = socket_at(index);
    info = {};
    if (const int error = datagram_take_error(index)) return -error;
    if (s.input.unread() == 0) return -EAGAIN;
    ChunkPool& pool = domain().input_pool;
    Frame frame;
    chunks_peek(pool, s.input, 0, &frame, sizeof(frame));
    size_t taken = 0;
    for (int i = 0; i < count; ++i) {
        const size_t left = frame.bytes - taken;
        const size_t here = vector[i].iov_len < left ? vector[i].iov_len : left;
        if (!writable(vector[i].iov_base, here)) return -EFAULT;
        chunks_peek(pool, s.input, sizeof(frame) + taken, vector[i].iov_base, here);
        taken += here;
    }
    info = {as_family(frame.from, s.local.family), as_family(frame.to, s.local.family), frame.bytes};
    if (!peek) chunks_skip(pool, s.input, sizeof(frame) + frame.bytes);
    return static_cast<long>(taken);
}

long datagram_send(uint32_t index, const iovec* vector, int count, const Address* given) {
    VirtualSocket& s = socket_at(index);
    size_t bytes = 0;
    for (int i = 0; i < count; ++i) {
        if (!readable(vector[i].iov_base, vector[i].iov_len)) return -EFAULT;
        bytes += vector[i].iov_len;
    }
    if (bytes > timebubble::kMaxDatagramBytes) return -EMSGSIZE;
    if (!given && !s.datagram.has_peer) return -EDESTADDRREQ;
    if (s.shut_write) return -EPIPE;
    Address to = given ? *given : s.peer;
    if (to.port == 0) return -EINVAL;
    if (const int error = check_target(s, to)) return error;
    if (const int error = datagram_take_error(index)) return -error;
    if (const int error = bind_if_unbound(index)) return error;
    if (is_for_many(to)) {
        send_to_many(index, to, vector, count, bytes);
        return static_cast<long>(bytes);
    }
    // A socket of the server's own goes before a client that has the same address.
    const bool inside =
        is_here(to) && (!is_near_client(to) || find_receiver(to, plain(s.local), false) != kNone);
    if (inside) {
        send_inside(index, to, vector, count, bytes);
    } else if (asks_in_vain(to)) {
        announce(s);  // as if it had gone out
        refuse_name_server(to);
        return -ENETUNREACH;
    } else {
        send_out(s, to, vector, count, bytes);
    }
    return static_cast<long>(bytes);
}

void datagram_arrives(const char* payload, size_t bytes) {
    timebubble::DatagramPayload call;
    if (bytes < sizeof(call) || bytes - sizeof(call) > timebubble::kMaxDatagramBytes) return;
    std::memcpy(&call, payload, sizeof(call));
    if (call.family != AF_INET && call.family != AF_INET6) return;
    Frame frame{{call.family, call.peer_port, {}}, {call.family, call.port, {}}, 0};
    std::memcpy(frame.from.bytes, call.peer, sizeof(call.peer));
    std::memcpy(frame.to.bytes, call.local, sizeof(call.local));
    frame.bytes = static_cast<uint32_t>(bytes - sizeof(call));
    heard(frame.from);
    domain().reached_at[call.family == AF_INET6] = frame.to;
    const uint32_t receiver = find_receiver(frame.to, frame.from, true);
    if (receiver == kNone) return;
    const iovec one{const_cast<char*>(payload) + sizeof(call), frame.bytes};
    deliver(receiver, frame, &one, 1);
}

}  // namespace crane::interpose
