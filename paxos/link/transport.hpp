// Messages between replicas: one connection per direction and peer, over libevent.
//
// Rules kept here:
//   - each replica opens a connection to every other and sends on it; what comes in arrives on the
//     connections that others opened; only who is not to be believed is told so on its own. A lost one is
//     opened again with a growing pause, at once when the peer itself shows up;
//   - the greeting names cluster, sender, receiver and protocol version; whoever is not a member is refused,
//     with a reason both sides log. With TLS the certificates of both must name the same, and the greeting
//     counts only as far as they do; without TLS no address but a loopback one is used;
//   - whoever else connects is looked at in incoming_peers.hpp;
//   - queues are bounded: what does not fit is dropped and counted (the protocol sends again; the user is
//     told);
//   - nothing is written before flush(), so that all frames of one turn to a peer share a system call;
//     flush() writes directly and falls back on the event loop only when the socket is full.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "paxos/link/connection.hpp"
#include "paxos/link/frame.hpp"
#include "paxos/link/incoming_peers.hpp"
#include "paxos/link/peer_address.hpp"
#include "paxos/link/tls.hpp"
#include "paxos/link/tls_files.hpp"

namespace crane::paxos {

struct AddressInfo;

struct TransportConfig {
    std::string cluster_id;
    ReplicaId self = kNoReplica;
    std::vector<PeerAddress> members;
    TlsFiles tls;
    Versions versions;
    uint32_t greeting_timeout_ms = 2000;
    size_t max_protocol_queue_bytes = 32u << 20;
    size_t max_app_queue_bytes = kMaxAppQueueBytes;
};

struct TransportCallbacks {
    /// Protocol or App frames only. False: malformed, the connection is closed.
    std::function<bool(ReplicaId from, FrameType type, std::string_view payload)> on_frame;
    std::function<void(ReplicaId peer, bool up)> on_link;  ///< our sending side
    /// The peer's process seems to have ended: no connection with it is left, and nothing listens where it
    /// did.
    std::function<void(ReplicaId peer)> on_gone;
    /// What this replica tells whoever greets it, at most kMaxIntroductionBytes, and what it is told.
    std::function<std::string()> introduction;
    std::function<void(ReplicaId peer, std::string_view introduction)> on_introduction;
};

struct TransportStats {
    uint64_t frames_sent = 0, frames_received = 0, frames_dropped = 0;
    uint64_t bytes_sent = 0, bytes_received = 0;
};

class Transport {
  public:
    Transport(event_base* base, TransportConfig config, TransportCallbacks callbacks);  ///< listens
    ~Transport();
    Transport(const Transport&) = delete;
    Transport& operator=(const Transport&) = delete;

    void start();  ///< opens connections
    /// Who the replicas are from now on: opens the way to new ones, closes what leads to others. An id up to
    /// `highest_id` that is not among them has been removed. Not to be called from a callback.
    void set_members(const std::vector<PeerAddress>& members, ReplicaId highest_id);
    /// A finished frame. False: link down or queue full. Protocol frames go before others; those that
    /// overtake, before other protocol frames.
    bool send(ReplicaId to, FrameType type, std::string frame, bool overtakes = false);
    // The same to whoever speaks for `to`, on the connection that it opened: it may be another process than
    // the one that our link leads to.
    void answer(ReplicaId to, std::string frame);
    void flush();
    bool up(ReplicaId peer) const;
    uint32_t version(ReplicaId peer) const;  ///< of the protocol, as was sent there last; 0: nothing was
    const TlsContext* tls() const { return tls_.get(); }
    size_t queued_bytes(ReplicaId peer, FrameType type) const;
    TransportStats stats() const;

  private:
    struct Link;  ///< the way to a peer

    std::unique_ptr<Stream> make_stream(int fd, bool client);
    void dialled(Link& link);
    void dial(Link& link);
    void connect_to(Link& link, const AddressInfo& info);
    void dial_failed(Link& link, const std::string& reason, int connect_error = 0);
    void check_gone(ReplicaId peer);
    void dial_later(Link& link);
    bool on_link_frame(Link& link, FrameType type, std::string_view payload);
    std::string not_a_member(ReplicaId id) const;
    void greeted(ReplicaId peer);
    void bury(std::unique_ptr<Connection> connection);
    void add_link(const PeerAddress& address);
    void close_link(ReplicaId id);
    const PeerAddress& own_address() const;
    static void on_dial_timer(int, short, void* link);
    static void on_reap(int, short, void* self);
    static void on_tls_timer(int, short, void* self);

    event_base* const base_;
    const TransportConfig config_;
    const TransportCallbacks callbacks_;
    std::shared_ptr<TlsContext> tls_;  ///< null: the links are not encrypted
    bool started_ = false;
    ReplicaId highest_id_ = kNoReplica;
    event* reaper_ = nullptr;
    event* tls_timer_ = nullptr;
    std::map<ReplicaId, std::unique_ptr<Link>> links_;
    std::vector<std::unique_ptr<Connection>> graveyard_;  ///< closed, perhaps from their own callbacks
    TransportStats stats_;
    IncomingPeers incoming_;  ///< the first to go: it tells the links
};

}  // namespace crane::paxos
