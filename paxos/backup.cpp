// Core, a follower's side: taking the leader's log.
#include <algorithm>

#include "paxos/check.hpp"
#include "paxos/core.hpp"

namespace crane::paxos {

void Core::queue_reject(const Message& message, uint64_t hint) {
    Message reply = make(MessageType::Ack, message.from);
    reply.view = message.view;
    reply.index = message.index;
    reply.hint = hint;
    queue_reply(std::move(reply));
}

bool Core::accept_leader(const Message& message) {
    if (view_leader(message.view) != message.from) return false;
    highest_seen_ = std::max(highest_seen_, message.view);
    if (message.view < view_) {
        queue_reject(message, commit_);
        return false;
    }
    CRANE_CHECK(message.view > view_ || role_ != Role::Leader);
    if (message.view > view_ || role_ != Role::Follower || leader_ != message.from)
        become_follower(message.view, message.from);
    leader_heard_us_ = now_us_;
    election_deadline_us_ = now_us_ + random_election_timeout();
    return true;
}

void Core::on_prepare(const Message& message) {
    if (!accept_leader(message)) return;
    if (message.index > log_.last_index()) {
        queue_reject(message, log_.last_index());
        return;
    }
    // Up to commit_ the leader's log is this one's: only what lies beyond needs a look.
    if (message.index > commit_) {
        const LogPosition here = log_.position(message.index);
        if (here.view != message.index_view) {
            queue_reject(message, commit_);
            return;
        }
        if (here.chain != message.chain) {
            ++stats_.mismatched_chains;
            return;
        }
    }
    uint64_t index = message.index;
    for (const Entry& entry : message.entries) {
        ++index;
        CRANE_CHECK(entry.index == index && entry.view <= message.view);
        if (index <= commit_) continue;
        if (index <= log_.last_index()) {
            if (log_.position(index).view == entry.view) continue;
            CRANE_CHECK(index > commit_ && role_ == Role::Follower);
            log_.truncate_from(index);
            if (index <= durable_) {
                durable_ = index - 1;
                truncate_from_ = truncate_from_ == 0 ? index : std::min(truncate_from_, index);
            }
        }
        if (entry.view < log_.end().view || entry.chain != chain_hash(log_.end().chain, entry)) {
            ++stats_.mismatched_chains;
            return;
        }
        log_.append(entry);
    }
    matched_ = std::max({matched_, commit_, index});
    learn_commit(message);
    ack_due_ = true;
}

void Core::learn_commit(const Message& message) {
    commit_ = std::max(commit_, std::min(message.commit, matched_));
    // Once the leader has decided an entry of its own view, its commit index covers all that was ever decided
    // before.
    if (rejoining_ && commit_ == message.commit && commit_ > 0 &&
        log_.position(commit_).view == message.view) {
        rejoining_ = false;
        rejoined_due_ = true;
    }
}

void Core::on_commit(const Message& message) {
    if (!accept_leader(message)) return;
    learn_commit(message);
    if (message.wants_ack) ack_due_ = true;
}

}  // namespace crane::paxos
