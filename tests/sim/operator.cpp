// What the people who run the cluster do: they change who its replicas are, start newcomers, retire those
// removed, cut logs behind checkpoints, and restore from a checkpoint whoever is too far behind.
#include <algorithm>

#include "world.hpp"

namespace crane::sim {

using namespace paxos;

namespace {

constexpr size_t kMaxReplicas = 14;  // ever
constexpr size_t kEnoughMembers = 9;

}  // namespace

void World::operate() {
    next_operation_us_ = now_us_ + random_.skewed(2 * profile_.operation_interval_us);
    note("operator", 0);
    start_newcomers();
    retire_removed();
    restore_who_needs_it();
    if (!faults_on_) return;
    if (profile_.membership_changes && random_.chance(0.5)) change_membership();
    Replica* replica = pick(true);
    if (profile_.truncations && replica != nullptr && random_.chance(0.4)) make_checkpoint(*replica);
}

void World::start_newcomers() {
    for (const Member& member : checks_.membership().membership.members) {
        if (replicas_.count(member.id) > 0) continue;
        Replica& replica = add_replica(member.id, false);
        replica.restart_at_us = now_us_ + down_for_us();
        set_wake(replica);
    }
}

void World::retire_removed() {
    for (auto& [id, replica] : replicas_) {
        if (replica->retired || !checks_.membership().membership.removed(id)) continue;
        const bool knows = replica->up() && replica->core->removed();
        if (!knows && !random_.chance(0.1)) continue;
        if (replica->up()) end(*replica, false);
        replica->retired = true;
        set_wake(*replica);
    }
}

void World::restore_who_needs_it() {
    const Replica* first = leader();
    if (first == nullptr) return;
    for (auto& [id, replica] : replicas_) {
        if (replica->retired || replica->held || !first->core->needs_checkpoint(id) || random_.chance(0.3))
            continue;
        replica->restores = true;
        if (!replica->up()) continue;
        counts_.add(Count::kKills);
        end(*replica, false);
        set_wake(*replica);
    }
}

void World::change_membership() {
    Replica* first = leader();
    if (first == nullptr || first->busy() || now_us_ < first->paused_until_us) return;
    const Membership& membership = first->core->membership();
    std::vector<Id> learners, all;
    for (const Member& member : membership.members) {
        all.push_back(member.id);
        if (!member.voter) learners.push_back(member.id);
    }
    MembershipChange change;
    if (replicas_.size() < kMaxReplicas && all.size() < kEnoughMembers && random_.chance(0.4)) {
        change = {ChangeKind::kAdd, membership.highest_id + 1,
                  "sim:" + std::to_string(membership.highest_id + 1)};
    } else if (!learners.empty() && random_.chance(0.7)) {
        change = {ChangeKind::kPromote, learners[random_.below(learners.size())], ""};
    } else if (membership.voters() > 2 || random_.chance(0.1)) {
        change = {ChangeKind::kRemove, all[random_.below(all.size())], ""};
    } else {
        return;
    }
    // With one other voter alone, one that has lost its disk could never come back.
    Membership next = membership;
    if (!apply(change, next).empty()) return;
    for (const auto& [id, replica] : replicas_)
        if (replica->rejoins && next.voter(id) && next.voters() < 3) return;
    propose_change(*first, change);
}

void World::propose_change(Replica& first, const MembershipChange& change) {
    guarded(first, [&] {
        if (settings_.canary == nullptr || !settings_.canary->change_membership(*first.core, change)) {
            const std::string refused = first.shell->change_membership(change);
            note("change", change.id, static_cast<uint64_t>(change.kind) << 8 | (refused.empty() ? 1 : 0));
            if (settings_.verbose && !refused.empty()) say("refused: " + refused);
            const Count done = change.kind == ChangeKind::kAdd       ? Count::kLearnersAdded
                               : change.kind == ChangeKind::kPromote ? Count::kPromoted
                                                                     : Count::kRemoved;
            counts_.add(refused.empty() ? done : Count::kChangesRefused);
            if (change.id == first.id && change.kind == ChangeKind::kRemove)
                first.shell->transfer_leadership(kNoReplica);
        }
        turn(first);
    });
    set_wake(first);
}

void World::make_checkpoint(Replica& replica) {
    if (replica.busy() || replica.delivered == 0) return;
    const uint64_t index = random_.between(1, replica.delivered);
    note("checkpoint", replica.id, index);
    replica.checkpoint = std::max(replica.checkpoint, index);
    guarded(replica, [&] {
        replica.shell->hold_checkpoint(index);
        checks_.observe(replica);
    });
    set_wake(replica);
}

}  // namespace crane::sim
