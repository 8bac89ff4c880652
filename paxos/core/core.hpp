// The protocol: viewstamped multi-Paxos as a pure state machine.
//
// A view is led by one replica, whose id is part of the view number. The leader appends proposed values to
// its log and sends them to the others (Prepare); an entry is decided once it is on disk on a majority in the
// current view. The view changes in three steps: ask (ViewChange, with where the candidate's log ends),
// promise (a majority, each with its promise on disk, and only for a log at least as complete as its own),
// and the NewView entry, which the new leader proposes first and which decides all it has inherited.
//
// Why a decided entry is never lost: it is on a majority, any two majorities meet, and the one who meets
// refuses a candidate whose log (last view, last index) is behind its own. A leader counts acknowledgements
// only for entries from its own view's NewView entry on; older ones are decided with it.
//
// Rules kept here:
//   - no socket, clock, thread or random number: time comes with tick(), the seed with the configuration;
//   - the outbox says what must be durable before what is sent: send_now may leave before the persist (only a
//     leader's own Prepare and Commit do), send_after must not;
//   - a promise or an acknowledgement, the replica's own included, counts only once persisted() was called;
//   - pre-vote and the lease: a replica that hears its leader helps nobody to depose it, and one that has
//     asked around in vain has changed nobody's view; a leader that lost touch with a majority steps down;
//     one whose process is seen to end is not waited for, but asked for like any other;
//   - silence is measured in time in which this replica could have heard something (held_up), and against
//     the delays that were seen (patience.hpp);
//   - a replica that lost its database has forgotten what it promised: it is sent the log, but neither votes
//     nor counts until it has a Return entry that was proposed after the loss and decided without it;
//   - the membership is the latest in the log, decided or not; it changes by one replica at a time
//     (membership.hpp). Whoever speaks is listened to, only members that vote are counted; one whose removal
//     is not decided yet may still be elected, by the others, and hands over once it is;
//   - who speaks from an old or a second copy of a database is not listened to, and told so; each start of
//     each database becomes an entry, and a start without one decides nothing as long as it need not
//     (incarnation.hpp, lineage.hpp);
//   - everything is bounded: the pipeline, batches, what is in flight to a peer, memory, and how far one
//     message may move the views on.
//
// Files: core.cpp (life cycle, time, outbox), view_change.cpp, replication.cpp (leader's side), backup.cpp,
// reconfiguration.cpp (who the replicas are, and their coming back), starts.cpp (which of their starts
// count).
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "paxos/core/lineage.hpp"
#include "paxos/core/log_window.hpp"
#include "paxos/core/membership.hpp"
#include "paxos/core/message.hpp"
#include "paxos/core/patience.hpp"
#include "paxos/core/storage.hpp"
#include "paxos/core/types.hpp"

namespace crane::paxos {

struct CoreConfig {
    ReplicaId self = kNoReplica;
    Membership members;  ///< with which the cluster began, self included; what is stored comes before it
    uint64_t heartbeat_us = 50'000;
    uint64_t election_timeout_us = 500'000;  ///< at least: see Patience
    uint64_t max_election_timeout_us = 2'000'000;
    uint64_t commit_delay_us = 1'000;  ///< how long a decision may wait for a Prepare to ride on
    size_t max_inflight_entries = 1024;
    size_t max_inflight_bytes = 8u << 20;
    /// Of values in one Prepare (but one value always fits). What is urgent waits for one frame at most.
    size_t max_batch_bytes = 256u << 10;
    size_t max_memory_entries = 8192;  ///< decided entries kept in memory for peers slightly behind
    size_t max_memory_bytes = 16u << 20;
    size_t max_delivery_entries = 1024;  ///< handed out per outbox
    size_t max_delivery_bytes = 4u << 20;
    uint64_t seed = 0;
    uint64_t run = 1;  ///< not 0, and another one each time that this replica starts
};

struct Outbox {
    std::vector<Message> send_now;
    PersistBatch persist;             ///< when not empty: make durable, then call Core::persisted()
    std::vector<Message> send_after;  ///< only when `persist` is durable
    std::vector<Entry> decided;       ///< in order, without gaps
    bool more_decided = false;        ///< take the outbox again soon

    bool empty() const {
        return send_now.empty() && persist.empty() && send_after.empty() && decided.empty() && !more_decided;
    }
};

/// Counters for people and tests.
struct CoreStats {
    uint64_t proposals = 0;
    uint64_t views_entered = 0;
    uint64_t entries_from_disk = 0;
    uint64_t retransmissions = 0;
    uint64_t mismatched_chains = 0;  ///< a peer's log differs where it must not: corruption
    uint64_t absurd_views = 0;       ///< messages of views that there cannot be: refused
    ReplicaId absurd_from = kNoReplica;
    uint64_t disowned = 0;                 ///< messages from copies of databases: refused
    ReplicaId disowned_from = kNoReplica;  ///< and nothing believable since
    Copy disowned_as = Copy::kCurrent;
};
std::string describe_disowned(const CoreStats& stats);

class Core {
  public:
    /// `reader` must outlive the core and show everything that was persisted.
    Core(const CoreConfig& config, const StoredState& stored, const LogReader& reader);

