#include "paxos/node_links.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>

namespace crane::paxos {

NodeLinks::NodeLinks(event_base* base, const NodeConfig& config, const Core& core,
                     NodeLinksCallbacks callbacks)
    : self_(config.self), callbacks_(std::move(callbacks)), book_(config.self, config.members) {
    TransportConfig transport;
    transport.cluster_id = config.cluster_id;
    transport.self = config.self;
    transport.members = config.members;
    transport.tls = config.tls;
    transport.versions = config.versions;
    transport.greeting_timeout_ms = config.greeting_timeout_ms;
    TransportCallbacks handlers;
    handlers.on_frame = [this](ReplicaId from, FrameType type, std::string_view payload) {
        return on_frame(from, type, payload);
    };
    handlers.on_link = callbacks_.on_link;
    handlers.on_gone = callbacks_.on_gone;
    handlers.introduction = [&core] { return AddressBook::introduction(core.memberships().back()); };
    handlers.on_introduction = [this, &core](ReplicaId, std::string_view bytes) {
        if (!book_.hear(bytes, core.membership_index())) return;
        known_peers_ = 0;
        callbacks_.on_news();
    };
    transport_ = std::make_unique<Transport>(base, std::move(transport), std::move(handlers));
}

void NodeLinks::close() {
    if (!open()) return;
    last_stats_ = transport_->stats();
    transport_.reset();
}

bool NodeLinks::on_frame(ReplicaId from, FrameType type, std::string_view payload) {
    if (type == FrameType::kApp) {
        callbacks_.on_app_message(from, payload);
        return true;
    }
    Message message;
    if (!decode(payload, message) || message.from != from || message.to != self_) return false;
    callbacks_.on_message(message);
    return true;
}

void NodeLinks::send(const Message& message) {
    std::string frame = begin_frame();
    encode(message, frame);
    finish_frame(FrameType::kProtocol, frame);
    if (message.type == MessageType::kDisown) {
        if (open()) transport_->answer(message.to, std::move(frame));
        return;
    }
    // What tells that this replica is there waits for no entries, whose order is their own.
    const bool overtakes = message.type != MessageType::kPrepare && message.type != MessageType::kTakeOver;
    transport_->send(message.to, FrameType::kProtocol, std::move(frame), overtakes);
}

// The core's peers, and whoever a peer with a longer log knows of.
void NodeLinks::follow(const Core& core) {
    if (known_peers_ == core.peers_version()) return;
    known_peers_ = core.peers_version();
    std::vector<ReplicaId> unknown;
    const auto members = book_.resolve(core.peers(), core.memberships().back(), unknown);
    for (const ReplicaId id : unknown)
        spdlog::error("replica {} has no usable address: add it to this replica's configuration", id);
    transport_->set_members(members, std::max(core.membership().highest_id, book_.highest_id()));
}

bool NodeLinks::send_app_message(ReplicaId to, const std::string& message) {
    if (message.size() > kMaxAppMessageBytes || !up(to)) return false;
    return transport_->send(to, FrameType::kApp, make_frame(FrameType::kApp, message));
}

size_t NodeLinks::app_queue_bytes(ReplicaId to) const {
    return open() ? transport_->queued_bytes(to, FrameType::kApp) : 0;
}

}  // namespace crane::paxos
