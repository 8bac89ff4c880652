// Core, a follower's side: taking the leader's log.
#include <algorithm>

#include "base/check.hpp"
#include "paxos/core/core.hpp"

namespace crane::paxos {

void Core::queue_reject(const Message& message, uint64_t hint) {
    Message reply = make(MessageType::kAck, message.from);
    reply.view = message.view;
    reply.index = message.index;
    reply.hint = hint;
    reply.rejoining = rejoining_ ? config_.run : 0;
    queue_reply(std::move(reply));
}

bool Core::accept_leader(const Message& message) {
    if (view_leader(message.view) != message.from) return false;
    highest_seen_ = std::max(highest_seen_, message.view);
    if (message.view < view_) {
        queue_reject(message, commit_);
        return false;
    }
    CRANE_CHECK(message.view > view_ || role_ != Role::kLeader);
    if (message.view > view_ || role_ != Role::kFollower || leader_ != message.from)
        become_follower(message.view, message.from);
    else
        saw_arrival(leader_heard_us_);
    leader_heard_us_ = now_us_;
    leader_gone_ = false;
    election_deadline_us_ = now_us_ + random_election_timeout();
    return true;
}

void Core::on_prepare(const Message& message) {
    if (!accept_leader(message)) return;
    if (message.index > log_.last_index()) {
        queue_reject(message, log_.last_index());
        return;
    }
    if (message.index >= log_.start().index) {
        const LogPosition here = log_.position(message.index);
        if (here.view != message.index_view && message.index > commit_) {
            queue_reject(message, commit_);
            return;
        }
        if (here.view != message.index_view || here.chain != message.chain) {  // decided: must be the same
            ++stats_.mismatched_chains;
            return;
        }
    }
    uint64_t index = message.index;
    for (const Entry& entry : message.entries) {
        ++index;
        CRANE_CHECK(entry.index == index && entry.view <= message.view);
        if (index <= log_.start().index) continue;
        if (index <= log_.last_index()) {
            const LogPosition here = log_.position(index);
            if (here.view == entry.view && here.chain == entry.chain) continue;
            if (here.view == entry.view || index <= commit_) {
                ++stats_.mismatched_chains;
                return;
            }
            CRANE_CHECK(role_ == Role::kFollower);
            if (!has_room_) {
                --index;
                break;
            }
            log_.truncate_from(index);
            abandon_from(index);
            if (index <= durable_) {
                durable_ = index - 1;
                truncate_from_ = truncate_from_ == 0 ? index : std::min(truncate_from_, index);
            }
        }
        if (!has_room_) {  // the leader is heard all the same, and sends it again
            --index;
            break;
        }
        if (entry.view < log_.end().view || entry.chain != chain_hash(log_.end().chain, entry)) {
            ++stats_.mismatched_chains;
            return;
        }
        log_.append(entry);
        adopt(entry);
    }
    matched_ = std::max({matched_, commit_, index});
    learn_commit(message);
    ack_due_ = true;
}

void Core::learn_commit(const Message& message) {
    // It may have come before the entries that it is about.
    leader_commit_ = std::max(leader_commit_, message.commit);
    commit_ = std::max(commit_, std::min(leader_commit_, matched_));
    common_checkpoint_ = std::max(common_checkpoint_, message.checkpoint);
    check_return();
}

void Core::on_commit(const Message& message) {
    if (!accept_leader(message)) return;
    learn_commit(message);
    if (message.wants_ack) ack_due_ = true;
}

}  // namespace crane::paxos
