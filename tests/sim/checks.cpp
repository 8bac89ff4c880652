#include "checks.hpp"

#include <algorithm>
#include <cstdlib>

#include "paxos/core/describe.hpp"
#include "paxos/core/quorum.hpp"

namespace crane::sim {

using namespace paxos;

namespace {

std::string name(const Replica& replica) {
    return "replica " + std::to_string(replica.id);
}

size_t voters_apart(const Membership& a, const Membership& b) {
    size_t apart = 0;
    for (const Member& member : a.members) apart += member.voter && !b.voter(member.id) ? 1 : 0;
    for (const Member& member : b.members) apart += member.voter && !a.voter(member.id) ? 1 : 0;
    return apart;
}

}  // namespace

std::string make_value(View view, uint64_t number, size_t padding) {
    return std::to_string(view) + ":" + std::to_string(number) + ":" + std::string(padding, '.');
}

Checks::Checks(const Replicas& replicas, const Membership& founders, Counts& counts)
    : replicas_(replicas), counts_(counts) {
    memberships_.push_back({0, founders});
}

void Checks::violate(const std::string& what) {
    if (violation_.empty()) violation_ = what;
}

LogPosition Checks::position(uint64_t index) const {
    return index == 0 ? LogPosition{} : ledger_.at(index - 1).position;
}

const MembershipAt& Checks::membership_at(uint64_t index) const {
    size_t at = memberships_.size() - 1;
    while (memberships_[at].index > index) --at;
    return memberships_[at];
}

bool Checks::on_majority(const LogPosition& position, const Membership& membership) const {
    size_t copies = 0;
    for (const Member& member : membership.members) {
        const auto found = replicas_.find(member.id);
        if (!member.voter || found == replicas_.end()) continue;
        const Replica& replica = *found->second;
        const bool has = !replica.shadow.rejoining() && replica.shadow.holds(position);
        copies += has || (replica.lost && replica.lost->holds(position)) ? 1 : 0;
    }
    return copies >= membership.quorum();
}

void Checks::sending(const Replica& replica, const Message& message) {
    const auto& shadow = replica.shadow;
    if (message.type == MessageType::kViewChangeReply && message.ok && shadow.view() < message.view)
        violate(name(replica) + " promised a view that is not on its disk: " + describe(message));
    if (message.type != MessageType::kAck || !message.ok) return;
    if (shadow.last_index() < message.index || shadow.view() < message.view)
        violate(name(replica) + " acknowledged what is not on its disk, which ends at " +
                describe(shadow.end()) + ": " + describe(message));
}

void Checks::persisting(const Replica& replica, const PersistBatch& batch) {
    counts_.add(Count::kPersists);
    for (const Entry& entry : batch.append) {
        Seen seen;
        seen.chain = entry.chain;
        seen.kind = entry.kind;
        if (entry.kind == EntryKind::kMembership) seen.membership = entry.value;
        if (entry.kind == EntryKind::kValue) {
            const size_t colon = entry.value->find(':');
            seen.number = std::strtoull(entry.value->c_str() + colon + 1, nullptr, 10);
            if (std::strtoull(entry.value->c_str(), nullptr, 10) != entry.view)
                violate(describe(entry) + " is not of the view that accepted it");
        }
        const auto [known, added] = seen_.emplace(Place{entry.index, entry.view}, seen);
        if (!added && (known->second.chain != entry.chain || known->second.kind != entry.kind))
            violate(name(replica) + ": " + describe(entry) +
                    " is another entry, or follows others, elsewhere");
    }
    if (batch.memberships.size() == 2 &&
        voters_apart(batch.memberships[0].membership, batch.memberships[1].membership) > 1)
        violate(name(replica) + ": two voters change at once, from " +
                describe(batch.memberships[0].membership) + " to " +
                describe(batch.memberships[1].membership));
}

void Checks::decide(Decided decided) {
    const LogPosition& position = decided.position;
    const auto found = seen_.find({position.index, position.view});
    if (found == seen_.end() || found->second.chain != position.chain) {
        violate(describe(position) + " was decided, and on nobody's disk");
        return;
    }
    const Seen& seen = found->second;
    if (seen.kind == EntryKind::kValue && seen.number != ++last_value_[position.view])
        violate(describe(position) + " is value " + std::to_string(seen.number) +
                " of its view, decided as " + std::to_string(last_value_[position.view]));
    if (seen.kind == EntryKind::kMembership) {
        MembershipAt at{position.index, {}};
        if (!decode(*seen.membership, at.membership)) violate("a membership does not decode");
        memberships_.push_back(std::move(at));
    }
    ledger_.push_back(std::move(decided));
    counts_.add(Count::kDecided);
}

void Checks::extend(const Replica& replica) {
    const Core& core = *replica.core;
    const uint64_t decided = core.decided_index();
    if (core.role() != Role::kLeader) {
        violate(name(replica) + " takes entry " + std::to_string(decided) +
                " for decided, and no leader has decided it");
        return;
    }
    if (core.log_start().index > ledger_.size()) {
        violate(name(replica) + " has cut what is not decided");
        return;
    }
    if (core.log_position(decided).view != core.view())
        violate(name(replica) + " decides " + describe(core.log_position(decided)) + " in view " +
                view_name(core.view()) + ": entries of older views are decided with one of its own only");
    if (counted_ == nullptr || counted_->index != core.membership_index())
        counted_ = std::make_shared<const MembershipAt>(core.memberships().back());
    for (uint64_t index = ledger_.size() + 1; index <= decided; ++index)
        decide({core.log_position(index), core.view(), counted_});
    if (!on_majority(core.log_position(decided), core.membership()))
        violate(name(replica) + " decided " + describe(core.log_position(decided)) +
                ", which is not on the disks of a majority of " + describe(core.membership()));
}

void Checks::new_leader(const Replica& replica) {
    const Core& core = *replica.core;
    const auto first_later = std::partition_point(
        ledger_.begin(), ledger_.end(), [&](const Decided& decided) { return decided.by < core.view(); });
    if (first_later == ledger_.begin()) return;
    const LogPosition& last = std::prev(first_later)->position;
    const bool has = last.index <= core.log_start().index ||
                     (last.index <= core.last_index() && core.log_position(last.index) == last);
    if (!has)
        violate(name(replica) + " leads view " + view_name(core.view()) + " without " + describe(last) +
                ", which was decided in a lower view");
}

void Checks::cutting(const Replica& replica) {
    const Core& core = *replica.core;
    if (core.common_checkpoint() <= common_checkpoint_) return;
    common_checkpoint_ = core.common_checkpoint();
    std::vector<uint64_t> held;
    for (const Member& member : core.membership().members)
        if (member.voter) held.push_back(replicas_.at(member.id)->checkpoint);
    if (core.role() != Role::kLeader || majority_reached(held) < common_checkpoint_)
        violate(name(replica) + " would have logs cut up to " + std::to_string(common_checkpoint_) +
                ", and no majority of " + describe(core.membership()) + " holds a checkpoint of that");
}

void Checks::observe(Replica& replica) {
    const Core& core = *replica.core;
    if (core.view() < replica.highest_view) violate(name(replica) + " went back in views");
    counts_.add(Count::kViews, core.view() != replica.highest_view ? 1 : 0);
    replica.highest_view = core.view();
    if (core.role() == Role::kLeader && replica.led != core.view()) {
        replica.led = core.view();
        counts_.add(Count::kElections);
        counts_.add(Count::kLedBarred, core.eligible() ? 0 : 1);
        new_leader(replica);
    }
    if (core.stats().mismatched_chains > 0)
        violate(name(replica) + " was sent a log that differs from its own where it must not:\n" +
                core.describe());
    if (core.durable_index() > replica.shadow.last_index())
        violate(name(replica) + " takes entry " + std::to_string(core.durable_index()) +
                " for durable, its disk ends at " + describe(replica.shadow.end()));
    if (core.decided_index() > ledger_.size()) extend(replica);
    cutting(replica);
}

void Checks::delivering(Replica& replica, const Entry& entry) {
    counts_.add(Count::kDelivered);
    if (entry.index != replica.delivered + 1)
        violate(name(replica) + " delivers entry " + std::to_string(entry.index) + " after " +
                std::to_string(replica.delivered));
    replica.delivered = entry.index;
    if (entry.index > ledger_.size())
        violate(name(replica) + " delivers " + describe(entry) + ", which is not decided");
    else if (position(entry.index) != entry.position() ||
             chain_hash(position(entry.index - 1).chain, entry) != entry.chain)
        violate(name(replica) + " delivers " + describe(entry) + ", decided was " +
                describe(position(entry.index)));
}

void Checks::recovered(Replica& replica, const StoredState& found) {
    if (!replica.disk->inherited_synced())
        violate(name(replica) + " starts from what is not on its disk yet:\n" + replica.disk->describe());
    std::string differs = replica.shadow.compare(found);
    if (!differs.empty() && replica.otherwise) {
        const std::string otherwise = replica.otherwise->compare(found);
        if (otherwise.empty()) replica.shadow = *replica.otherwise;
        differs = otherwise.empty() ? "" : differs + "; or, with what was under way: " + otherwise;
    }
    replica.otherwise.reset();
    replica.highest_view = found.view;  // what it had not put on its disk, it never said to anybody
    if (!differs.empty()) violate(name(replica) + " finds on its disk " + differs);
    if (found.commit > ledger_.size())
        violate(name(replica) + " finds entry " + std::to_string(found.commit) + " decided, which is not");
}

void Checks::audit(Random& random) {
    if (ledger_.empty()) return;
    const uint64_t index = random.chance(0.5) ? ledger_.size() : random.between(1, ledger_.size());
    if (on_majority(position(index), membership().membership)) return;
    // Perhaps it was counted with a membership that was not decided, and is not yet.
    const MembershipAt& counted = *ledger_[index - 1].with;
    if (counted.index > membership().index && on_majority(position(index), counted.membership)) return;
    violate(describe(position(index)) + " was decided and is no longer on the disks of a majority of " +
            describe(membership().membership));
}

}  // namespace crane::sim
