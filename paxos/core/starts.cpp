// Core: which starts of which databases count. See incarnation.hpp and lineage.hpp.
#include <algorithm>
#include <optional>

#include "base/check.hpp"
#include "paxos/core/core.hpp"

namespace crane::paxos {
namespace {

constexpr uint64_t kInTouchHeartbeats = 4;

}  // namespace

// What is said by somebody out of his mind, or from a copy of a database.
bool Core::refuse(const Message& message) {
    if (!believable(message.view) || !believable(message.promised)) {
        ++stats_.absurd_views;
        stats_.absurd_from = message.from;
        return true;
    }
    Copy copy = starts_.table.judge(message.from, message.origin);
    if (copy == Copy::kCurrent)
        copy = lineages_.hear(message, starts_.table.names(message.from, message.origin));
    if (copy == Copy::kCurrent) {
        if (stats_.disowned_from == message.from) stats_.disowned_from = kNoReplica;
        return false;
    }
    if (!lineages_.believed(message.from, message.origin.run)) {  // else what a process that is gone has left
        ++stats_.disowned;
        stats_.disowned_from = message.from;
        stats_.disowned_as = copy;
    }
    if (message.type == MessageType::kDisown) return true;
    Message reply = make(MessageType::kDisown, message.from);
    reply.hint = message.origin.run;
    reply.index = static_cast<uint64_t>(copy);
    queue_reply(std::move(reply));
    return true;
}

std::string describe_disowned(const CoreStats& stats) {
    return "replica " + std::to_string(stats.disowned_from) + " is not listened to: its database " +
           describe(stats.disowned_as) +
           ". Stop it, move its database away and start it with rejoin = true under [consensus]";
}

void Core::disown(Copy copy, ReplicaId by) {
    disowned_ = copy;
    disowned_by_ = by;
}

void Core::on_disown(const Message& message) {
    if (message.hint == origin_.run && message.index <= static_cast<uint64_t>(Copy::kUnannounced))
        disown(static_cast<Copy>(message.index), message.from);
}

void Core::forget_starts_of_strangers() {
    std::vector<ReplicaId> members;
    for (const MembershipAt& at : memberships_)
        for (const Member& member : at.membership.members) members.push_back(member.id);
    starts_.table.keep_only(members);
}

// That somebody has heard of a start is true, whatever becomes of the entry. A replica may learn from it that
// it is itself a copy.
void Core::adopt_starts(const Entry& entry) {
    Incarnations said;
    CRANE_CHECK(decode(*entry.value, said));
    if (starts_.index != 0 && starts_.index <= commit_) decided_starts_ = starts_.table;
    forget_starts_of_strangers();
    const Incarnation* accused = starts_.table.find(stats_.disowned_from);
    const std::optional<Incarnation> before = accused ? std::optional(*accused) : std::nullopt;
    starts_.index = starts_.table.learn(said) ? entry.index : 0;
    // It has begun anew, and was accepted: a backup may not hear from it for long.
    accused = starts_.table.find(stats_.disowned_from);
    if (accused && before != *accused) stats_.disowned_from = kNoReplica;
    starts_due_ = true;
    if (starts_.table.names(config_.self, origin_)) origin_.previous_runs.clear();
    const Copy own = starts_.table.judge(config_.self, origin_);
    if (own != Copy::kCurrent) disown(own, entry.leader());
}

// What was acknowledged counts only for the start that did: the next may be from a copy without it.
void Core::hear_start(Peer& peer, const Origin& origin) {
    peer.answered = true;
    if (peer.origin.same_start(origin)) return;
    peer.origin = origin;
    peer.counted = 0;
    peer.lives_from = starts_.table.replaces(peer.id, origin) ? log_.last_index() + 1 : 0;
}

// Messages may be late, and a database does not know which others its replica has had. So that another one
// is the newer is believed when its process has taken something that was proposed after it was first heard.
bool Core::is_news(const Peer& peer) const {
    const Origin& origin = peer.origin;
    return origin.database != 0 && membership().find(peer.id) != nullptr && peer.match >= peer.lives_from &&
           !starts_.table.names(peer.id, origin) && starts_.table.judge(peer.id, origin) == Copy::kCurrent;
}

// Proposes what is known of starts beyond what the log says, one entry at a time; or the same once more, for
// a process that has to show that it lives.
void Core::announce_starts() {
    if (role_ != Role::kLeader || !can_propose() || commit_ < view_start_ || starts_.index > commit_) return;
    const auto waits = [this](const Peer& peer) {
        return is_news(peer) || peer.lives_from == log_.last_index() + 1;
    };
    const bool own = origin_.database != 0 && membership().find(config_.self) != nullptr &&
                     !starts_.table.names(config_.self, origin_);
    const bool cut_off = starts_.index == 0 && !starts_.table.empty();
    if (!own && !cut_off && std::none_of(peers_.begin(), peers_.end(), waits)) return;
    forget_starts_of_strangers();
    Incarnations next = starts_.table;
    if (own) next.record(config_.self, origin_);
    for (const Peer& peer : peers_)
        if (is_news(peer)) next.record(peer.id, peer.origin);
    if (next.empty()) return;
    std::string value;
    encode(next, value);
    append(EntryKind::kStart, std::move(value));
}

bool Core::start_decided(const Peer& peer) const {
    const Incarnations& decided =
        starts_.index != 0 && starts_.index <= commit_ ? starts_.table : decided_starts_;
    return peer.origin.database == 0 || decided.names(peer.id, peer.origin);
}

bool Core::in_touch(const Peer& peer) const {
    return now_us_ < peer.heard_us + kInTouchHeartbeats * config_.heartbeat_us;
}

// Whether the acknowledgements of starts that are not decided yet are needed to decide anything. While they
// are not, they do not count: then their entry is decided without them, like a Return. Who answers and does
// not get that entry, or not soon, is as good as down. How far a log reaches that is still being looked for
// (probing) nobody knows.
bool Core::needs_new_starts() const {
    size_t others = membership().voter(config_.self) ? 1 : 0;
    for (const Peer& peer : peers_)
        others += peer.voter && peer.answered && peer.rejoining == 0 && !peer.stuck() &&
                  (peer.probing || !far_behind(peer)) && start_decided(peer) && in_touch(peer);
    return others < membership().quorum();
}

}  // namespace crane::paxos