    /// Delivery starts with the entry `index`.
    void deliver_from(uint64_t index);
    void pause_delivery(bool paused) { delivery_paused_ = paused; }

    /// Moves the clock on, without acting on it. Call before step(), so that messages that waited while this
    /// process was held up are seen before their absence is.
    void advance_clock(uint64_t now_us);
    /// Moves the clock on and does what is due. Call when next_deadline_us() is reached.
    void tick(uint64_t now_us);
    uint64_t next_deadline_us() const;
    /// This replica did not run for that long, as far as its user can tell, and heard nobody meanwhile: time
    /// in which no silence counts. Call after advance_clock(), before what has arrived meanwhile is stepped.
    void held_up(uint64_t us);
    /// A sync, or something else that others wait for, took so long.
    void saw_delay(uint64_t us) { patience_.saw_delay(now_us_, us); }
    uint64_t election_timeout_us() const { return patience_.timeout_us(); }
    const CoreConfig& config() const { return config_; }

    void step(const Message& message);
    /// The value is moved from only when accepted.
    bool propose(std::string& value);
    bool can_propose() const;
    /// Proposes the membership that `change` makes of the present one. Empty: it is in the log, watch for its
    /// being decided; else why not, and nothing happened.
    std::string propose_change(const MembershipChange& change);
    void transfer_leadership(ReplicaId to);  ///< kNoReplica: to whoever is best caught up
    void step_down();
    /// This process is about to end: it proposes nothing any more, and if it leads, it asks one after the
    /// other to take over, until one does.
    void leave();
    /// Whether this replica should lead: one whose state is known to be wrong still votes and keeps the log,
    /// but it neither asks for votes nor takes over, and hands over if it leads. Only where nobody leads for
    /// long it stands all the same, since it may be the only one with all that is decided, and hands over
    /// then.
    void set_eligible(bool eligible);
    bool eligible() const { return eligible_; }
    /// Whether there is room on the disk for what a leader sends. Without, a follower takes no entries, and
    /// goes on following and voting, for which its reserve is.
    void set_has_room(bool has_room) { has_room_ = has_room; }
    bool takes_entries() const { return has_room_; }
    /// Whether others wait for what is decided. Where nobody does, the leader's word of a decision may ride
    /// on the next Prepare (commit_delay_us at most): a message less for each follower, and a call to wake
    /// it.
    void set_decisions_awaited(bool awaited) { decisions_awaited_ = awaited; }
    bool decisions_awaited() const { return decisions_awaited_; }
    /// Messages to `peer` may have been lost (link went down and up): look where it stands.
    void link_restored(ReplicaId peer);
    /// The process of `peer` seems to have ended. May be wrong: it changes who asks for votes when, not what
    /// anybody promises. True if that makes a difference.
    bool peer_gone(ReplicaId peer);

    /// Collects what has to be done. Between taking a non-empty persist and persisted(), nothing else may be
    /// called that changes the core.
    void take_outbox(Outbox& out);
    void persisted();
    /// While a persist is under way, now and then: messages that say this replica is there, and no more than
    /// it has said before or might have.
    void still_here(std::vector<Message>& out) const;

    /// A checkpoint of this replica's state after entry `index` is durable. Once a majority of the voting
    /// members holds one as new, each cuts its log there: log_start() tells how far the disk's may be cut.
    void hold_checkpoint(uint64_t index);

