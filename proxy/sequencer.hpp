// Where batches get their order: the consensus node, or, for a replica without consensus (mode dmt), this
// process alone. The rest of craned sees one interface and does not ask which it is.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/latency_histogram.hpp"
#include "paxos/node.hpp"
#include "proxy/checkpoint_state.hpp"
#include "proxy/config.hpp"

struct event;
struct event_base;

namespace crane::proxy {

struct SequencerEvents {
    /// A decided batch, in order.
    std::function<void(uint64_t index, uint64_t view, const std::shared_ptr<const std::string>& batch)>
        on_batch;
    /// This replica leads and has seen all that was decided before: it may propose.
    std::function<void()> on_ready;
    std::function<void()> on_role;
    std::function<std::string()> make_report;
    std::function<void(uint32_t from, const std::string& report)> on_report;
    std::function<void(uint32_t from, std::string message)> on_message;
    std::function<void(uint32_t peer, bool up)> on_peer;
    std::function<void(const std::string& reason)> on_fatal;
    /// Who the replicas are, by the entry that was decided last of those that say so.
    std::function<void(const paxos::MembershipAt& decided)> on_membership;
};

class Sequencer {
  public:
    /// `from`: what is decided up to there is known, and only what follows is delivered.
    Sequencer(event_base* base, const Config& config, const std::optional<CheckpointState>& from,
              SequencerEvents events);
    ~Sequencer();

    void start();
    /// Leads, and has seen everything decided before its view.
    bool ready() const { return ready_; }
    bool can_propose() const;
    bool propose(std::string batch);
    /// Accepted by propose() in this view and not yet seen as decided.
    uint64_t undecided() const { return undecided_; }
    /// From propose() here to being decided, and seen so.
    const LatencyHistogram& latency() const { return latency_; }
    void pause_delivery(bool paused);

    bool leads() const;
    uint64_t view() const;
    uint64_t view_counter() const;
    uint32_t leader() const;
    const char* role_name() const;
    uint64_t decided_index() const;
    uint64_t delivered_index() const;
    uint64_t last_index() const;  ///< of this replica's log, decided or not
    uint64_t batches_seen() const { return batches_seen_; }
    /// Decided entries from `first` on, a piece of the log; none without a node.
    std::vector<paxos::Entry> read_decided(uint64_t first);
    /// Shows decided batches from entry `first` on, delivered or not, a piece of the log at a time. Returns
    /// the first entry that is not looked at.
    uint64_t look_ahead(uint64_t first,
                        const std::function<void(uint64_t index, const std::string& batch)>& see);

    /// For a checkpoint, in on_batch(): where that entry stands in the log, who the members are there (null:
    /// not known, so far back), and which starts of databases count.
    const paxos::LogPosition& delivered_position() const { return delivered_; }
    const paxos::MembershipAt* delivered_membership() const;
    paxos::Incarnations starts() const;
    /// This replica has a durable checkpoint there: the log is cut behind it once a majority has.
    void hold_checkpoint(uint64_t index);
    uint64_t first_log_index() const;
    /// A majority holds a checkpoint there, or behind it, as far as this replica has heard.
    uint64_t common_checkpoint() const;
    /// What would be delivered next is no longer in the log: before start() says so, nothing is delivered.
    bool lacks_checkpoint() const { return first_log_index() > delivered_.index + 1; }

    void transfer(uint32_t to);
    /// See paxos::Core::set_eligible(); without a node this replica is alone.
    void set_eligible(bool eligible) {
        if (node_) node_->set_eligible(eligible);
    }
    /// See paxos::Core::set_has_room().
    void set_has_room(bool has_room) {
        if (node_) node_->set_has_room(has_room);
    }
    /// See paxos::Core::set_decisions_awaited().
    void set_decisions_awaited(bool awaited) {
        if (node_) node_->set_decisions_awaited(awaited);
    }
    /// Empty, or why not.
    std::string change_membership(const paxos::MembershipChange& change);
    const paxos::Membership& membership() const;
    uint64_t membership_index() const;
    bool send(uint32_t to, const std::string& message);
    size_t queued_bytes(uint32_t to) const;
    std::vector<paxos::PeerStatus> peers() const;
    paxos::NodeStats stats() const;
    paxos::TlsStanding tls_standing() const { return node_ ? node_->tls_standing() : paxos::TlsStanding(); }
    bool disowned() const { return node_ && node_->disowned(); }
    /// No vote until all that is decided is copied from the others.
    bool rejoining() const { return node_ && node_->rejoining(); }
    void shutdown(std::function<void()> done);

  private:
    void decided(const paxos::Entry& entry);
    void role_changed(paxos::Role role);
    void own_decided();
    void deliver_local();
    static void on_local_turn(int fd, short what, void* self);

    event_base* base_;
    SequencerEvents events_;
    uint32_t self_;
    std::unique_ptr<paxos::Node> node_;
    bool ready_ = false;
    bool rejoining_ = false;   ///< said, and not yet over
    paxos::Membership alone_;  ///< the membership without a node
    uint64_t undecided_ = 0;
    std::deque<uint64_t> proposed_ns_;  ///< when, of those undecided
    LatencyHistogram latency_;
    uint64_t batches_seen_ = 0;
    paxos::LogPosition delivered_;
    /// Without a node:
    std::deque<std::shared_ptr<const std::string>> local_queue_;
    event* local_event_ = nullptr;
    uint64_t local_index_ = 0;
    bool local_paused_ = false;
};

}  // namespace crane::proxy
