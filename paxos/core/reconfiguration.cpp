// Core: who the replicas are. Membership changes, and the return of a replica that lost its database.
#include <algorithm>

#include "base/check.hpp"
#include "paxos/core/core.hpp"

namespace crane::paxos {

bool Core::removed() const {
    return membership_index() <= commit_ && membership().removed(config_.self);
}

// Whose removal is not decided yet may still have to lead: of those who are left it may be the only one with
// all that is decided, and then nobody else is elected. It does not count itself (Raft's thesis, 4.2.2).
bool Core::may_lead() const {
    if (rejoining_) return false;
    if (membership().voter(config_.self)) return true;
    return membership_index() > commit_ && memberships_.front().membership.voter(config_.self);
}

void Core::set_eligible(bool eligible) {
    if (eligible_ && !eligible) barred_since_us_ = now_us_;
    eligible_ = eligible;
}

bool Core::leaves_it_to_others() const {
    return !eligible_ && !alone() &&
           now_us_ < std::max(leader_heard_us_, barred_since_us_) + barred_patience_us();
}

// A leader that should not be one hands over. One that may not lead at all goes in any case; one that is only
// barred, or about to end, leads until another takes over.
void Core::resign() {
    if (transferring()) return;
    if (!may_lead()) {
        transfer_leadership(kNoReplica);
        if (!transferring()) become_follower(view_, kNoReplica);
    } else if (leaving_) {
        transfer_leadership(kNoReplica);
    } else if (!eligible_ && now_us_ >= resign_again_us_) {
        transfer_leadership(kNoReplica);
        if (transferring()) resign_again_us_ = now_us_ + barred_patience_us();
    }
}

std::vector<ReplicaId> Core::peers() const {
    std::vector<ReplicaId> ids;
    for (const Peer& peer : peers_) ids.push_back(peer.id);
    return ids;
}

bool Core::rejoining(ReplicaId id) const {
    const Peer* peer = find_peer(id);
    return role_ == Role::kLeader && peer != nullptr && peer->rejoining != 0;
}

// Makes peers_ fit the membership. A leader keeps a removed one for a while, so that it learns of its
// removal.
void Core::set_peers() {
    ++peers_version_;
    for (Peer& peer : peers_) {
        const Member* member = membership().find(peer.id);
        peer.voter = member != nullptr && member->voter;
        if (member != nullptr)
            peer.leaving_until_us = 0;
        else if (peer.leaving_until_us == 0)
            peer.leaving_until_us = now_us_ + 2 * config_.election_timeout_us;
    }
    if (role_ != Role::kLeader)
        std::erase_if(peers_, [](const Peer& peer) { return peer.leaving_until_us != 0; });
    for (const Member& member : membership().members) {
        if (member.id == config_.self || find_peer(member.id) != nullptr) continue;
        Peer peer;
        peer.id = member.id;
        peer.voter = member.voter;
        peer.next = role_ == Role::kLeader ? std::max(view_start_, log_.start().index + 1) : 1;
        peer.heard_us = now_us_;
        peers_.push_back(std::move(peer));
    }
    std::sort(peers_.begin(), peers_.end(), [](const Peer& a, const Peer& b) { return a.id < b.id; });
    if (role_ == Role::kLeader) learn_checkpoints();
}

void Core::retire_peers() {
    peers_version_ += std::erase_if(peers_, [this](const Peer& peer) {
        if (peer.leaving_until_us == 0) return false;
        const bool knows = peer.commit_told >= membership_index() && peer.match >= membership_index() &&
                           commit_ >= membership_index();
        return knows || now_us_ >= peer.leaving_until_us;
    });
}

void Core::adopt(const Entry& entry) {
    if (entry.kind == EntryKind::kReturn && rejoining_) {
        Comeback comeback;
        CRANE_CHECK(decode_comeback(*entry.value, comeback));
        if (comeback == Comeback{config_.self, config_.run}) comeback_index_ = entry.index;
    }
    if (entry.kind == EntryKind::kStart) adopt_starts(entry);
    if (entry.kind != EntryKind::kMembership) return;
    MembershipAt next{entry.index, {}};
    CRANE_CHECK(decode(*entry.value, next.membership) && entry.index > membership_index());
    // Whoever proposed this one knew that the one before is decided: it is what is left if this one goes.
    memberships_.erase(memberships_.begin(), memberships_.end() - 1);
    memberships_.push_back(std::move(next));
    memberships_due_ = true;
    set_peers();
}

// The log was cut: what it brought from `index` on is no more.
void Core::abandon_from(uint64_t index) {
    if (comeback_index_ >= index) comeback_index_ = 0;
    if (starts_.index >= index) {
        starts_.index = 0;
        starts_due_ = true;
    }
    if (membership_index() < index) return;
    memberships_.pop_back();
    CRANE_CHECK(!memberships_.empty() && membership_index() < index);
    memberships_due_ = true;
    set_peers();
}

// The entry was proposed after the loss, and decided by a majority without this replica. Each of that
// majority either had promised a later view by then, and would have refused it, or has it: so nobody can come
// to lead by a promise that was lost here without having it, and with it everything that was decided before.
void Core::check_return() {
    if (!rejoining_ || comeback_index_ == 0 || comeback_index_ > commit_) return;
    rejoining_ = false;
    rejoined_due_ = true;
    ack_due_ = true;  // so that the leader counts this replica at once
}

void Core::hear_rejoining(Peer& peer, uint64_t run) {
    peer.rejoining = run;
    if (run == 0 || peer.comeback_run == run || !can_propose()) return;
    peer.comeback_run = run;
    append(EntryKind::kReturn, encode_comeback({peer.id, run}));
}

std::string Core::why_no_change(const MembershipChange& change, const Membership& next) const {
    if (role_ != Role::kLeader) return "this replica does not lead";
    if (transferring()) return "leadership is being handed over";
    if (commit_ < view_start_) return "this leader has not decided anything yet: try again";
    if (membership_index() > commit_) return "another change of the membership is under way";
    if (!can_propose()) return "the pipeline is full: try again";
    if (change.kind == ChangeKind::kRemove && change.id == config_.self)
        return "replica " + std::to_string(change.id) + " leads: hand over leadership first";
    if (change.kind == ChangeKind::kPromote) {
        const Peer& peer = *find_peer(change.id);
        if (peer.probing || now_us_ >= peer.heard_us + config_.election_timeout_us)
            return "replica " + std::to_string(change.id) + " does not answer: start it first";
        if (peer.rejoining != 0 || far_behind(peer))
            return "replica " + std::to_string(change.id) + " is " +
                   std::to_string(log_.last_index() - peer.match) +
                   " entries behind: wait until it has caught up";
    }
    // With the voters of `next` that answer and take the log, could anything be decided? A new leader does
    // not know yet how much of it they have.
    const bool new_leader = now_us_ < leads_since_us_ + config_.election_timeout_us;
    size_t answering = 1;
    size_t unknown = 0;
    for (const Peer& peer : peers_) {
        if (!next.voter(peer.id) || peer.rejoining != 0 || peer.stuck() ||
            now_us_ >= peer.heard_us + config_.election_timeout_us)
            continue;
        const bool known = peer.answered && !(peer.probing && far_behind(peer));
        answering += peer.answered && !far_behind(peer);
        unknown += new_leader && !known;
    }
    if (change.kind == ChangeKind::kAdd || answering >= next.quorum()) return "";
    if (answering + unknown >= next.quorum())
        return "how far the logs of the others reach is still being looked for: try again";
    return "only " + std::to_string(answering) + " of the " + std::to_string(next.voters()) +
           " voting members that this would leave answer and keep up with the log: it would stop the cluster";
}

std::string Core::propose_change(const MembershipChange& change) {
    CRANE_CHECK(!persist_out_);
    Membership next = membership();
    std::string error = apply(change, next);
    if (error.empty()) error = why_no_change(change, next);
    if (!error.empty()) return error;
    std::string value;
    encode(next, value);
    append(EntryKind::kMembership, std::move(value));
    CRANE_CHECK(membership() == next);
    return "";
}

}  // namespace crane::paxos