    Role role() const { return role_; }
    View view() const { return view_; }
    ReplicaId leader() const { return leader_; }
    uint64_t decided_index() const { return commit_; }
    uint64_t delivered_index() const { return delivered_; }
    /// Appends decided entries from `first` on, or none; so many as one outbox delivers at most.
    void read_decided(uint64_t first, std::vector<Entry>& out) const;
    uint64_t last_index() const { return log_.last_index(); }
    uint64_t durable_index() const { return durable_; }
    const LogPosition& log_start() const { return log_.start(); }
    uint64_t common_checkpoint() const { return common_checkpoint_; }  ///< a majority holds, as far as heard
    LogPosition log_position(uint64_t index) const { return log_.position(index); }
    const CoreStats& stats() const { return stats_; }
    const Membership& membership() const { return memberships_.back().membership; }
    uint64_t membership_index() const { return memberships_.back().index; }
    const std::vector<MembershipAt>& memberships() const { return memberships_; }  ///< see StoredState
    bool removed() const;                  ///< a decided entry says that this replica is no member any more
    std::vector<ReplicaId> peers() const;  ///< whom this replica may have to talk to
    uint64_t peers_version() const { return peers_version_; }  ///< grows when they change
    bool rejoining(ReplicaId peer) const;                      ///< leader: as it last said
    uint64_t matched(ReplicaId peer) const;   ///< leader: how far the peer's log is known to be this one's
    uint64_t heard_us(ReplicaId peer) const;  ///< when the peer last answered
    bool decides_alone() const { return alone(); }
    bool needs_checkpoint(ReplicaId peer) const;
    uint64_t held_checkpoint(ReplicaId peer) const;  ///< as it last told this leader
    bool rejoining() const { return rejoining_; }
    /// What is known of starts; goes with a checkpoint, whose log may have been cut.
    const Incarnations& starts() const { return starts_.table; }
    /// A peer knows that this replica's database is no current one: it must speak no more.
    Copy disowned() const { return disowned_; }
    ReplicaId disowned_by() const { return disowned_by_; }
    bool transferring() const { return transfer_to_ != kNoReplica; }
    std::string describe() const;

  private:
    friend struct Tamper;  ///< tests/sim plants bugs with it, which must be noticed

    /// What the leader knows of one peer.
    struct Peer {
        ReplicaId id = kNoReplica;
        bool voter = true;
        uint64_t leaving_until_us = 0;  // no member any more, but should learn of it; 0: is a member
        uint64_t match = 0;             // its log is this one's up to here, on its disk
        uint64_t counted = 0;           // the same, as far as it is to be counted: see Message::rejoining
        Origin origin;                  // in this view, as it last said; it answered if `answered`
        bool answered = false;
        uint64_t lives_from = 0;    // its database is new here: believed when it has this entry
        uint64_t rejoining = 0;     // as it last said
        uint64_t comeback_run = 0;  // a Return entry of this view names this run of it
        uint64_t checkpoint = 0;    // as it last said
        uint64_t next = 1;          // next entry to send
        bool probing = true;        // its log's end is being looked for: one Prepare at a time
        bool probe_out = false;     // that Prepare is under way
        bool unanswered = false;    // the last one was not answered in time: the next is without entries
        unsigned rewinds = 0;       // since it last took anything
        bool must_restore = false;  // what it lacks is no longer in the log: it needs a checkpoint
        uint64_t heard_us = 0;
        uint64_t sent_us = 0;      // last message that asks for an answer
        uint64_t progress_us = 0;  // last acknowledgement of something new, or start of waiting
        uint64_t commit_told = 0;
        uint64_t untold_since_us = 0;  // a decision it has not been told of is this old; 0 = none
        struct Flight {
            uint64_t last_index;
            size_t bytes;
        };
        std::deque<Flight> flights;  // Prepares not yet acknowledged
        size_t flight_bytes = 0;
        /// It answers, perhaps, and has no room: entries are sent one by one.
        bool refuses() const { return rewinds > 2; }
        /// It answers, and takes nothing of the log, however long one waits.
        bool stuck() const { return must_restore || refuses(); }
    };

    // core.cpp
    bool alone() const;  ///< decides by itself
    Message make_ack(uint64_t index) const;
    bool may_lead() const;
    bool leaves_it_to_others() const;
    uint64_t barred_patience_us() const { return 4 * config_.election_timeout_us; }
    Peer* find_peer(ReplicaId id);
    const Peer* find_peer(ReplicaId id) const;
    Message make(MessageType type, ReplicaId to) const;
    uint64_t random_election_timeout();
    void fill_persist(PersistBatch& batch);
    void fill_decided(Outbox& out);
    void fill_replies(Outbox& out);
    void trim_memory();
    void truncate_log();

    // view_change.cpp
    void become_follower(View view, ReplicaId leader);
    View next_view() const;
    bool believable(View view) const;
    void start_pre_vote();
    void start_view_change(bool forced);
    void ask_for_votes();
    void count_votes();
    void become_leader();
    bool lease_holds(const Message& asked) const;
    uint64_t succession_delay_us() const;
    void on_vote_request(const Message& message);
    void on_vote_reply(const Message& message);
    void on_take_over(const Message& message);
    void on_declined(const Message& message);
    ReplicaId successor() const;
    uint64_t take_over_patience_us() const;
    void saw_higher_view(View view);
    void queue_reply(Message reply);

    // reconfiguration.cpp
    void set_peers();
    void resign();
    void retire_peers();
    void adopt(const Entry& entry);  ///< appended just now
    void abandon_from(uint64_t index);
    void check_return();
    void hear_rejoining(Peer& peer, uint64_t run);
    std::string why_no_change(const MembershipChange& change, const Membership& next) const;

