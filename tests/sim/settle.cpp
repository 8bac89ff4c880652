// The end of a life: faults stop on a majority, which must go on; then everywhere, and all must agree on all.
#include <algorithm>

#include "world.hpp"

namespace crane::sim {

using namespace paxos;

namespace {

constexpr uint64_t kProgressBoundUs = 3'000'000;  // fifty election timeouts
constexpr uint64_t kAgreementBoundUs = 6'000'000;
constexpr uint64_t kRestartBoundUs = 50'000;
constexpr uint64_t kQuietUs = 100'000;

}  // namespace

// The one that is decided, and those that may be decided next.
std::vector<Membership> World::present_memberships() const {
    std::vector<Membership> present = {checks_.membership().membership};
    auto add = [&](const Shadow& shadow) {
        for (const MembershipAt& at : shadow.memberships())
            if (at.index > checks_.membership().index) present.push_back(at.membership);
    };
    for (const auto& [id, replica] : replicas_) {
        if (replica->retired) continue;  // what it alone has, nobody will ever decide
        add(replica->shadow);
        if (replica->otherwise) add(*replica->otherwise);
        if (replica->up())
            for (const MembershipAt& at : replica->core->memberships())
                if (at.index > checks_.membership().index) present.push_back(at.membership);
    }
    return present;
}

std::vector<World::Id> World::pick_core() {
    const std::vector<Membership> present = present_memberships();
    std::vector<Id> candidates, core;
    for (const auto& [id, replica] : replicas_)
        if (!replica->retired && !replica->lost && !replica->shadow.rejoining()) candidates.push_back(id);
    for (size_t i = candidates.size(); i > 1; --i) std::swap(candidates[i - 1], candidates[random_.below(i)]);
    auto enough = [&](const Membership& membership) {
        const auto votes =
            std::count_if(core.begin(), core.end(), [&](Id id) { return membership.voter(id); });
        return static_cast<size_t>(votes) >= membership.quorum();
    };
    for (const Id id : candidates) {
        if (std::all_of(present.begin(), present.end(), enough)) break;
        if (std::any_of(present.begin(), present.end(),
                        [&](const Membership& each) { return each.voter(id); }))
            core.push_back(id);
    }
    if (!std::all_of(present.begin(), present.end(), enough)) core.clear();
    return core;
}

void World::calm(Replica& replica) {
    replica.disk->mend();
    replica.disk->cut_after(0, true);
    replica.slow_until_us = replica.paused_until_us = 0;
    if (now_us_ < replica.delivery_paused_until_us) replica.delivery_paused_until_us = now_us_;
    replica.barred_until_us = replica.no_room_until_us = 0;
    replica.held = false;
    if (!replica.up() && !replica.retired)
        replica.restart_at_us = std::min(replica.restart_at_us, now_us_ + random_.below(kRestartBoundUs));
    set_wake(replica);
}

bool World::decides_again(const std::vector<Id>& core, uint64_t before) const {
    return std::all_of(core.begin(), core.end(), [&](Id id) {
        const Replica& replica = *replicas_.at(id);
        if (checks_.membership().membership.removed(id)) return true;
        return replica.up() && replica.delivered > before && replica.core->decided_index() > before;
    });
}

bool World::converged() const {
    for (const Member& member : checks_.membership().membership.members) {
        const auto found = replicas_.find(member.id);
        if (found == replicas_.end()) return false;
        const Replica& replica = *found->second;
        if (!replica.up() || replica.old_copy || replica.delivered != checks_.decided() ||
            replica.core->rejoining() || replica.core->last_index() != checks_.decided())
            return false;
    }
    return true;
}

std::string World::state() const {
    std::string text = "decided " + std::to_string(checks_.decided()) + ", members " +
                       describe(checks_.membership().membership) + "\n";
    for (const auto& [id, replica] : replicas_) {
        if (replica->up())
            text += replica->core->describe();
        else
            text += "replica " + std::to_string(id) + (replica->retired ? " is retired\n" : " is down\n");
        if (replica->old_copy) text += "its disk is an old copy, and nobody has noticed\n";
    }
    return text;
}

void World::settle() {
    faults_on_ = false;
    network_.reconnect();
    network_.unclog(now_us_);
    network_.faults.loss = network_.faults.duplication = 0;
    for (auto& [id, replica] : replicas_)
        if (replica->rotten && !replica->retired) find_rot(*replica);
    if (!violation().empty()) return;
    const std::vector<Id> core = pick_core();
    if (core.empty()) {
        checks_.violate("no majority is left that could go on\n" + state());
        return;
    }
    for (const Id id : core) calm(*replicas_.at(id));
    for (auto& [id, replica] : replicas_) {
        if (replica->retired || std::find(core.begin(), core.end(), id) != core.end()) continue;
        if (random_.chance(0.4)) {
            replica->held = true;
            if (replica->up()) end(*replica, true);
            set_wake(*replica);
        } else if (random_.chance(0.5)) {
            for (const auto& [other, ignored] : replicas_) {
                network_.cut(id, other);
                if (random_.chance(0.5)) network_.cut(other, id);
            }
        }
    }
    note("core only", 0, core.size());
    const uint64_t before = checks_.decided() + 2;
    run_until(now_us_ + kProgressBoundUs, [&] { return decides_again(core, before); });
    if (!violation().empty()) return;
    if (!decides_again(core, before)) {
        std::string who;
        for (const Id id : core) who += " " + std::to_string(id);
        checks_.violate("the faults have stopped on" + who + ", and nothing is decided\n" + state());
        return;
    }
    network_.reconnect();
    for (auto& [id, replica] : replicas_) calm(*replica);
    note("all", 0);
    run_until(now_us_ + kQuietUs, [] { return false; });
    proposals_on_ = false;
    run_until(now_us_ + kAgreementBoundUs, [&] { return converged(); });
    if (!violation().empty()) return;
    if (!converged())
        checks_.violate("all faults have stopped, and the replicas do not agree\n" + state());
    else
        counts_.add(Count::kSettled);
}

}  // namespace crane::sim
