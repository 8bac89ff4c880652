// Connections that other replicas open: listening, who they are, and what they say.
//
// Rules kept here:
//   - whoever is not a member is refused, with a reason both sides log. With TLS the certificate must name
//     the same as the greeting;
//   - those who have not said who they are get little: a bounded number of connections, a bounded time,
//     small frames. When there are too many, one of those goes who come from where most come from, so that
//     neither idle ones nor a flood keep a member out (strangers.hpp);
//   - one turn of the event loop takes a few new connections, and the next one the next: a flood neither
//     holds up the rest of the loop, nor piles up what is closed and not freed yet;
//   - a peer has one connection: its next one ends the one before.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "paxos/link/accept_pause.hpp"
#include "paxos/link/certificate.hpp"
#include "paxos/link/connection.hpp"
#include "paxos/link/frame.hpp"
#include "paxos/link/peer_address.hpp"
#include "paxos/link/refusal_log.hpp"

struct evconnlistener;
struct sockaddr;

namespace crane::paxos {

struct IncomingEvents {
    std::function<std::unique_ptr<Stream>(int fd)> make_stream;
    /// Why that replica has nothing to say here; "": it is a member.
    std::function<std::string(ReplicaId)> not_a_member;
    /// Protocol or App frames only. False: malformed, the connection is closed.
    std::function<bool(ReplicaId from, FrameType type, std::string_view payload)> on_frame;
    /// What this replica tells whoever greets it, at most kMaxIntroductionBytes. May be empty.
    std::function<std::string()> introduction;
    std::function<void(ReplicaId)> on_greeted;
    std::function<void(ReplicaId)> on_lost;
};

class IncomingPeers {
  public:
    IncomingPeers(event_base* base, Identity self, Versions versions, uint32_t greeting_timeout_ms,
                  IncomingEvents events);
    ~IncomingPeers();
    IncomingPeers(const IncomingPeers&) = delete;
    IncomingPeers& operator=(const IncomingPeers&) = delete;

    /// At every address that the name has here. Throws std::runtime_error.
    void listen(const PeerAddress& own);
    /// A connection of the peer's is there.
    bool hears(ReplicaId peer) const;
    void close(ReplicaId peer);
    /// Sends it a frame of the protocol on the connection that it opened. False: there is none, or it is
    /// full.
    bool answer(ReplicaId peer, std::string frame);
    uint64_t frames_received() const { return frames_received_; }
    uint64_t bytes_received() const { return bytes_received_; }

  private:
    struct Incoming;

    static void on_accept(evconnlistener*, int fd, sockaddr*, int, void* self);
    void accept(int fd, const sockaddr* from);
    void make_room();
    bool on_incoming_frame(Incoming& incoming, FrameType type, std::string_view payload);
    std::string refusal(const Incoming& incoming, const Hello& hello) const;
    bool close_quietly(Incoming& incoming);
    void lost(Incoming& incoming, const std::string& reason);
    void greeted(Incoming& incoming, ReplicaId from);
    void drop(Incoming& incoming);
    static void on_reap(int, short, void* self);

    event_base* const base_;
    const Identity self_;
    const Versions versions_;
    const timeval greeting_timeout_;
    const IncomingEvents events_;
    std::vector<evconnlistener*> listeners_;
    std::vector<std::unique_ptr<AcceptPause>> pauses_;  ///< for the listeners, in their order
    unsigned accepts_ = 0;                              ///< since the reaper ran last
    std::vector<evconnlistener*> resting_;              ///< until it runs again
    event* reaper_ = nullptr;
    RefusalLog refusals_;
    std::mt19937_64 lots_;
    std::vector<std::unique_ptr<Incoming>> all_;
    std::vector<std::unique_ptr<Incoming>> graveyard_;  ///< closed, perhaps from their own callbacks
    uint64_t frames_received_ = 0, bytes_received_ = 0;
};

}  // namespace crane::paxos
