#include "proxy/domain_account.hpp"

#include <string.h>

#include <algorithm>

#include "proxy/carriage.hpp"

namespace crane::proxy {

using namespace timebubble;

namespace {

/// No connection holds more than 256 KiB, and none more than an eighth of what is left: one that hurries
/// leaves room.
constexpr uint64_t kMostChunks = 64;
constexpr uint64_t kShareOfRest = 8;

}  // namespace

DomainAccount::DomainAccount(uint64_t input_bytes)
    : common_limit_(std::min<uint64_t>(input_bytes / kInputChunkBytes, kCommonChunks)) {}

uint64_t DomainAccount::end(const Connection& one) {
    return std::max({one.received, one.proposed, one.promised});
}

uint64_t DomainAccount::common(const Connection& one) {
    return one.reset_decided || one.reset_proposed ? 0 : common_chunks(one.consumed, end(one));
}

DomainAccount::Connection* DomainAccount::find(uint64_t connection) const {
    if (last_ && last_id_ == connection) return last_;
    const auto found = all_.find(connection);
    if (found == all_.end()) return nullptr;  // the domain has closed it
    last_id_ = connection;
    return last_ = const_cast<Connection*>(&found->second);
}

template <typename Change>
void DomainAccount::change(uint64_t connection, Change how) {
    Connection* const one = find(connection);
    if (!one) return;
    const uint64_t before = common(*one);
    how(*one);
    common_used_ += common(*one) - before;
}

void DomainAccount::add(uint64_t connection, uint16_t port) {
    const auto [at, fresh] = all_.try_emplace(connection);
    if (!fresh) return;
    at->second.port = port;
    ++ports_[port].waiting;
}

/// One that the server has made waits at none of its ports.
void DomainAccount::add_accepted(uint64_t connection) {
    all_[connection].accepted = true;
}

void DomainAccount::remove(uint64_t connection) {
    const auto found = all_.find(connection);
    if (found == all_.end()) return;
    common_used_ -= common(found->second);
    if (!found->second.accepted) --ports_[found->second.port].waiting;
    if (last_ == &found->second) last_ = nullptr;
    all_.erase(found);
}

void DomainAccount::decided(const Call& call) {
    if (call.kind == CallKind::kConnect) {
        ConnectPayload addresses;
        if (call.payload.size() != sizeof(addresses)) return;
        memcpy(&addresses, call.payload.data(), sizeof(addresses));
        add(call.connection, addresses.listen_port);
        change(call.connection, [](Connection& one) { one.is_decided = true; });
        uint64_t& last = last_numbers_[{attached_replica(call.connection), addresses.listen_port}];
        last = std::max(last, connection_number(call.connection));
        return;
    }
    if (call.kind == CallKind::kConnected) {
        ConnectedPayload made;
        if (call.payload.size() != sizeof(made)) return;
        memcpy(&made, call.payload.data(), sizeof(made));
        if (made.error != 0) return;
        add_accepted(call.connection);
        all_[call.connection].is_decided = true;
        return;
    }
    Connection* const one = find(call.connection);
    if (!one) return;
    uint64_t end = 0;
    switch (call.kind) {
        case CallKind::kSend:
            change(call.connection, [&](Connection& it) { it.received += call.payload.size(); });
            break;
        case CallKind::kReset:
            change(call.connection, [](Connection& it) { it.reset_decided = true; });
            break;
        case CallKind::kShutdown:
            one->input_ended = true;
            break;
        case CallKind::kWindow:
            if (read_number(call.payload, end)) one->window_end = std::max(one->window_end, end);
            break;
        default:
            break;
    }
}

void DomainAccount::on_output(const OutputHeader& header, std::string_view payload) {
    switch (header.kind) {
        case OutputKind::kListen:
        case OutputKind::kUnlisten: {
            ListenRecord record;
            if (payload.size() != sizeof(record)) return;
            memcpy(&record, payload.data(), sizeof(record));
            ports_[record.port].places = record.actual_port ? kMaxBacklog : record.places;
            return;
        }
        case OutputKind::kAccept:
            change(header.connection, [&](Connection& one) {
                if (!one.accepted) --ports_[one.port].waiting;
                one.accepted = true;
            });
            return;
        case OutputKind::kConsumed: {
            uint64_t total = 0;
            if (payload.size() != sizeof(total)) return;
            memcpy(&total, payload.data(), sizeof(total));
            change(header.connection, [&](Connection& one) {
                if (total > one.consumed && total <= end(one)) one.consumed = total;
            });
            return;
        }
        case OutputKind::kSend:
            if (Connection* const one = find(header.connection)) one->sent += payload.size();
            return;
        case OutputKind::kShutdown:
            if (Connection* const one = find(header.connection)) one->output_ended = true;
            return;
        case OutputKind::kClose:
            remove(header.connection);
            return;
        default:
            return;
    }
}

void DomainAccount::proposed_connect(uint64_t connection, uint16_t port) {
    add(connection, port);
}

void DomainAccount::proposed_input(uint64_t connection, uint64_t bytes) {
    // Behind what is decided already: a connection may outlive the primary that proposed that.
    change(connection, [&](Connection& one) { one.proposed = std::max(one.proposed, one.received) + bytes; });
}

void DomainAccount::proposed_reset(uint64_t connection) {
    change(connection, [](Connection& one) { one.reset_proposed = true; });
}

void DomainAccount::promised_input(uint64_t connection, uint64_t bytes) {
    change(connection, [&](Connection& one) { one.promised = end(one) + bytes; });
}

void DomainAccount::returned_input(uint64_t connection, uint64_t bytes) {
    change(connection, [&](Connection& one) {
        const uint64_t come = std::min(one.promised, std::max(one.proposed, one.received));
        one.promised -= std::min(bytes, one.promised - come);
    });
}

void DomainAccount::forget_proposals() {
    std::vector<uint64_t> never_decided;
    for (auto& [id, one] : all_) {
        if (!one.is_decided) never_decided.push_back(id);
        const uint64_t before = common(one);
        one.proposed = one.promised = 0;
        one.reset_proposed = false;
        common_used_ += common(one) - before;
    }
    for (uint64_t id : never_decided) remove(id);
}

void DomainAccount::forget_connections() {
    all_.clear();
    last_ = nullptr;
    common_used_ = 0;
    for (auto& [port, one] : ports_) one.waiting = 0;
}

void DomainAccount::forget_listeners() {
    for (auto& [port, one] : ports_) one.places = 0;
}

DomainAccount::Kept DomainAccount::kept() const {
    Kept out;
    for (const auto& [id, one] : all_) {
        if (one.is_decided)
            out.connections.push_back(
                {id, one.port, one.accepted, one.reset_decided, one.received, one.consumed});
    }
    std::sort(out.connections.begin(), out.connections.end(),
              [](const KeptConnection& a, const KeptConnection& b) { return a.id < b.id; });
    for (const auto& [port, one] : ports_) out.places[port] = one.places;
    return out;
}

void DomainAccount::restore(const Kept& kept, const ConnectionTable::Map& open) {
    for (const auto& [port, places] : kept.places) ports_[port].places = places;
    for (const KeptConnection& one : kept.connections) {
        add(one.id, one.port);
        if (one.accepted) --ports_[one.port].waiting;
        change(one.id, [&](Connection& connection) {
            connection.is_decided = true;
            connection.accepted = one.accepted;
            connection.reset_decided = one.reset;
            connection.received = one.received;
            connection.consumed = std::min(one.consumed, one.received);
        });
    }
    for (const auto& [id, state] : open) {
        Connection* const one = find(id);
        if (!one) continue;
        one->sent = state.sent;
        one->window_end = state.window_end;
        one->input_ended = state.input_ended;
        one->output_ended = state.output_ended;
    }
}

ConnectionTable::Map DomainAccount::open() const {
    ConnectionTable::Map out;
    for (const auto& [id, one] : all_) {
        if (one.is_decided && !one.reset_decided)
            out[id] = {one.received, one.sent, one.window_end, one.input_ended, one.output_ended};
    }
    return out;
}

bool DomainAccount::place_for_client(uint16_t port) const {
    if (full()) return false;
    const auto found = ports_.find(port);
    if (found == ports_.end()) return true;
    const Port& one = found->second;
    return one.places == 0 || one.waiting < one.places;  // without a listener: the domain refuses it
}

uint64_t DomainAccount::input_room(uint64_t connection) const {
    const Connection* const found = find(connection);
    if (!found) return 0;
    const Connection& one = *found;
    const uint64_t last = end(one);
    const uint64_t left = common_limit_ - std::min(common_limit_, common_used_);
    const uint64_t most = kOwnChunks + std::min(kMostChunks - kOwnChunks, left / kShareOfRest);
    const uint64_t held = std::max(most, chunks_held(one.consumed, last));
    return (one.consumed / kInputChunkBytes + held) * kInputChunkBytes - last;
}

}  // namespace crane::proxy