    // starts.cpp
    bool refuse(const Message& message);
    void disown(Copy copy, ReplicaId by);
    void on_disown(const Message& message);
    void adopt_starts(const Entry& entry);
    void forget_starts_of_strangers();
    void hear_start(Peer& peer, const Origin& origin);
    bool is_news(const Peer& peer) const;
    void announce_starts();
    bool start_decided(const Peer& peer) const;
    bool in_touch(const Peer& peer) const;
    bool needs_new_starts() const;

    // replication.cpp: the leader
    void append(EntryKind kind, std::string value);
    void on_ack(const Message& message);
    void on_reject(Peer& peer, const Message& message);
    void advance_commit();
    void fill_leader_sends(Outbox& out);
    void send_entries(Peer& peer, Outbox& out);
    Message make_commit(ReplicaId to, bool wants_ack) const;
    void send_commit(Peer& peer, bool wants_ack, Outbox& out);
    void rewind(Peer& peer);
    bool far_behind(const Peer& peer) const;
    bool has_room(const Peer& peer) const;
    void regress(Peer& peer, uint64_t last_index);
    void leader_tick();
    bool quorum_in_touch() const { return now_us_ < quorum_heard_us() + patience_.timeout_us(); }
    void saw_arrival(uint64_t previous_us);
    uint64_t quorum_heard_us() const;
    void learn_checkpoints();
    uint64_t leader_deadline_us() const;
    uint64_t retransmit_us() const { return 2 * config_.heartbeat_us; }

    // backup.cpp: a follower
    bool accept_leader(const Message& message);
    void learn_commit(const Message& message);
    void on_prepare(const Message& message);
    void on_commit(const Message& message);
    void queue_reject(const Message& message, uint64_t hint);

    const CoreConfig config_;
    uint64_t now_us_ = 0;
    uint64_t random_state_;
    Patience patience_;

    Role role_ = Role::kFollower;
    View view_;                      ///< promised: nothing below is accepted
    View durable_view_;              ///< the promise that is on disk
    View highest_seen_;              ///< of anybody; the next view change must go above it
    ReplicaId leader_ = kNoReplica;  ///< of view_, once heard of
    LogWindow log_;
    uint64_t durable_;  ///< the log is on this replica's disk up to here
    uint64_t commit_;
    uint64_t delivered_ = 0;
    uint64_t checkpoint_;             ///< this replica holds one up to here
    uint64_t common_checkpoint_ = 0;  ///< a majority does, as far as heard
    bool delivery_paused_ = false;
    bool eligible_ = true;
    uint64_t barred_since_us_ = 0;
    bool decisions_awaited_ = true;
    bool has_room_ = true;
    bool rejoining_;                         ///< no votes: see StoredState
    uint64_t comeback_index_ = 0;            ///< of the Return entry for this run; 0: not in the log
    std::vector<MembershipAt> memberships_;  ///< see StoredState
    bool memberships_due_ = false;           ///< to be persisted
    bool rejoined_due_ = false;
    uint64_t matched_ = 0;        ///< follower: the log is the leader's up to here
    uint64_t leader_commit_ = 0;  ///< of this view's leader, as far as heard

    // Persist under way or due.
    uint64_t truncate_from_ = 0;
    bool persist_out_ = false;

    // Follower, candidates.
    uint64_t election_deadline_us_ = 0;
    uint64_t leader_heard_us_ = 0;
    bool leader_gone_ = false;      ///< its process seems to have ended, and nothing has come from it since
    uint64_t silent_until_us_ = 0;  ///< just started: a leader may be alive and not have been heard yet
    uint64_t ask_again_us_ = 0;
    View asked_view_ = 0;
    bool forced_ = false;
    std::set<ReplicaId> votes_;
    std::vector<Message> replies_;  ///< go out after the next persist
    bool ack_due_ = false;

    // Leader.
    uint64_t view_start_ = 0;  ///< index of the NewView entry
    uint64_t uncommitted_bytes_ = 0;
    std::vector<Peer> peers_;
    uint64_t peers_version_ = 0;
    ReplicaId transfer_to_ = kNoReplica;
    bool transfer_to_any_ = false;  ///< another one will do as well
    uint64_t leads_since_us_ = 0;
    uint64_t transfer_deadline_us_ = 0;
    std::set<ReplicaId> declined_;  ///< to whom it was handed over in vain
    bool leaving_ = false;
    uint64_t resign_again_us_ = 0;
    uint64_t transfer_sent_us_ = 0;

    Origin origin_;
    Lineages lineages_;
    StartsAt starts_;              ///< the newest in the log, and what is known beyond
    Incarnations decided_starts_;  ///< the newest table before starts_ that this replica knew to be decided
    bool starts_due_ = false;      ///< to be persisted
    Copy disowned_ = Copy::kCurrent;
    ReplicaId disowned_by_ = kNoReplica;

    CoreStats stats_;
};

}  // namespace crane::paxos
