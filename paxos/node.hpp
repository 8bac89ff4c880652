// Consensus for craned: viewstamped multi-Paxos bound to a libevent loop.
//
// paxos/ decides one sequence of opaque values that is the same on all replicas:
//   core/   the protocol: a pure state machine without sockets, clock, threads or random numbers
//   store/  the log and the view on disk (Berkeley DB), one synced transaction per outbox
//   link/   framed messages between replicas (libevent, TCP)
//   shell   the loop of one replica over any storage, links and clock: what the simulator runs, too
//   node    this file: binds the four to an event_base; the only header other parts need
//
// Rules kept here:
//   - one thread: everything, callbacks included, runs in the thread that runs the event loop;
//   - within one turn of the loop: all messages read are stepped, then one persist, then the sends, so that
//     everything that arrived together shares one sync;
//   - on_decided sees every entry from `first_index` on, once, in index order, without a gap, and only
//     after it is durable on a majority *and* on this replica;
//   - a replica that cannot persist stops (on_fatal): it never acknowledges what is not on disk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/latency_histogram.hpp"
#include "paxos/callbacks.hpp"
#include "paxos/core/incarnation.hpp"
#include "paxos/core/membership.hpp"
#include "paxos/core/types.hpp"
#include "paxos/link/frame.hpp"
#include "paxos/link/peer_address.hpp"
#include "paxos/link/tls_files.hpp"

struct event_base;

namespace crane::paxos {

struct NodeConfig {
    std::string cluster_id;  ///< peers and databases of another cluster are refused
    uint32_t self = 0;       ///< must be among `members`
    /// All replicas with which the cluster began, self included. Who the replicas are now is in the log and
    /// in the database, which come before this; an address given here comes before the log's.
    std::vector<PeerAddress> members;
    Versions versions;   ///< of the protocol
    TlsFiles tls;        ///< needed as soon as one address is not a loopback one
    bool join = false;   ///< added to a running cluster: a learner, until the log says that it votes
    std::string db_dir;  ///< created when missing
    uint32_t heartbeat_ms = 50;
    /// Of silence, on a quiet machine; real timeouts are drawn from [1x, 1.4x) of it; >= 3 heartbeats. Where
    /// heartbeats and syncs are seen to be late it grows, up to max_election_timeout_ms (0: four times as
    /// long).
    uint32_t election_timeout_ms = 500;
    uint32_t max_election_timeout_ms = 0;
    uint32_t greeting_timeout_ms = 2000;  ///< so long may one who connects not say who it is
    size_t max_inflight_entries = 1024;   ///< proposed and not yet decided: beyond it propose() says false
    size_t max_inflight_bytes = 8u << 20;
    bool durable = true;  ///< false: no sync (for tests and measurements; survives no power cut)
    uint64_t seed = 0;    ///< of the randomised election timeouts; 0 = take one from the system
    /// The replica was restored from a checkpoint that covers the log up to this entry (Entry::position() of
    /// the last entry it contains; index 0 = no checkpoint). Where the local log does not reach it, the log
    /// starts anew behind it.
    LogPosition checkpoint;
    MembershipAt checkpoint_membership;  ///< Node::delivered_membership() there
    Incarnations checkpoint_starts;      ///< Node::starts() there
    /// If there is no database yet: this replica has been a member before and lost it. It then takes part
    /// without voting until it has again all that is decided. Must be set when a replica is rebuilt, else
    /// decided entries may be lost; must not be set on all replicas of a new cluster, which would have no
    /// voters. Implied by `checkpoint`.
    bool rejoin = false;
};

struct NodeStats {
    uint64_t syncs = 0;  ///< synced transactions
    uint64_t longest_sync_us = 0;
    LatencyHistogram sync_latency;     ///< from the first write of a turn to its being durable
    uint64_t election_timeout_us = 0;  ///< as it is now
    uint64_t proposals = 0;            ///< accepted by propose() here
    uint64_t decided = 0;              ///< entries handed to on_decided
    uint64_t messages_sent = 0;
    uint64_t messages_received = 0;
    uint64_t bytes_sent = 0;
    uint64_t bytes_received = 0;
    uint64_t messages_dropped = 0;   ///< queue to a peer full, or peer unreachable
    uint64_t view_changes = 0;       ///< views entered
    uint64_t entries_caught_up = 0;  ///< read back from disk for a lagging peer
    std::string disowned;            ///< who is not listened to, why, and what to do; empty: nobody
};

/// A member as seen from this replica; all but the first three and `connected` is meaningful on the leader.
struct PeerStatus {
    uint32_t id = 0;
    bool voter = true;
    bool rejoining = false;
    bool needs_checkpoint = false;  ///< what it lacks has been cut from this leader's log
    bool connected = false;
    bool silent = false;      ///< not heard for as long as any leader waits, whether there is a link or not
    uint32_t protocol = 0;    ///< version that it was spoken to in last; 0: not connected yet
    uint64_t checkpoint = 0;  ///< the newest that it holds, as it last told this leader
    uint64_t matched = 0;
    uint64_t heard_ms_ago = 0;
};

class Node {
  public:
    /// Opens the database (with recovery) and binds the listening socket. Throws std::runtime_error with a
    /// message for the operator: foreign cluster or replica id, corrupt database, full disk, address in use,
    /// bad configuration.
    Node(event_base* base, NodeConfig config, NodeCallbacks callbacks);
    ~Node();
    Node(const Node&) = delete;
    Node& operator=(const Node&) = delete;

