#include "interpose/core/sockets.hpp"

#include <cstring>

#include "interpose/core/datagrams.hpp"
#include "interpose/core/egress.hpp"
#include "interpose/core/epolls.hpp"
#include "interpose/core/processes.hpp"
#include "interpose/core/signals.hpp"
#include "interpose/core/socket_table.hpp"

namespace crane::interpose {

using timebubble::CallKind;
using timebubble::OutputKind;

namespace {

void apply_connect(uint64_t connection, const char* payload, size_t bytes) {
    timebubble::ConnectPayload call;
    if (bytes != sizeof(call)) return;
    std::memcpy(&call, payload, sizeof(call));
    Address to{call.family, call.listen_port, {}};
    std::memcpy(to.bytes, call.local, sizeof(call.local));
    const uint32_t listener = find_listener(to, true);
    // The proxy keeps a client waiting while there is no place for it; if one comes all the same, it alone
    // pays.
    const bool place =
        listener != kNone && domain().clients < timebubble::kMaxClients && port_has_place(call.listen_port);
    const uint32_t index = place ? new_socket(call.family, false) : kNone;
    if (index == kNone) {
        emit(OutputKind::kClose, connection, 1, nullptr, 0);
        return;
    }
    ++domain().clients;
    VirtualSocket& s = socket_at(index);
    s.references = 0;
    s.state = SocketState::kConnected;
    s.connection = connection;
    s.window_end = timebubble::kFirstWindowBytes;
    s.peer.family = s.local.family = call.family;
    s.peer.port = call.peer_port;
    s.local.port = call.local_port;
    std::memcpy(s.peer.bytes, call.peer, sizeof(call.peer));
    std::memcpy(s.local.bytes, call.local, sizeof(call.local));
    const VirtualSocket& l = socket_at(listener);
    // A dual-stack listener shows IPv4 clients as mapped addresses.
    s.peer = as_family(s.peer, l.local.family);
    s.local = as_family(s.local, l.local.family);
    s.local.port = l.local.port;
    uint32_t& bucket = connection_bucket(connection);
    s.hash_next = bucket;
    bucket = index + 1;
    enqueue(listener, index);
}

/// What came before the reset can be read, as the kernel has it. To the primary's account nothing of the
/// connection is in the common stock from here on (timebubble/limits.hpp), so nothing may stay there.
void reset_by_peer(uint32_t index) {
    VirtualSocket& s = socket_at(index);
    s.reset = 1;
    if (timebubble::common_chunks(s.input.consumed, s.input.received) > 0)
        chunks_drop(domain().input_pool, s.input);
    notify(index, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLHUP | EPOLLERR);
}

void apply_to_connection(CallKind kind, uint32_t index, const char* payload, size_t bytes) {
    VirtualSocket& s = socket_at(index);
    switch (kind) {
        case CallKind::kSend: {
            if (s.reset) return;
            if (s.shut_read && s.input.unread() == 0) {  // nobody will read it: count it as taken
                s.input.received = s.input.consumed += bytes;
                report_consumed(s);
                return;
            }
            if (!chunks_append(domain().input_pool, s.input, reinterpret_cast<const uint8_t*>(payload),
                               bytes)) {
                // The proxy should have held it back. What was decided cannot be undone: this connection
                // ends.
                send_close(index, true);
                reset_by_peer(index);
                return;
            }
            notify(index, EPOLLIN);
            break;
        }
        case CallKind::kShutdown:
            s.fin_received = 1;
            notify(index, EPOLLIN | EPOLLRDHUP | (s.shut_write ? uint32_t{EPOLLHUP} : 0));
            break;
        case CallKind::kReset:
            reset_by_peer(index);
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

void close_pair(uint32_t index, bool reset) {
    VirtualSocket& s = socket_at(index);
    if (s.other == kNone) return;
    VirtualSocket& other = socket_at(s.other);
    other.other = kNone;
    if (reset) {
        other.reset = 1;
    } else {
        other.fin_received = 1;
    }
    notify(s.other, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLHUP);
}

}  // namespace

void release_socket(uint32_t index) {
    VirtualSocket& s = socket_at(index);
    CRANE_CHECK(s.references > 0);
    if (--s.references != 0) return;
    if (s.state == SocketState::kListening) close_listener(index);
    if (s.state == SocketState::kDatagram) datagram_close(index);
    if (s.state == SocketState::kConnecting) send_close(index, true);
    if (s.state == SocketState::kConnected) {
        if (s.connection) {
            // A connection that the client has reset already has no more to say, but the proxy may drop it
            // now.
            send_close(index, s.linger_reset || s.input.unread() > 0);
        } else {
            // Closing with unread input resets, as TCP does.
            close_pair(index, s.input.unread() > 0 || s.linger_reset);
        }
    }
    free_socket(index);
}

int socket_disconnect(uint32_t index) {
    VirtualSocket& s = socket_at(index);
    constexpr uint32_t kAll = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLHUP | EPOLLERR;
    if (s.state == SocketState::kListening) close_listener(index);
    if (s.state == SocketState::kConnecting) egress_give_up(index);
    if (s.state == SocketState::kConnected) {
        if (s.connection) {
            send_close(index, true);
        } else {
            close_pair(index, true);
        }
        forget_connection(index);
        s.connect_error = s.reset ? 0 : ECONNRESET;
    }
    s.state = SocketState::kNew;
    s.fin_received = s.reset = s.rst_reported = s.shut_read = s.shut_write = s.outcome_untold = 0;
    s.bound = s.held_port != 0;
    if (!s.bound) s.local = {s.local.family, 0, {}};
    notify(index, kAll);
    return 0;
}

uint32_t socket_events(uint32_t index) {
    const VirtualSocket& s = socket_at(index);
    if (s.state == SocketState::kListening) return s.queued ? EPOLLIN | EPOLLRDNORM : 0;
    if (s.state == SocketState::kDatagram) return datagram_events(index);
    if (s.state == SocketState::kConnecting) return 0;
    if (s.state != SocketState::kConnected) {
        const uint32_t failed =
            EPOLLIN | EPOLLRDNORM | EPOLLRDHUP | (s.connect_error ? uint32_t{EPOLLERR} : 0);
        return EPOLLOUT | EPOLLHUP | EPOLLWRNORM | (s.outcome_untold ? failed : 0);
    }
    uint32_t events = 0;
    const bool end_of_input = s.fin_received || s.shut_read || s.reset;
    if (s.input.unread() || end_of_input) events |= EPOLLIN | EPOLLRDNORM;
    if (end_of_input) events |= EPOLLRDHUP;
    if ((s.fin_received || s.shut_read) && s.shut_write) events |= EPOLLHUP;
    if (s.reset) events |= EPOLLHUP | EPOLLOUT | EPOLLWRNORM;
    if (s.reset && (!s.rst_reported || s.connect_error)) events |= EPOLLERR;
    const bool room = s.connection ? s.sent < s.window_end : pair_room(s) > 0;
    if (room || s.shut_write) events |= EPOLLOUT | EPOLLWRNORM;
    return events;
}

namespace {

void signal_server(int signal) {
    domain().asked_by_signal = 1;
    post_signal(domain().main_process, signal_from_outside(signal), dmt::kNoSlot);
}

}  // namespace

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
    if (kind == CallKind::kSignal) {
        uint32_t signal = 0;
        if (bytes == sizeof(signal)) std::memcpy(&signal, payload, sizeof(signal));
        if (signal != 0 && signal < static_cast<uint32_t>(kSignals)) signal_server(static_cast<int>(signal));
        return;
    }
    if (kind == CallKind::kStart) egress_started(payload, bytes);
    if (kind == CallKind::kStop) end_domain(SIGKILL);
    if (kind == CallKind::kDatagram) {
        datagram_arrives(payload, bytes);
        return;
    }
    if (connection == 0) return;
    if (kind == CallKind::kConnected) return egress_connected(connection, payload, bytes);
    if (kind == CallKind::kResolved) return name_resolved(connection, payload, bytes);
    const uint32_t index = find_connection(connection);
    // The server may have closed it while the call was under way.
    if (index != kNone) apply_to_connection(kind, index, payload, bytes);
}

// --- holds

void SocketHold::take(uint32_t socket) {
    if (depth_) return;
    ThreadExtra& thread = domain().threads[self.slot];
    // A handler that left an earlier call by a jump.
    if (self.handler_depth == 0) release_held_sockets(self.slot);
    if (thread.held_count == kMaxHeld) return;
    thread.held[thread.held_count++] = socket;
    depth_ = thread.held_count;
    ++socket_at(socket).references;
}

SocketHold::~SocketHold() {
    if (depth_) release_held_sockets(self.slot, depth_ - 1);
}

void release_held_sockets(dmt::SlotId slot, uint32_t keep) {
    ThreadExtra& thread = domain().threads[slot];
    while (thread.held_count > keep) release_socket(thread.held[--thread.held_count]);
}

}  // namespace crane::interpose
