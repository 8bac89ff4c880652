// Core, the leader's side: proposals, sending the log, counting acknowledgements.
#include <algorithm>

#include "base/check.hpp"
#include "paxos/core/core.hpp"
#include "paxos/core/quorum.hpp"

namespace crane::paxos {
namespace {

constexpr size_t kMaxFlights = 128;  // Prepares on their way to one peer

}  // namespace

bool Core::can_propose() const {
    if (role_ != Role::kLeader || transferring() || leaving_) return false;
    return log_.last_index() - commit_ < config_.max_inflight_entries &&
           uncommitted_bytes_ < config_.max_inflight_bytes;
}

bool Core::propose(std::string& value) {
    CRANE_CHECK(!persist_out_);
    if (!can_propose() || value.size() > kMaxValueBytes) return false;
    append(EntryKind::kValue, std::move(value));
    ++stats_.proposals;
    return true;
}

void Core::append(EntryKind kind, std::string value) {
    Entry entry;
    entry.index = log_.last_index() + 1;
    entry.view = view_;
    entry.kind = kind;
    uncommitted_bytes_ += value.size();
    entry.value = std::make_shared<const std::string>(std::move(value));
    entry.chain = chain_hash(log_.end().chain, entry);
    log_.append(entry);
    adopt(entry);
}

void Core::on_ack(const Message& message) {
    if (message.promised > view_) {
        saw_higher_view(message.promised);
        return;
    }
    Peer* found = find_peer(message.from);
    if (role_ != Role::kLeader || message.view != view_ || found == nullptr) return;
    if (message.index > log_.last_index()) return;
    Peer& peer = *found;
    // One that was away says nothing of the machine, as long as a majority was there.
    if (peer.voter && now_us_ > peer.heard_us + config_.heartbeat_us) saw_arrival(quorum_heard_us());
    peer.heard_us = now_us_;
    peer.unanswered = false;
    hear_start(peer, message.origin);
    hear_rejoining(peer, message.rejoining);
    announce_starts();
    if (!message.ok) {
        on_reject(peer, message);
        return;
    }
    if (peer.checkpoint != message.checkpoint) {
        peer.checkpoint = message.checkpoint;
        learn_checkpoints();
    }
    if (message.hint < peer.match && !peer.probing && peer.flights.empty()) regress(peer, message.hint);
    if (message.rejoining == 0) peer.counted = std::max(peer.counted, message.index);
    if (message.index > peer.match) {
        peer.match = message.index;
        peer.progress_us = now_us_;
        peer.must_restore = false;
        peer.rewinds = 0;
        while (!peer.flights.empty() && peer.flights.front().last_index <= peer.match) {
            peer.flight_bytes -= peer.flights.front().bytes;
            peer.flights.pop_front();
        }
    }
    if (peer.probing && message.index + 1 >= peer.next) {
        peer.probing = peer.probe_out = false;
        peer.next = peer.match + 1;
    }
    peer.next = std::max(peer.next, peer.match + 1);
    advance_commit();
}

void Core::on_reject(Peer& peer, const Message& message) {
    if (message.index <= peer.match) {
        if (message.index == peer.match && message.hint < peer.match) regress(peer, message.hint);
        return;
    }
    if (peer.probing && message.index + 1 != peer.next) return;  // answers an older probe
    // It lacks all that followed. Once that is a loss; again and again it has no room, and would answer each
    // batch after the first with another question.
    if (message.hint <= peer.match) ++peer.rewinds;
    peer.probing = true;
    peer.probe_out = false;
    peer.flights.clear();
    peer.flight_bytes = 0;
    peer.next = std::max(peer.match + 1, std::min(message.hint + 1, message.index));
    // Not even the oldest entry kept here matches. (A hint may be too low: it only knows what was decided.)
    peer.must_restore = message.index <= log_.start().index;
}

// The peer no longer has what it acknowledged: its database was lost, and it starts again. (A late message
// may look the same; knowing less is always safe.)
void Core::regress(Peer& peer, uint64_t last_index) {
    CRANE_CHECK(last_index < peer.match);
    peer.match = last_index;
    peer.counted = std::min(peer.counted, last_index);
    rewind(peer);
    peer.next = last_index + 1;
}

void Core::advance_commit() {
    std::vector<uint64_t> acknowledged;
    if (membership().voter(config_.self)) acknowledged.push_back(durable_);
    const bool all_count = needs_new_starts();
    for (const Peer& peer : peers_)
        if (peer.voter) acknowledged.push_back(all_count || start_decided(peer) ? peer.counted : 0);
    const uint64_t reached = majority_reached(std::move(acknowledged));
    if (reached <= commit_ || reached < view_start_) return;
    CRANE_CHECK(reached <= log_.last_index());
    std::vector<Entry> entries;
    log_.copy(std::max(commit_ + 1, view_start_), reached, SIZE_MAX >> 1, SIZE_MAX, entries);
    for (const Entry& entry : entries) uncommitted_bytes_ -= entry.size_bytes();
    CRANE_CHECK(uncommitted_bytes_ < SIZE_MAX / 2);
    commit_ = reached;
    for (Peer& peer : peers_)
        if (peer.untold_since_us == 0) peer.untold_since_us = now_us_;
    announce_starts();
}

void Core::learn_checkpoints() {
    std::vector<uint64_t> held;
    if (membership().voter(config_.self)) held.push_back(checkpoint_);
    for (const Peer& peer : peers_)
        if (peer.voter) held.push_back(peer.checkpoint);
    common_checkpoint_ = std::max(common_checkpoint_, majority_reached(std::move(held)));
}

// As far as it has said, it lacks what the others have decided, and for a while or for ever helps to decide
// nothing.
bool Core::far_behind(const Peer& peer) const {
    return peer.match < log_.start().index || log_.last_index() - peer.match > config_.max_inflight_entries;
}

bool Core::has_room(const Peer& peer) const {
    if (peer.probing) return !peer.probe_out;
    return peer.flights.size() < (peer.refuses() ? 1 : kMaxFlights) &&
           peer.flight_bytes < config_.max_inflight_bytes;
}

void Core::fill_leader_sends(Outbox& out) {
    for (Peer& peer : peers_) {
        while (peer.next <= log_.last_index() && !peer.must_restore && has_room(peer)) {
            const bool from_memory = log_.in_memory(peer.next);
            send_entries(peer, out);
            if (!from_memory) break;  // one batch from disk per turn and peer
        }
        const bool nothing_follows = commit_ == log_.last_index() && decisions_awaited_;
        const bool tell = peer.commit_told < commit_ &&
                          (nothing_follows || now_us_ >= peer.untold_since_us + config_.commit_delay_us);
        const bool heartbeat = now_us_ >= peer.sent_us + config_.heartbeat_us;
        if (tell || heartbeat) send_commit(peer, heartbeat, out);
        if (peer.id == transfer_to_ && peer.match == log_.last_index() &&
            now_us_ >= transfer_sent_us_ + config_.heartbeat_us) {
            transfer_sent_us_ = now_us_;
            Message order = make(MessageType::kTakeOver, peer.id);
            order.index = log_.last_index();
            out.send_now.push_back(std::move(order));
        }
    }
}

void Core::send_entries(Peer& peer, Outbox& out) {
    if (peer.next <= log_.start().index) {  // the log was cut: perhaps the peer has what is missing
        peer.flights.clear();
        peer.flight_bytes = 0;
        peer.probing = true;
        peer.next = log_.start().index + 1;
    }
    Message prepare = make(MessageType::kPrepare, peer.id);
    const LogPosition before = log_.position(peer.next - 1);
    prepare.index = before.index;
    prepare.index_view = before.view;
    prepare.chain = before.chain;
    prepare.commit = commit_;
    prepare.checkpoint = common_checkpoint_;
    // Nothing to send when the log was cut to its end: then the question whether the peer's log matches
    // there.
    if (peer.next <= log_.last_index() && !(peer.probing && peer.unanswered) &&
        log_.copy(peer.next, log_.last_index(), peer.refuses() ? 1 : kMaxBatchEntries,
                  config_.max_batch_bytes, prepare.entries))
        stats_.entries_from_disk += prepare.entries.size();
    if (peer.flights.empty()) peer.progress_us = now_us_;
    if (peer.probing) {
        peer.probe_out = true;
    } else {
        size_t bytes = 0;
        for (const Entry& entry : prepare.entries) bytes += entry.size_bytes();
        peer.next = prepare.entries.back().index + 1;
        peer.flights.push_back({peer.next - 1, bytes});
        peer.flight_bytes += bytes;
    }
    peer.sent_us = now_us_;
    peer.commit_told = commit_;
    peer.untold_since_us = 0;
    out.send_now.push_back(std::move(prepare));
}

Message Core::make_commit(ReplicaId to, bool wants_ack) const {
    Message commit = make(MessageType::kCommit, to);
    commit.commit = commit_;
    commit.checkpoint = common_checkpoint_;
    commit.wants_ack = wants_ack;
    return commit;
}

void Core::send_commit(Peer& peer, bool wants_ack, Outbox& out) {
    Message commit = make_commit(peer.id, wants_ack);
    if (wants_ack) peer.sent_us = now_us_;
    peer.commit_told = commit_;
    peer.untold_since_us = 0;
    out.send_now.push_back(std::move(commit));
}

// What was in flight may be lost: go back to what is known.
void Core::rewind(Peer& peer) {
    if (!peer.probing) peer.next = peer.match + 1;
    peer.probing = true;
    peer.probe_out = false;
    peer.flights.clear();
    peer.flight_bytes = 0;
    ++stats_.retransmissions;
}

void Core::link_restored(ReplicaId id) {
    Peer* peer = find_peer(id);
    if (peer == nullptr || role_ != Role::kLeader) return;
    if (peer->probe_out || !peer->flights.empty()) rewind(*peer);
    peer->sent_us = 0;
}

void Core::leader_tick() {
    if (!quorum_in_touch()) {
        become_follower(view_, kNoReplica);
        return;
    }
    for (Peer& peer : peers_)
        if ((peer.probe_out || !peer.flights.empty()) && now_us_ >= peer.progress_us + retransmit_us()) {
            rewind(peer);
            peer.unanswered = true;
            ++peer.rewinds;
        }
    retire_peers();
    if (transferring() && now_us_ >= transfer_deadline_us_) {
        declined_.insert(transfer_to_);
        transfer_to_ = kNoReplica;
    }
    resign();
}

// The last moment at which a majority, this replica included, had been heard of.
uint64_t Core::quorum_heard_us() const {
    std::vector<uint64_t> heard;
    if (membership().voter(config_.self)) heard.push_back(now_us_);
    for (const Peer& peer : peers_)
        if (peer.voter) heard.push_back(peer.rejoining == 0 ? peer.heard_us : 0);
    return majority_reached(std::move(heard));
}

uint64_t Core::leader_deadline_us() const {
    uint64_t deadline = transferring() ? transfer_deadline_us_ : UINT64_MAX;
    if (!alone()) deadline = std::min(deadline, quorum_heard_us() + patience_.timeout_us());
    for (const Peer& peer : peers_) {
        deadline = std::min(deadline, peer.sent_us + config_.heartbeat_us);
        if (peer.probe_out || !peer.flights.empty())
            deadline = std::min(deadline, peer.progress_us + retransmit_us());
        if (peer.commit_told < commit_)
            deadline = std::min(deadline, peer.untold_since_us + config_.commit_delay_us);
    }
    return deadline;
}

}  // namespace crane::paxos
