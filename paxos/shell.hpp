// The loop of one replica: carries out what the protocol asks for, in the order that makes it safe.
//
// Storage, links and clock are given, so that it is the same loop that runs in craned (node.cpp) and in the
// simulator (tests/sim). Whoever owns it hands in what has come (receive, link_changed, peer_gone), calls
// turn() once for all that came together, and again at next_deadline_us(), or at once while turn_due().
//
// Rules kept here:
//   - no socket, file, clock, thread or event loop of its own;
//   - what is not durable is not acknowledged: send_after leaves, and decided entries are handed on, only
//     when the persist before them is done;
//   - while a persist is under way (busy()) nothing changes the core; what comes meanwhile waits, in order
//     and bounded;
//   - a persist that takes long keeps nobody waiting: the others are told, with every heartbeat and for no
//     longer than silence can last, that this replica is there, and nothing that is new;
//   - time in which turns were not given, though asked for, is no time in which anybody was silent;
//   - on_decided sees every entry once, in index order, without a gap;
//   - a storage that fails is the end: on_fatal, and nothing more is sent.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/latency_histogram.hpp"
#include "paxos/callbacks.hpp"
#include "paxos/core/core.hpp"

namespace crane::paxos {

class Clock {
  public:
    virtual ~Clock() = default;
    virtual uint64_t now_us() const = 0;  ///< never 0, never back
};

class Links {
  public:
    virtual ~Links() = default;
    virtual bool up(ReplicaId peer) const = 0;
    virtual void send(const Message& message) = 0;  ///< may be lost
    virtual void flush() = 0;                       ///< nothing need leave before
    virtual void follow(const Core& core) = 0;      ///< whoever is a peer now has to be reachable
};

/// What a simulation looks at, and spoils.
class ShellProbe {
  public:
    virtual ~ShellProbe() = default;
    virtual void before_turn() {}
    virtual void changed() {}  ///< the core may have
    virtual void taken(Outbox&) {}
};

class Shell {
  public:
    /// All that is given must outlive the shell.
    Shell(Core& core, Storage& storage, Links& links, const Clock& clock, const NodeCallbacks& callbacks,
          ShellProbe* probe = nullptr);
    Shell(const Shell&) = delete;
    Shell& operator=(const Shell&) = delete;

    void start(uint64_t first_index);                 ///< of delivery
    std::vector<Entry> read_decided(uint64_t first);  ///< Node::read_decided
    /// Until then it is to be given turns.
    bool running() const { return started_ && !stopped_; }
    bool stopped() const { return stopped_; }
    bool closed() const { return closed_; }  ///< a shutdown came to its end
    const std::string& fatal() const { return fatal_; }

    void turn();
    bool turn_due() const;
    uint64_t next_deadline_us() const;
    /// Storage::start_persist() said false, and it is done now; `error` says why not, if it is not durable. A
    /// turn is due.
    void persisted(const std::string& error = {});
    bool busy() const { return busy_; }
    /// While a persist is under way, at any time: tells the others that this replica is there, once a
    /// heartbeat. The only call that may come from another thread, while start_persist() keeps this one.
    void say_still_here();

    void receive(const Message& message);
    void link_changed(ReplicaId peer, bool up) { link_events_.emplace_back(peer, up); }
    void peer_gone(ReplicaId peer) { gone_.insert(peer); }

    /// The user's wishes; after each of them a turn is due. See Node.
    bool propose(std::string& value);  ///< moved from only when accepted
    bool can_propose() const { return running() && !closing_ && !busy_ && core_.can_propose(); }
    std::string change_membership(const MembershipChange& change);
    void pause_delivery(bool paused) { core_.pause_delivery(paused); }
    void transfer_leadership(ReplicaId to);
    void step_down();
    void set_eligible(bool eligible);
    void set_has_room(bool has_room);
    void set_decisions_awaited(bool awaited);
    void hold_checkpoint(uint64_t index);
    /// Hands leadership over, for so long at most, and closes the storage.
    void shutdown(uint64_t patience_us);
    bool closing() const { return closing_; }

    const MembershipAt* delivered_membership() const;
    uint64_t delivered() const { return delivered_; }  ///< entries, so far
    uint64_t longest_sync_us() const { return longest_sync_us_; }
    const LatencyHistogram& syncs() const { return syncs_; }
    uint64_t leaders_gone() const { return leaders_gone_; }  ///< peer_gone() that made a difference

  private:
    struct Reported {
        Role role = Role::kFollower;
        View view = 0;
        ReplicaId leader = kNoReplica;
        bool operator==(const Reported&) const = default;
    };

    void when_idle(std::function<void()> change);
    void guarded(const std::function<void()>& act);
    void changed();
    void work();
    void look_at_clock();
    void move_clock();
    void has_persisted();
    void take();
    void complete();
    void send(std::vector<Message>& messages);
    void handle_link_events();
    void deliver();
    void report_role();
    void report_mismatches();
    void report_membership(const MembershipAt& membership);
    void truncate_some();
    void finish_closing();
    void stop(const std::string& reason);

    Core& core_;
    Storage& storage_;
    Links& links_;
    const Clock& clock_;
    const NodeCallbacks& callbacks_;
    ShellProbe* const probe_;
    Outbox outbox_;
    std::deque<std::function<void()>> waiting_;          ///< for the persist under way
    uint64_t persist_since_us_ = 0, still_here_us_ = 0;  ///< the latter: when it is to be said next
    uint64_t longest_sync_us_ = 0;
    LatencyHistogram syncs_;
    uint64_t attention_us_ = 0;  ///< a turn was asked for by then; 0: nobody is listened to
    uint64_t held_up_us_ = 0;    ///< of which the core does not know yet
    std::vector<std::pair<ReplicaId, bool>> link_events_;
    std::set<ReplicaId> gone_;
    MembershipAt delivered_membership_;
    Reported reported_;
    uint64_t delivered_ = 0, last_delivered_ = 0, leaders_gone_ = 0;
    uint64_t cut_at_ = 0;  ///< where the core has cut the log; the disk follows
    uint64_t mismatches_ = 0, absurd_views_ = 0, disowned_ = 0;  ///< of CoreStats, that were reported
    bool started_ = false, stopped_ = false, in_turn_ = false, busy_ = false, more_ = true;
    bool wants_room_ = false, truncating_ = false, closing_ = false, closed_ = false;
    uint64_t close_deadline_us_ = UINT64_MAX;
    std::string fatal_;
};

}  // namespace crane::paxos