    /// Joins the cluster. on_decided starts with the entry `first_index` (1 = the whole log). Entries already
    /// known to be decided are replayed from disk in bounded portions per loop turn.
    void start(uint64_t first_index);

    /// Appends `value` to the log if this replica leads and the pipeline has room; otherwise false, and
    /// nothing happened. True is not yet decided: watch on_decided. If leadership is lost, a value accepted
    /// here may or may not be decided later, possibly by another leader; the user tells by what on_decided
    /// brings. Values accepted by one leader in one view are decided in the order of the calls. All proposals
    /// of one loop turn share messages and sync.
    bool propose(std::string value);
    bool can_propose() const;

    Role role() const;
    uint64_t view() const;    ///< see view_counter(), view_leader(), view_name()
    uint32_t leader() const;  ///< 0 = not known
    uint64_t decided_index()
        const;  // last entry known to be decided (may be ahead of on_decided while replaying)
    uint64_t delivered_index() const;  ///< last entry handed to on_decided
    uint64_t last_index() const;       ///< last entry of this replica's log
    /// Decided entries from `first` on, a piece of the log, delivered or not; empty when there are none.
    std::vector<Entry> read_decided(uint64_t first);

    /// Holds back on_decided (entries stay in the log, on disk) and lets it go again: back-pressure for a
    /// user that replays slower than the log can be read. Takes part in consensus all the same.
    void pause_delivery(bool paused);

    /// Asks replica `to` (0 = the one best caught up) to take over. New proposals are refused until it has,
    /// or until one election timeout has passed. Only meaningful on the leader.
    void transfer_leadership(uint32_t to);
    /// Adds a learner, promotes one or removes a replica: on the leader. Empty: proposed, on_membership will
    /// tell; else why not.
    std::string change_membership(const MembershipChange& change);
    const Membership& membership() const;  ///< the latest in this replica's log, decided or not
    uint64_t membership_index() const;     ///< of the entry that brought it; 0: the cluster began with it
    /// The one that holds at delivered_index(), for a checkpoint there. Null: too long ago to be known, while
    /// the log is replayed.
    const MembershipAt* delivered_membership() const;
    /// Which starts of which databases count (core/incarnation.hpp), for a checkpoint, too.
    const Incarnations& starts() const;
    /// Why on_fatal was called: another replica knows that the database here is an old or a second copy.
    bool disowned() const;

    /// Gives up leadership at once without naming a successor. Followers elect one; this replica waits a
    /// little longer.
    void step_down();
    /// See Core::set_eligible().
    void set_eligible(bool eligible);
    /// See Core::set_has_room().
    void set_has_room(bool has_room);
    /// See Core::set_decisions_awaited().
    void set_decisions_awaited(bool awaited);

    /// Opaque bytes to another craned over the same connections as the protocol, at lower priority. Ordered
    /// per peer, not ordered with on_decided, lost when the link goes down. False when the peer is
    /// unreachable, the message is too large, or the queue is full; nothing is queued then.
    bool send_app_message(uint32_t to, const std::string& message);
    size_t app_queue_bytes(uint32_t to) const;

    NodeStats stats() const;
    TlsStanding tls_standing() const;
    std::vector<PeerStatus> peers() const;
    /// Several lines for people: role, view, log positions, peers, in-flight.
    std::string describe() const;

    bool rejoining() const;  ///< not voting yet: see NodeConfig::rejoin

    /// Log space: a checkpoint of this replica that covers the entries up to `index` is durable. Once a
    /// majority of the voting members holds one as new, those entries are deleted, a bounded number per turn.
    void hold_checkpoint(uint64_t index);
    /// A majority holds a checkpoint there or behind, as far as this replica has heard.
    uint64_t common_checkpoint() const;
    uint64_t first_log_index() const;  ///< oldest entry still on disk

    /// Clean end: hands leadership over if this replica leads (bounded by one election timeout), closes links
    /// and database, then calls on_done from the event loop. Without it, destroying the node is a crash-stop
    /// (safe).
    void shutdown(std::function<void()> on_done = {});

  private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace crane::paxos
