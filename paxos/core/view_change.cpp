// Core: who leads. Pre-vote, the view change, leadership transfer.
#include <algorithm>
#include <tuple>

#include "base/check.hpp"
#include "paxos/core/core.hpp"
#include "paxos/core/quorum.hpp"

namespace crane::paxos {
namespace {

// Elections that a replica may have missed. One that is told of more and believed it would next ask for a
// view above, and there may be none.
constexpr uint64_t kMaxViewLeap = 1u << 24;
constexpr uint64_t kTakeOverHeartbeats = 2;
constexpr size_t kMaxReplies = 1024;  // queued within one turn; more are dropped, their senders ask again

}  // namespace

void Core::queue_reply(Message reply) {
    if (replies_.size() < kMaxReplies) replies_.push_back(std::move(reply));
}

void Core::become_follower(View view, ReplicaId leader) {
    CRANE_CHECK(view >= view_);
    CRANE_CHECK(leader == kNoReplica || leader == view_leader(view));
    if (view > view_) {
        view_ = view;
        matched_ = commit_;  // what is decided is in every later leader's log
        leader_commit_ = 0;
        ack_due_ = false;
        ++stats_.views_entered;
    }
    highest_seen_ = std::max(highest_seen_, view_);
    role_ = Role::kFollower;
    leader_ = leader;
    leader_gone_ = false;
    votes_.clear();
    transfer_to_ = kNoReplica;
    election_deadline_us_ = now_us_ + random_election_timeout();
}

View Core::next_view() const {
    return make_view(view_counter(std::max(view_, highest_seen_)) + 1, config_.self);
}

bool Core::believable(View view) const {
    const uint64_t known = view_counter(std::max(view_, highest_seen_));
    return view_counter(view) <= std::min(known + kMaxViewLeap, kMaxViewCounter - 1);
}

void Core::start_pre_vote() {
    if (!may_lead() || leaves_it_to_others()) {  // rejoining, a learner, no member, or barred
        become_follower(view_, kNoReplica);
        return;
    }
    if (alone()) {
        start_view_change(false);
        return;
    }
    role_ = Role::kPreCandidate;
    leader_ = kNoReplica;
    transfer_to_ = kNoReplica;
    forced_ = false;
    asked_view_ = next_view();
    votes_.clear();
    election_deadline_us_ = now_us_ + random_election_timeout();
    ask_for_votes();
}

void Core::start_view_change(bool forced) {
    role_ = Role::kCandidate;
    leader_ = kNoReplica;
    transfer_to_ = kNoReplica;
    forced_ = forced;
    asked_view_ = next_view();
    CRANE_CHECK(asked_view_ > view_);
    view_ = asked_view_;
    highest_seen_ = view_;
    matched_ = commit_;
    leader_commit_ = 0;
    ack_due_ = false;
    ++stats_.views_entered;
    votes_.clear();  // the own vote counts once the promise is on disk: see count_votes()
    election_deadline_us_ = now_us_ + random_election_timeout();
    ask_for_votes();
}

void Core::ask_for_votes() {
    CRANE_CHECK(role_ == Role::kPreCandidate || role_ == Role::kCandidate);
    ask_again_us_ = now_us_ + config_.heartbeat_us;
    for (const Peer& peer : peers_) {
        if (!peer.voter || votes_.count(peer.id) > 0) continue;
        Message ask =
            make(role_ == Role::kCandidate ? MessageType::kViewChange : MessageType::kPreVote, peer.id);
        ask.view = asked_view_;
        ask.forced = forced_;
        ask.index = log_.end().index;
        ask.index_view = log_.end().view;
        queue_reply(std::move(ask));
    }
}

void Core::count_votes() {
    const auto granted = static_cast<size_t>(
        std::count_if(votes_.begin(), votes_.end(), [this](ReplicaId id) { return membership().voter(id); }));
    const size_t own = membership().voter(config_.self) ? 1 : 0;
    if (granted + own < membership().quorum()) return;
    if (role_ == Role::kPreCandidate) {
        start_view_change(false);
    } else if (role_ == Role::kCandidate && durable_view_ == view_) {
        become_leader();
    }
}

void Core::become_leader() {
    CRANE_CHECK(view_leader(view_) == config_.self && durable_view_ == view_);
    role_ = Role::kLeader;
    leader_ = config_.self;
    leads_since_us_ = now_us_;
    uncommitted_bytes_ = 0;
    transfer_to_ = kNoReplica;
    declined_.clear();
    resign_again_us_ = 0;
    view_start_ = log_.last_index() + 1;
    peers_.clear();  // what was known of them in an earlier view means nothing
    set_peers();
    append(EntryKind::kNewView, std::string());
}

// The voters that are left ask one after the other, so that one election is enough where the first one can
// win it; even that one waits for the others to see what it saw.
uint64_t Core::succession_delay_us() const {
    uint64_t rank = 0;
    for (const Member& member : membership().members)
        rank += member.voter && member.id < config_.self && member.id != leader_;
    return config_.heartbeat_us / 20 + rank * config_.heartbeat_us / 2;
}

bool Core::peer_gone(ReplicaId peer) {
    if (role_ != Role::kFollower || peer != leader_ || leader_gone_) return false;
    leader_gone_ = true;
    election_deadline_us_ = std::min(election_deadline_us_, now_us_ + succession_delay_us());
    return true;
}

// A replica that hears its leader does not help another to depose it, unless the leader itself ordered it.
bool Core::lease_holds(const Message& asked) const {
    if (asked.forced) return false;
    if (role_ == Role::kLeader || now_us_ < silent_until_us_) return true;
    return leader_ != kNoReplica && leader_ != asked.from && !leader_gone_ &&
           now_us_ < leader_heard_us_ + config_.election_timeout_us;
}

void Core::on_vote_request(const Message& message) {
    if (view_leader(message.view) != message.from) return;
    const bool only_asking = message.type == MessageType::kPreVote;
    const LogPosition& end = log_.end();
    bool ok = false;
    if (message.view == view_) {
        // Asked again. Since the promise this log has only changed by that leader's own hand, so the answer
        // stands.
        ok = !only_asking && !rejoining_;
    } else if (message.view > view_) {
        ok = !rejoining_ && !lease_holds(message) &&
             std::tie(message.index_view, message.index) >= std::tie(end.view, end.index);
        if (!only_asking) highest_seen_ = std::max(highest_seen_, message.view);
        if (ok && !only_asking) become_follower(message.view, kNoReplica);
    }
    Message reply =
        make(only_asking ? MessageType::kPreVoteReply : MessageType::kViewChangeReply, message.from);
    reply.view = message.view;
    reply.ok = ok;
    queue_reply(std::move(reply));
}

void Core::on_vote_reply(const Message& message) {
    const bool pre = message.type == MessageType::kPreVoteReply;
    highest_seen_ = std::max(highest_seen_, message.promised);
    if (role_ != (pre ? Role::kPreCandidate : Role::kCandidate) || message.view != asked_view_) return;
    if (message.ok) {
        votes_.insert(message.from);
        count_votes();
    } else if (pre && message.promised >= asked_view_) {
        start_pre_vote();  // asked for too low a view: ask again, above it
    }
}

void Core::on_take_over(const Message& message) {
    if (message.view != view_) return;
    if (role_ == Role::kLeader) {
        on_declined(message);
        return;
    }
    if (role_ != Role::kFollower || message.from != leader_) return;
    if (!may_lead() || !eligible_ || leaving_) {  // said at once, so that another one is asked
        Message reply = make(MessageType::kTakeOver, message.from);
        reply.index = message.index;
        queue_reply(std::move(reply));
        return;
    }
    // A late one: the leader went on, and would be deposed for a log that lacks what it proposed since.
    if (message.index != log_.last_index() || matched_ != message.index) return;
    start_view_change(true);
}

// Where all have, the last one has time to think better of it.
void Core::on_declined(const Message& message) {
    if (message.from != transfer_to_) return;
    declined_.insert(transfer_to_);
    if (successor() == kNoReplica) return;
    transfer_to_ = kNoReplica;
    if (transfer_to_any_) {
        transfer_leadership(kNoReplica);
    } else {
        resign_again_us_ = 0;
        resign();
    }
}

// Somebody promised a higher view: this one can no longer be acknowledged by it.
void Core::saw_higher_view(View view) {
    highest_seen_ = std::max(highest_seen_, view);
    if (view > view_ && role_ == Role::kLeader) start_pre_vote();
}

void Core::step_down() {
    if (role_ != Role::kLeader || alone()) return;
    become_follower(view_, kNoReplica);
    election_deadline_us_ += 2 * config_.election_timeout_us;
}

void Core::leave() {
    leaving_ = true;
    if (role_ != Role::kLeader) return;
    if (transferring())
        transfer_deadline_us_ = std::min(transfer_deadline_us_, now_us_ + take_over_patience_us());
    resign();
}

// Of those who are there and have not declined, the one that has most.
ReplicaId Core::successor() const {
    const Peer* best = nullptr;
    for (const Peer& peer : peers_) {
        const bool able = peer.voter && peer.rejoining == 0 && !peer.stuck() && in_touch(peer);
        if (able && declined_.count(peer.id) == 0 &&
            (best == nullptr ||
             std::tie(peer.counted, peer.heard_us) > std::tie(best->counted, best->heard_us)))
            best = &peer;
    }
    return best != nullptr ? best->id : kNoReplica;
}

// Who leaves has little time, and others to ask. What was slow before is slow now, too.
uint64_t Core::take_over_patience_us() const {
    if (!leaving_) return config_.election_timeout_us;
    return kTakeOverHeartbeats * config_.heartbeat_us + patience_.timeout_us() - config_.election_timeout_us;
}

void Core::transfer_leadership(ReplicaId to) {
    if (role_ != Role::kLeader || transferring()) return;
    transfer_to_any_ = to == kNoReplica;
    if (to == kNoReplica) to = successor();
    if (to == kNoReplica && !declined_.empty()) {
        declined_.clear();
        to = successor();
    }
    const Peer* peer = find_peer(to);
    if (peer == nullptr || !peer->voter || peer->rejoining != 0) return;
    transfer_to_ = to;
    transfer_deadline_us_ = now_us_ + take_over_patience_us();
    transfer_sent_us_ = 0;
}

}  // namespace crane::paxos
