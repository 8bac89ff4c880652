#include "interpose/core/socket_table.hpp"

#include "interpose/core/epolls.hpp"
#include "interpose/core/socket_options.hpp"

namespace crane::interpose {

using timebubble::OutputKind;

namespace {

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

}  // namespace

uint32_t& connection_bucket(uint64_t connection) {
    const uint64_t h = connection * 0x9e37'79b9'7f4a'7c15ULL;
    return domain().connections[(h >> 40) % kConnectionBuckets];
}

uint32_t find_connection(uint64_t connection) {
    uint32_t at = connection_bucket(connection);
    while (at != 0 && socket_at(at - 1).connection != connection) at = socket_at(at - 1).hash_next;
    return at == 0 ? kNone : at - 1;
}

void unhash_connection(uint32_t index) {
    VirtualSocket& s = socket_at(index);
    if (s.connection == 0) return;
    uint32_t* link = &connection_bucket(s.connection);
    while (*link != 0 && *link != index + 1) link = &socket_at(*link - 1).hash_next;
    if (*link) *link = s.hash_next;
    s.connection = 0;
    s.hash_next = 0;
}

void notify(uint32_t index, uint32_t events) {
    VirtualSocket& s = socket_at(index);
    if (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) {
        const bool listening = s.state == SocketState::kListening;
        scheduler().signal(socket_key(index), listening ? 1 : ~uint32_t{0});
    }
    if (events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) scheduler().signal(socket_write_key(index), ~uint32_t{0});
    scheduler().signal_set(set_bit(ObjectKind::kSocket, index));
    notify_watchers(index, events);
}

void forget_connection(uint32_t index) {
    VirtualSocket& s = socket_at(index);
    if (s.connection) --(timebubble::is_egress(s.connection) ? domain().egress.open : domain().clients);
    unhash_connection(index);
    chunks_drop(domain().input_pool, s.input);
    s.input = {};
    s.consumed_reported = s.sent = s.window_end = 0;
    s.other = kNone;
}

void free_socket(uint32_t index) {
    VirtualSocket& s = socket_at(index);
    forget_connection(index);
    release_port(index);
    drop_watches(Watched::kSocket, index);
    drop_options(index);
    const uint32_t generation = s.generation;
    s = {};
    s.generation = generation + 1;
    s.queue_next = domain().socket_free;
    domain().socket_free = index + 1;
}

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
    s.watchers = kNone;
    return index;
}

void send_close(uint32_t index, bool reset) {
    VirtualSocket& s = socket_at(index);
    emit(OutputKind::kClose, s.connection, reset ? 1 : 0, nullptr, 0);
}

}  // namespace crane::interpose
