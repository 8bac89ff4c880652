#include "proxy/ingress.hpp"

#include <algorithm>
#include <cassert>
#include <vector>

#include "proxy/impossible_output.hpp"

namespace crane::proxy {

using timebubble::CallKind;
using timebubble::OutputKind;

namespace {

constexpr size_t kMaxConnections = 65536;
/// More than any promise: all of it goes back.
constexpr uint64_t kAllOfIt = ~uint64_t{0};

}  // namespace

Ingress::Ingress(const Settings& settings, Batcher& batcher, DomainAccount& account, Reply reply)
    : settings_(settings),
      batcher_(batcher),
      account_(account),
      reply_(std::move(reply)),
      windows_(settings.output_bytes) {
    peers_[settings_.self].up = true;
}

// --- who leads, and who is there

void Ingress::lead(const ConnectionTable& table, uint64_t now_ns) {
    stop();
    leading_ = true;
    settled_ = false;
    last_numbers_ = table.last_numbers;
    any_elsewhere_ = true;  // perhaps: tick() will tell
    for (const auto& [id, state] : table.open) {
        Connection& connection = live_[id];
        connection.connected = true;
        connection.input = state.input;
        connection.input_ended = state.input_ended;
        connection.output_ended = state.output_ended;
        connection.window.end = state.window_end;
        connection.window.sent = state.sent;
        peers_[attached_replica(id)];
    }
    for (auto& [replica, peer] : peers_) {
        peer.listed = false;
        peer.down_since_ns = now_ns;
        if (peer.up) welcome(replica);
    }
}

void Ingress::stop() {
    leading_ = false;
    close_all();
}

void Ingress::server_ended() {
    std::vector<uint64_t> copied;
    for (const auto& [id, connection] : live_)
        if (connection.named && connection.copy) copied.push_back(id);  // those that wait for a place, too
    std::sort(copied.begin(), copied.end());
    for (const uint64_t id : copied) {
        const auto found = live_.find(id);
        FromPrimary* to = reply_(attached_replica(id));
        if (to && found != live_.end()) to->copied_close(id, found->second.window.sent, false);
    }
    close_all();
}

void Ingress::close_all() {
    for (const auto& [id, connection] : live_) {
        if (connection.windowed) windows_.close(connection.window);
    }
    live_.clear();
    held_back_.clear();
}

void Ingress::welcome(uint32_t replica) {
    FromPrimary* to = leading_ ? reply_(replica) : nullptr;
    if (!to) return;
    for (auto& [id, connection] : live_) {
        if (attached_replica(id) != replica) continue;
        connection.named = false;
        account_.returned_input(id, kAllOfIt);
        connection.promised = 0;
        connection.credit_size = kFirstCreditBytes;
    }
    peers_[replica].listed = peers_[replica].turned_away = false;
    uint64_t last = 0;
    for (auto at = last_numbers_.lower_bound({replica, 0});
         at != last_numbers_.end() && at->first.first == replica; ++at)
        last = std::max(last, at->second);
    to->welcome(last + 1);
}

void Ingress::on_link(uint32_t replica, bool up, uint64_t now_ns) {
    Peer& peer = peers_[replica];
    peer.up = up;
    peer.down_since_ns = now_ns;
}

void Ingress::tick(uint64_t now_ns) {
    if (!leading_) return;
    any_elsewhere_ = elsewhere() > 0;
    name_again();
    if (!settled_) return;
    reset_those([&](uint64_t id, const Connection&) {
        const Peer& peer = peers_[attached_replica(id)];
        return !peer.up && now_ns - peer.down_since_ns >= settings_.link_patience_ns;
    });
}

/// Replicas name all their clients anew, and with them those that there was no room for.
void Ingress::name_again() {
    if (live_.size() > kMaxConnections - kMaxConnections / 8) return;
    for (auto& [replica, peer] : peers_) {
        if (!peer.turned_away) continue;
        peer.turned_away = false;
        if (peer.up) welcome(replica);  // else when it comes back
    }
}

void Ingress::settle() {
    settled_ = true;
    for (const auto& [replica, peer] : peers_) {
        if (peer.listed) reset_unnamed(replica);
    }
}

void Ingress::listed(uint32_t replica) {
    if (!leading_) return;
    peers_[replica].listed = true;
    if (settled_) reset_unnamed(replica);
}

void Ingress::reset_unnamed(uint32_t replica) {
    reset_those([&](uint64_t id, const Connection& connection) {
        return attached_replica(id) == replica && !connection.named;
    });
}

template <typename Chosen>
void Ingress::reset_those(const Chosen& chosen) {
    std::vector<uint64_t> ids;
    for (const auto& [id, connection] : live_) {
        if (chosen(id, connection)) ids.push_back(id);
    }
    std::sort(ids.begin(), ids.end());
    for (uint64_t id : ids) reset(id);
}

void Ingress::reset(uint64_t id) {
    const auto found = live_.find(id);
    if (found->second.connected) {
        batcher_.add(CallKind::kReset, id);
        account_.proposed_reset(id);
    }
    forget(found);
}

void Ingress::forget(Live::iterator at) {
    const Connection& connection = at->second;
    if (connection.windowed) windows_.close(connection.window);
    if (!connection.connected) {
        const auto waiting = held_back_.find(connection.addresses.listen_port);
        waiting->second.erase(connection.waits_as);
        if (waiting->second.empty()) held_back_.erase(waiting);
    }
    live_.erase(at);
}

// --- connections

Ingress::Connection* Ingress::find(uint32_t replica, uint64_t id) {
    if (!leading_ || attached_replica(id) != replica) return nullptr;
    const auto found = live_.find(id);
    return found == live_.end() || !found->second.named ? nullptr : &found->second;
}

void Ingress::open(uint32_t replica, uint64_t id, const timebubble::ConnectPayload& addresses, bool copy) {
    if (!leading_ || attached_replica(id) != replica) return;
    if (const auto found = live_.find(id); found != live_.end()) {
        take_name(id, found->second, copy, 0);  // proposed already, and perhaps decided
        return;
    }
    const auto last = last_numbers_.find({replica, addresses.listen_port});
    // It has come and gone here: the log will tell its replica.
    if (last != last_numbers_.end() && connection_number(id) <= last->second) return;
    if (live_.size() >= kMaxConnections) {
        peers_[replica].turned_away = true;
        return;
    }
    Connection& connection = live_[id];
    any_elsewhere_ |= replica != settings_.self;
    connection.addresses = addresses;
    connection.waits_as = ++arrivals_;
    held_back_[addresses.listen_port].emplace(connection.waits_as, id);
    connection.named = true;
    connection.copy = copy;
    connect_waiting();
}

void Ingress::resume(uint32_t replica, uint64_t id, bool copy, uint64_t taken) {
    if (!leading_ || attached_replica(id) != replica) return;
    const auto found = live_.find(id);
    if (found != live_.end()) take_name(id, found->second, copy, taken);
}

void Ingress::take_name(uint64_t id, Connection& connection, bool copy, uint64_t taken) {
    connection.named = true;
    connection.copy = copy;
    if (!connection.connected) return;
    if (!connection.windowed) {
        connection.windowed = true;
        connection.window.taken = std::min(taken, connection.window.end);
        windows_.adopt(connection.window);
    }
    FromPrimary* to = reply_(attached_replica(id));
    if (!to) return;
    to->accepted(id, connection.input);
    if (copy) to->copied(id, connection.window.sent, {});  // from where on
    if (copy && connection.output_ended) to->copied_end(id, connection.window.sent);
    give_credit(id, connection);
    raise_window(id, connection);
}

/// As far as there are places now, the oldest of each port first.
void Ingress::connect_waiting() {
    std::vector<uint64_t> now;
    for (auto at = held_back_.begin(); at != held_back_.end();) {
        HeldBack& waiting = at->second;
        while (!waiting.empty() && account_.place_for_client(at->first)) {
            const uint64_t id = waiting.begin()->second;
            waiting.erase(waiting.begin());
            connect(id, live_.at(id));
            now.push_back(id);
        }
        at = waiting.empty() ? held_back_.erase(at) : std::next(at);
    }
    // Answers may bring statements in turn, also of new connections: so only now.
    for (uint64_t id : now) {
        const auto found = live_.find(id);
        if (found != live_.end() && found->second.named) take_name(id, found->second, found->second.copy, 0);
    }
}

void Ingress::connect(uint64_t id, Connection& connection) {
    connection.connected = true;
    const timebubble::ConnectPayload& addresses = connection.addresses;
    last_numbers_[{attached_replica(id), addresses.listen_port}] = connection_number(id);
    batcher_.add(CallKind::kConnect, id, {reinterpret_cast<const char*>(&addresses), sizeof(addresses)});
    account_.proposed_connect(id, addresses.listen_port);
    connection.windowed = true;
    if (!windows_.open(connection.window)) return;
    const uint64_t end = connection.window.end;
    batcher_.add(CallKind::kWindow, id, {reinterpret_cast<const char*>(&end), sizeof(end)});
}

void Ingress::gone(uint32_t replica, uint64_t id) {
    if (find(replica, id)) reset(id);
}

// --- input

uint64_t Ingress::room(uint64_t id) const {
    return account_.input_room(id);
}

/// A client here is read as far as there is room when it speaks. One elsewhere is given credit beforehand, in
/// steps of half of what it is given at most; that doubles while the client uses all of it.
void Ingress::give_credit(uint64_t id, Connection& connection) {
    FromPrimary* to = connection.named && connection.connected ? reply_(attached_replica(id)) : nullptr;
    if (!to) return;
    const uint64_t room = account_.input_room(id);
    if (attached_replica(id) == settings_.self) {
        if (room != 0) to->credit(id, 0);
        return;
    }
    if (room == 0 || connection.promised * 2 > connection.credit_size) return;
    const uint64_t more = std::min(room, connection.credit_size - connection.promised);
    connection.promised += more;
    account_.promised_input(id, more);
    to->credit(id, more);
}

void Ingress::input(uint32_t replica, uint64_t id, uint64_t offset, std::string_view bytes) {
    Connection* connection = find(replica, id);
    if (!connection || !connection->connected || connection->input_ended) return;
    // What was proposed before is not taken again; a gap is a loss, after which there is a welcome.
    if (offset > connection->input) return;
    const uint64_t known = connection->input - offset;
    if (known >= bytes.size()) return;
    bytes.remove_prefix(known);
    batcher_.add(CallKind::kSend, id, bytes);
    connection->input += bytes.size();
    account_.proposed_input(id, bytes.size());
    connection->promised -= std::min<uint64_t>(connection->promised, bytes.size());
    if (connection->promised == 0)
        connection->credit_size = std::min(2 * connection->credit_size, kLargestCreditBytes);
    if (replica != settings_.self) give_credit(id, *connection);
}

void Ingress::credit_back(uint32_t replica, uint64_t id, uint64_t bytes) {
    Connection* connection = find(replica, id);
    if (!connection) return;
    connection->promised -= std::min(connection->promised, bytes);
    connection->credit_size = kFirstCreditBytes;
    account_.returned_input(id, bytes);
}

void Ingress::input_end(uint32_t replica, uint64_t id, uint64_t offset) {
    Connection* connection = find(replica, id);
    if (!connection || !connection->connected || connection->input_ended || connection->input != offset)
        return;
    connection->input_ended = true;
    batcher_.add(CallKind::kShutdown, id);
}

// --- output

void Ingress::taken(uint32_t replica, uint64_t id, uint64_t total) {
    Connection* connection = find(replica, id);
    if (!connection || !connection->windowed) return;
    total = std::min(total, connection->window.end);
    if (total <= connection->window.taken) return;
    windows_.taken(connection->window, total - connection->window.taken);
    raise_window(id, *connection);
}

void Ingress::raise_window(uint64_t id, Connection& connection) {
    if (!connection.windowed || !windows_.raise(connection.window)) return;
    const uint64_t end = connection.window.end;
    batcher_.add(CallKind::kWindow, id, {reinterpret_cast<const char*>(&end), sizeof(end)});
}

void Ingress::copy_output(const timebubble::OutputHeader& header, std::string_view payload,
                          const Connection& connection) {
    FromPrimary* to = connection.copy ? reply_(attached_replica(header.connection)) : nullptr;
    if (!to) return;
    const uint64_t offset = connection.window.sent;
    if (header.kind == OutputKind::kSend) to->copied(header.connection, offset, payload);
    if (header.kind == OutputKind::kShutdown) to->copied_end(header.connection, offset);
    if (header.kind == OutputKind::kClose) to->copied_close(header.connection, offset, header.flags & 1);
}

void Ingress::on_output(const timebubble::OutputHeader& header, std::string_view payload) {
    if (!leading_) return;
    if (header.kind == OutputKind::kListen) connect_waiting();
    if (const auto found = live_.find(header.connection); found != live_.end()) {
        Connection& connection = found->second;
        if (header.kind == OutputKind::kSend && payload.size() > connection.window.unsent())
            throw ImpossibleOutput(kBeyondWindow);
        copy_output(header, payload, connection);
        connection.output_ended |= header.kind == OutputKind::kShutdown;
        if (header.kind == OutputKind::kSend) {
            connection.window.sent += payload.size();
            raise_window(header.connection, connection);
        } else if (header.kind == OutputKind::kConsumed) {
            give_credit(header.connection, connection);
        } else if (header.kind == OutputKind::kClose) {
            forget(found);
        }
    }
    const bool frees_a_place = header.kind == OutputKind::kAccept || header.kind == OutputKind::kClose;
    if (frees_a_place && !held_back_.empty()) connect_waiting();
}

size_t Ingress::elsewhere() const {
    return static_cast<size_t>(std::count_if(live_.begin(), live_.end(), [this](const auto& one) {
        return attached_replica(one.first) != settings_.self;
    }));
}

size_t Ingress::held_back() const {
    size_t count = 0;
    for (const auto& [port, waiting] : held_back_) count += waiting.size();
    return count;
}

}  // namespace crane::proxy
