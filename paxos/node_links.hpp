// The links of a node: the transport, the addresses it is to use, and the encoding of what it carries.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "paxos/link/address_book.hpp"
#include "paxos/link/transport.hpp"
#include "paxos/node.hpp"
#include "paxos/shell.hpp"

namespace crane::paxos {

struct NodeLinksCallbacks {
    std::function<void(const Message& message)> on_message;
    std::function<void(ReplicaId from, std::string_view message)> on_app_message;
    std::function<void(ReplicaId peer, bool up)> on_link;
    std::function<void(ReplicaId peer)> on_gone;
    std::function<void()> on_news;  ///< there may be others to follow
};

class NodeLinks : public Links {
  public:
    /// Listens. `core` tells who the replicas are.
    NodeLinks(event_base* base, const NodeConfig& config, const Core& core, NodeLinksCallbacks callbacks);

    void start() { transport_->start(); }
    void close();  ///< for good; not from one of the callbacks
    bool open() const { return transport_ != nullptr; }

    bool up(ReplicaId peer) const override { return open() && transport_->up(peer); }
    uint32_t version(ReplicaId peer) const { return open() ? transport_->version(peer) : 0; }
    void send(const Message& message) override;
    void flush() override { transport_->flush(); }
    void follow(const Core& core) override;

    bool send_app_message(ReplicaId to, const std::string& message);
    size_t app_queue_bytes(ReplicaId to) const;
    bool encrypted() const { return open() && transport_->tls() != nullptr; }
    TlsStanding tls_standing() const { return encrypted() ? transport_->tls()->standing() : TlsStanding(); }
    TransportStats stats() const { return open() ? transport_->stats() : last_stats_; }

  private:
    bool on_frame(ReplicaId from, FrameType type, std::string_view payload);

    const ReplicaId self_;
    const NodeLinksCallbacks callbacks_;
    AddressBook book_;
    uint64_t known_peers_ = 0;  ///< Core::peers_version() that the transport knows
    std::unique_ptr<Transport> transport_;
    TransportStats last_stats_;
};

}  // namespace crane::paxos
