#include "paxos/core/core.hpp"

#include <algorithm>
#include <utility>

#include "base/check.hpp"
#include "paxos/core/quorum.hpp"

namespace crane::paxos {
namespace {

constexpr uint64_t kSilentHeartbeats = 4;  // time for a leader to open its connection and call
// Of the election timeout, at random: enough for one of two to have asked and won before the other asks.
constexpr uint64_t kSpreadPercent = 40;

}  // namespace

Core::Core(const CoreConfig& config, const StoredState& stored, const LogReader& reader)
    : config_(config),
      random_state_(config.seed ^ (uint64_t{config.self} << 32)),
      patience_(config.election_timeout_us, config.max_election_timeout_us),
      view_(stored.view),
      durable_view_(stored.view),
      highest_seen_(stored.view),
      log_(reader, stored.start, stored.end),
      durable_(stored.end.index),
      commit_(std::clamp(stored.commit, stored.start.index, stored.end.index)),
      delivered_(stored.start.index),
      checkpoint_(stored.start.index),
      rejoining_(stored.rejoining),
      memberships_(stored.memberships),
      origin_{stored.database,  stored.starts,   config.run,          stored.view,
              stored.end.index, stored.replaces, stored.previous_runs},
      starts_(stored.known_starts) {
    CRANE_CHECK(config.self != kNoReplica && config.self <= kMaxReplicaId);
    CRANE_CHECK(config.max_inflight_entries > 0 && config.max_batch_bytes > 0);
    CRANE_CHECK(stored.end.view <= stored.view);
    // An entry of the present view came from its only leader, and so did the log before it. Without this, a
    // follower that restarts while nothing is proposed would not learn from heartbeats what is decided.
    matched_ = stored.end.view == stored.view ? stored.end.index : commit_;
    CRANE_CHECK(config.run != 0);
    if (memberships_.empty()) {
        memberships_.push_back({0, config.members});
        memberships_due_ = true;
    }
    CRANE_CHECK(membership().voters() > 0 && membership_index() <= durable_);
    set_peers();
    // The first election of a fresh cluster need not wait: the lower the rank, the sooner. Anyone with a
    // leader says no.
    const auto& members = membership().members;
    const auto rank = std::count_if(members.begin(), members.end(),
                                    [&](const Member& member) { return member.id < config.self; });
    election_deadline_us_ = alone() ? 0 : config.election_timeout_us * static_cast<uint64_t>(rank + 1) / 4;
    // Who has been in a view may have a leader that has not called yet, and deposes nobody until it had time
    // to.
    if (view_ > 0)
        silent_until_us_ = std::min(config.election_timeout_us, kSilentHeartbeats * config.heartbeat_us);
}

void Core::deliver_from(uint64_t index) {
    CRANE_CHECK(index > log_.start().index);
    delivered_ = index - 1;
}

bool Core::alone() const {
    return membership().voters() == 1 && membership().voter(config_.self);
}

const Core::Peer* Core::find_peer(ReplicaId id) const {
    for (const Peer& peer : peers_)
        if (peer.id == id) return &peer;
    return nullptr;
}

Core::Peer* Core::find_peer(ReplicaId id) {
    return const_cast<Peer*>(std::as_const(*this).find_peer(id));
}

Message Core::make(MessageType type, ReplicaId to) const {
    Message message;
    message.type = type;
    message.from = config_.self;
    message.to = to;
    message.view = view_;
    message.promised = view_;
    message.origin = origin_;
    return message;
}

// splitmix64
uint64_t Core::random_election_timeout() {
    uint64_t z = (random_state_ += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    z ^= z >> 31;
    const uint64_t least = patience_.timeout_us();
    return least + z % (least * kSpreadPercent / 100 + 1);
}

void Core::advance_clock(uint64_t now_us) {
    if (now_us_ == 0) {  // the first tick sets the clock; deadlines set before count from here
        election_deadline_us_ += now_us;
        silent_until_us_ += now_us;
        if (!eligible_) barred_since_us_ = now_us;
        for (Peer& peer : peers_) peer.heard_us = now_us;
    }
    now_us_ = std::max(now_us_, now_us);
}

void Core::held_up(uint64_t us) {
    CRANE_CHECK(us <= now_us_);
    election_deadline_us_ += us;
    silent_until_us_ += us;
    if (leader_heard_us_ != 0) leader_heard_us_ = std::min(leader_heard_us_ + us, now_us_);
    for (Peer& peer : peers_)
        if (peer.heard_us != 0) peer.heard_us = std::min(peer.heard_us + us, now_us_);
    saw_delay(us);
}

// What is to be heard with every heartbeat was last heard then.
void Core::saw_arrival(uint64_t previous_us) {
    if (previous_us == 0) return;
    const uint64_t gap = now_us_ - std::min(now_us_, previous_us);
    saw_delay(gap - std::min(gap, config_.heartbeat_us));
}

void Core::tick(uint64_t now_us) {
    CRANE_CHECK(!persist_out_);
    advance_clock(now_us);
    if (role_ == Role::kLeader) {
        leader_tick();
        return;
    }
    if (now_us_ >= election_deadline_us_)
        start_pre_vote();
    else if (role_ != Role::kFollower && now_us_ >= ask_again_us_)
        ask_for_votes();
}

uint64_t Core::next_deadline_us() const {
    if (role_ == Role::kLeader) return leader_deadline_us();
    return role_ == Role::kFollower ? election_deadline_us_ : std::min(election_deadline_us_, ask_again_us_);
}

void Core::step(const Message& message) {
    CRANE_CHECK(!persist_out_);
    if (message.to != config_.self || message.from == config_.self) return;
    if (refuse(message)) return;
    switch (message.type) {
        case MessageType::kPreVote:
        case MessageType::kViewChange:
            on_vote_request(message);
            break;
        case MessageType::kPreVoteReply:
        case MessageType::kViewChangeReply:
            on_vote_reply(message);
            break;
        case MessageType::kPrepare:
            on_prepare(message);
            break;
        case MessageType::kCommit:
            on_commit(message);
            break;
        case MessageType::kAck:
            on_ack(message);
            break;
        case MessageType::kTakeOver:
            on_take_over(message);
            break;
        case MessageType::kDisown:
            on_disown(message);
            break;
    }
}

void Core::take_outbox(Outbox& out) {
    CRANE_CHECK(!persist_out_);
    out = Outbox{};
    if (role_ == Role::kLeader) fill_leader_sends(out);
    fill_persist(out.persist);
    fill_replies(out);
    fill_decided(out);
    trim_memory();
    truncate_log();
}

void Core::fill_persist(PersistBatch& batch) {
    if (view_ != durable_view_) {
        CRANE_CHECK(view_ > durable_view_);
        batch.has_view = true;
        batch.view = view_;
    }
    batch.truncate_from = truncate_from_;
    if (log_.last_index() > durable_) {
        CRANE_CHECK(log_.in_memory(durable_ + 1));
        log_.copy(durable_ + 1, log_.last_index(), SIZE_MAX >> 1, SIZE_MAX, batch.append);
        CRANE_CHECK(batch.append.back().index == log_.last_index());
    }
    batch.rejoined = rejoined_due_;
    if (memberships_due_) batch.memberships = memberships_;
    batch.has_starts = starts_due_;
    if (starts_due_) batch.starts = starts_;
    batch.commit = std::min(commit_, log_.last_index());
    persist_out_ = !batch.empty();
}

void Core::persisted() {
    CRANE_CHECK(persist_out_);
    persist_out_ = false;
    truncate_from_ = 0;
    rejoined_due_ = memberships_due_ = starts_due_ = false;
    durable_view_ = view_;
    durable_ = log_.last_index();
    count_votes();
    if (role_ == Role::kLeader) advance_commit();
}

void Core::fill_replies(Outbox& out) {
    out.send_after = std::move(replies_);
    replies_.clear();
    if (!ack_due_) return;
    ack_due_ = false;
    if (role_ != Role::kFollower || leader_ == kNoReplica) return;
    out.send_after.push_back(make_ack(matched_));
}

Message Core::make_ack(uint64_t index) const {
    Message ack = make(MessageType::kAck, leader_);
    ack.ok = true;
    ack.rejoining = rejoining_ ? config_.run : 0;
    ack.index = index;
    ack.hint = log_.last_index();
    ack.checkpoint = checkpoint_;
    return ack;
}

void Core::still_here(std::vector<Message>& out) const {
    // What is not on disk is not to be spoken of: neither a promise, nor that this replica is back.
    if (view_ != durable_view_ || rejoined_due_) return;
    if (role_ == Role::kFollower && leader_ != kNoReplica)
        out.push_back(make_ack(std::min(matched_, durable_)));
    if (role_ != Role::kLeader) return;
    for (const Peer& peer : peers_) out.push_back(make_commit(peer.id, true));
}

void Core::fill_decided(Outbox& out) {
    const uint64_t upto = std::min(commit_, durable_);
    if (delivery_paused_ || delivered_ >= upto) return;
    log_.copy(delivered_ + 1, upto, config_.max_delivery_entries, config_.max_delivery_bytes, out.decided);
    CRANE_CHECK(!out.decided.empty() && out.decided.front().index == delivered_ + 1);
    delivered_ = out.decided.back().index;
    out.more_decided = delivered_ < upto;
}

void Core::read_decided(uint64_t first, std::vector<Entry>& out) const {
    const uint64_t upto = std::min(commit_, durable_);
    if (first <= log_.start().index || first > upto) return;
    log_.copy(first, upto, config_.max_delivery_entries, config_.max_delivery_bytes, out);
}

void Core::trim_memory() {
    log_.trim(std::min(commit_, durable_), config_.max_memory_entries, config_.max_memory_bytes);
}

void Core::hold_checkpoint(uint64_t index) {
    CRANE_CHECK(!persist_out_);
    checkpoint_ = std::max(checkpoint_, std::min(index, delivered_));
    if (role_ == Role::kLeader) learn_checkpoints();
}

// What a majority holds survives what the log survives: whoever has lost too much is restored from one of
// them.
void Core::truncate_log() {
    const uint64_t index = std::min({checkpoint_, common_checkpoint_, commit_, durable_});
    if (index > log_.start().index) log_.forget_before(log_.position(index));
}

uint64_t Core::matched(ReplicaId id) const {
    const Peer* peer = find_peer(id);
    return role_ == Role::kLeader && peer != nullptr ? peer->match : 0;
}

bool Core::needs_checkpoint(ReplicaId id) const {
    const Peer* peer = find_peer(id);
    return role_ == Role::kLeader && peer != nullptr && peer->must_restore;
}

uint64_t Core::held_checkpoint(ReplicaId id) const {
    const Peer* peer = find_peer(id);
    return role_ == Role::kLeader && peer != nullptr ? peer->checkpoint : 0;
}

uint64_t Core::heard_us(ReplicaId id) const {
    const Peer* peer = find_peer(id);
    return peer != nullptr ? peer->heard_us : 0;
}

std::string Core::describe() const {
    std::string text = "replica " + std::to_string(config_.self) + ": " + role_name(role_) + " in view " +
                       view_name(view_) +
                       (leader_ == kNoReplica ? ", no leader" : ", leader " + std::to_string(leader_)) + "\n";
    text += "log: " + std::to_string(log_.start().index + 1) + ".." + std::to_string(log_.last_index()) +
            ", durable " + std::to_string(durable_) + ", decided " + std::to_string(commit_) +
            ", delivered " + std::to_string(delivered_) + ", in memory " +
            std::to_string(log_.held_entries()) + " entries, " + std::to_string(log_.held_bytes()) +
            " bytes\n";
    if (checkpoint_ > 0)
        text += "checkpoint: up to " + std::to_string(checkpoint_) + ", a majority up to " +
                std::to_string(common_checkpoint_) + "\n";
    text += "members: " + paxos::describe(membership()) +
            (membership_index() > commit_ ? " (not decided yet)" : "") + "\n";
    if (rejoining_) text += "REJOINING: does not vote until it has all that is decided\n";
    if (!has_room_) text += "NO ROOM on the disk: takes no entries\n";
    if (!eligible_) text += "BARRED from leading\n";
    if (removed()) text += "REMOVED from the cluster by entry " + std::to_string(membership_index()) + "\n";
    if (stats_.mismatched_chains > 0)
        text += "CORRUPT: " + std::to_string(stats_.mismatched_chains) +
                " messages refused because the leader's log and this one differ in decided entries\n";
    if (stats_.absurd_views > 0)
        text += "REFUSED: " + std::to_string(stats_.absurd_views) +
                " messages of views that cannot be, the last from " + "replica " +
                std::to_string(stats_.absurd_from) + "\n";
    if (stats_.disowned_from != kNoReplica) text += "REFUSED: " + describe_disowned(stats_) + "\n";
    if (role_ != Role::kLeader) return text;
    for (const Peer& peer : peers_) {
        text += "peer " + std::to_string(peer.id) + ": matched " + std::to_string(peer.match) + ", next " +
                std::to_string(peer.next) + (peer.probing ? ", probing" : "") + ", in flight " +
                std::to_string(peer.flights.size()) + " messages, heard " +
                std::to_string((now_us_ - std::min(now_us_, peer.heard_us)) / 1000) + " ms ago";
        if (peer.rejoining != 0) text += ", rejoining";
        if (peer.must_restore) text += ", NEEDS A CHECKPOINT: what it lacks has been cut from the log";
        text += "\n";
    }
    if (transferring()) text += "handing over to replica " + std::to_string(transfer_to_) + "\n";
    return text;
}

}  // namespace crane::paxos
