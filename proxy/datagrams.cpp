#include "proxy/datagrams.hpp"

#include <string.h>
#include <sys/socket.h>

#include <nlohmann/json.hpp>

#include "proxy/client_connection.hpp"
#include "timebubble/limits.hpp"
#include "timebubble/transport.hpp"

namespace crane::proxy {

using timebubble::CallKind;
using timebubble::DatagramPayload;
using timebubble::DatagramRecord;

namespace {

/// The receiver of what comes from the outside.
constexpr uint64_t kNobody = 0;

bool is_family(uint16_t family) {
    return family == AF_INET || family == AF_INET6;
}

std::string address_of(const uint8_t (&bytes)[16]) {
    return {reinterpret_cast<const char*>(bytes), sizeof(bytes)};
}

/// False: no replica has made it.
bool read_call(std::string_view payload, DatagramPayload& call) {
    if (payload.size() < sizeof(call)) return false;
    memcpy(&call, payload.data(), sizeof(call));
    return payload.size() - sizeof(call) <= timebubble::kMaxDatagramBytes && is_family(call.family) &&
           call.reserved == 0;
}

}  // namespace

Datagrams::Datagrams(uint64_t life, Batcher& batcher, Ways ways)
    : life_(life), batcher_(batcher), ways_(std::move(ways)) {}

void Datagrams::received(std::string payload) {
    DatagramPayload call;
    if (!read_call(payload, call)) return;
    ++received_;
    call.receiver = life_;
    memcpy(payload.data(), &call, sizeof(call));
    if (ways_.proposes()) {
        propose(payload);
    } else if (!ways_.relay(std::move(payload))) {
        ++dropped_;
    }
}

void Datagrams::answered(std::string payload) {
    DatagramPayload call;
    if (!read_call(payload, call)) return;
    ++received_;
    call.receiver = kNobody;
    memcpy(payload.data(), &call, sizeof(call));
    if (ways_.proposes()) {
        propose(payload);
    } else {
        ++dropped_;
    }
}

void Datagrams::relayed(std::string_view payload) {
    DatagramPayload call;
    if (!ways_.proposes() || !read_call(payload, call)) return;
    relayed_ = true;
    propose(payload);
}

void Datagrams::propose(std::string_view payload) {
    if (batcher_.bytes() + payload.size() > kMostQueuedBytes) {
        ++dropped_;
        return;
    }
    ++proposed_;
    batcher_.add(CallKind::kDatagram, 0, payload);
}

Datagrams::Caller* Datagrams::find(const Key& key) {
    if (const auto found = callers_.find(key); found != callers_.end()) return &found->second;
    const auto before = earlier_.find(key);
    return before == earlier_.end() ? nullptr : &before->second;
}

void Datagrams::on_decided(uint64_t index, const timebubble::Call& call) {
    DatagramPayload from;
    if (call.kind != CallKind::kDatagram || !read_call(call.payload, from) || from.receiver == kNobody)
        return;
    const Key key{from.port, from.family, from.peer_port, address_of(from.peer)};
    const Caller* const known = find(key);
    Caller now{from.receiver, index, from};
    if (known && known->receiver == from.receiver) now.since = known->since;
    callers_[key] = now;
    callers_[{kAnyPort, from.family, from.peer_port, address_of(from.peer)}] = now;
    if (callers_.size() < 2 * kRemembered) return;  // each is there at its port, and at any
    earlier_ = std::move(callers_);
    callers_.clear();
}

void Datagrams::on_output(std::string_view payload, uint64_t admitted, bool serves) {
    DatagramRecord record;
    if (payload.size() < sizeof(record)) return;
    memcpy(&record, payload.data(), sizeof(record));
    const std::string peer = address_of(record.peer);
    const Caller* caller = find({record.port, record.family, record.peer_port, peer});
    // A server may answer from another port than it was asked at, one for each client (TFTP).
    if (!caller) caller = find({kAnyPort, record.family, record.peer_port, peer});
    if (!caller) {
        if (ways_.outward && ways_.outward(record, payload.substr(sizeof(record)))) return;
        if (++unasked_ < next_told_) return;
        next_told_ = unasked_ * 10;
        ways_.tell("the server sends a datagram to " +
                   address_text(record.family, record.peer, record.peer_port) +
                   ", which has sent it none: nothing goes to the outside by itself (" +
                   std::to_string(unasked_) + " so far)");
        return;
    }
    if (caller->receiver != life_ || caller->since > admitted || !serves) return;
    DatagramPayload client = caller->call;
    client.port = record.port;
    ++(ways_.send(client, payload.substr(sizeof(record))) ? sent_ : dropped_);
}

nlohmann::json Datagrams::json() const {
    return {{"received", received_},
            {"proposed", proposed_},
            {"sent", sent_},
            {"dropped", dropped_},
            {"unasked", unasked_}};
}

}  // namespace crane::proxy
