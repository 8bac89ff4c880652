// What goes wrong, and when.
#include <algorithm>
#include <set>

#include "base/check.hpp"
#include "world.hpp"

namespace crane::sim {

using namespace paxos;

void World::fault() {
    next_fault_us_ = now_us_ + random_.skewed(2 * profile_.fault_interval_us);
    for (auto& [id, replica] : replicas_)
        if (now_us_ >= replica->disk_faults_until_us) replica->disk->mend();
    const FaultKind kind = profile_.pick(random_);
    note("fault", 0, static_cast<uint64_t>(kind));
    if (kind <= FaultKind::kPause)
        machine_fault(kind);
    else if (kind <= FaultKind::kBreakLink)
        network_fault(kind);
    else if (kind <= FaultKind::kLookAtPlatter)
        disk_fault(kind);
    else
        core_fault(kind);
}

void World::machine_fault(FaultKind kind) {
    Replica* replica = pick(true);
    if (replica == nullptr) return;
    switch (kind) {
        case FaultKind::kPowerCut:
            counts_.add(Count::kPowerCuts);
            end(*replica, true);
            break;
        case FaultKind::kKill:
            counts_.add(Count::kKills);
            end(*replica, false);
            break;
        case FaultKind::kCrashInDiskCall:
            counts_.add(Count::kCrashesInDiskCalls);
            replica->disk->cut_after(random_.between(1, 12), random_.chance(0.8));
            break;
        case FaultKind::kShutDown:
            if (!replica->shell->closing()) shut_down(*replica);
            break;
        case FaultKind::kLoseDisk:
            if (may_lose_disk(*replica)) lose_disk(*replica);
            break;
        default:
            counts_.add(Count::kPauses);
            replica->paused_until_us = now_us_ + random_.skewed(300'000);
            break;
    }
    set_wake(*replica);
}

// One at a time, and only while the others can go on: more is more than the protocol promises to survive.
bool World::may_lose_disk(const Replica& replica) const {
    if (!replica.shadow.exists() || anyone_lost()) return false;
    for (const Membership& membership : present_memberships())
        if (membership.voter(replica.id) && membership.voters() < 3) return false;
    return true;
}

bool World::anyone_lost() const {
    return std::any_of(replicas_.begin(), replicas_.end(), [](const auto& each) {
        const Replica& replica = *each.second;
        return !replica.retired && (replica.lost || replica.rotten || replica.shadow.rejoining());
    });
}

void World::lose_disk(Replica& replica) {
    counts_.add(Count::kLostDisks);
    end(replica, true);
    note("lose disk", replica.id);
    replace_disk(replica);
}

void World::replace_disk(Replica& replica) {
    replica.disk->erase();
    replica.rotten = false;
    if (!replica.old_copy) replica.lost = replica.shadow;
    replica.old_copy = false;
    replica.shadow = Shadow{};
    replica.otherwise.reset();
    replica.rejoins = true;
    replica.highest_view = replica.led = 0;
    replica.delivered = 0;
    for (const auto& [id, other] : replicas_)
        if (other->up() && other->core->log_start().index > 0) replica.restores = true;
}

void World::disk_fault(FaultKind kind) {
    Replica* replica = pick(true);
    if (replica == nullptr) return;
    replica->disk_faults_until_us = now_us_ + random_.skewed(300'000);
    switch (kind) {
        case FaultKind::kFailingDisk:
            replica->disk_suspect = true;
            replica->disk->faults.sync_error = random_.chance(0.7) ? 0.2 : 0;
            replica->disk->faults.write_error = random_.chance(0.5) ? 0.1 : 0;
            break;
        case FaultKind::kFullDisk:
            replica->disk_suspect = true;
            replica->disk->faults.full = true;
            break;
        case FaultKind::kSlowDisk:
            replica->slow_until_us = now_us_ + random_.skewed(500'000);
            break;
        case FaultKind::kWriteBack:
            counts_.add(Count::kWriteBacks);
            guarded(*replica, [&] { replica->store->maintain(); });
            break;
        default:
            look_at_platter(*replica);
            break;
    }
    set_wake(*replica);
}

void World::partition() {
    network_.reconnect();
    const double kind = static_cast<double>(random_.below(100)) / 100;
    std::set<Id> side;
    for (const auto& [id, replica] : replicas_)
        if (random_.chance(0.5)) side.insert(id);
    Replica* lonely = pick(true);
    for (const auto& [a, left] : replicas_)
        for (const auto& [b, right] : replicas_) {
            if (a == b) continue;
            const bool isolated = lonely != nullptr && (a == lonely->id || b == lonely->id);
            const bool apart = side.count(a) != side.count(b);
            const bool one_way = side.count(a) > 0 && side.count(b) == 0;
            const bool cut = kind < 0.35   ? isolated
                             : kind < 0.65 ? apart
                             : kind < 0.80 ? one_way
                                           : random_.chance(0.3);
            if (cut) network_.cut(a, b);
        }
}

void World::network_fault(FaultKind kind) {
    const Replica* from = pick(true);
    const Replica* to = pick(true);
    switch (kind) {
        case FaultKind::kPartition:
            counts_.add(Count::kPartitions);
            partition();
            break;
        case FaultKind::kReconnect:
            network_.reconnect();
            break;
        case FaultKind::kClog:
            if (from == nullptr || from == to) break;
            counts_.add(Count::kClogs);
            network_.clog(from->id, to->id, now_us_ + random_.skewed(300'000));
            break;
        default:
            if (from == nullptr || from == to) break;
            counts_.add(Count::kBrokenLinks);
            network_.break_connection(from->id, to->id, now_us_);
            break;
    }
}

void World::core_fault(FaultKind kind) {
    Replica* replica = kind == FaultKind::kLinkRestored ? pick(true) : leader();
    if (replica == nullptr || replica->busy() || now_us_ < replica->paused_until_us) return;
    const auto anyone = replicas_.begin();
    const Id other = std::next(anyone, static_cast<std::ptrdiff_t>(random_.below(replicas_.size())))->first;
    if (kind == FaultKind::kTransfer) {
        counts_.add(Count::kTransfers);
        replica->shell->transfer_leadership(random_.chance(0.5) ? kNoReplica : other);
    } else if (kind == FaultKind::kStepDown) {
        replica->shell->step_down();
    } else {
        replica->shell->link_changed(other, true);
    }
    guarded(*replica, [&] { turn(*replica); });
    set_wake(*replica);
}

// Its user says that it should not lead, or take no entries.
void World::restrain(Replica& replica) {
    if (added_.bar && (!added_.no_room || added_random_.chance(0.5))) {
        note("bar", replica.id);
        counts_.add(Count::kBarred);
        replica.barred_until_us = now_us_ + added_random_.skewed(2'000'000);
    } else {
        note("no room", replica.id);
        counts_.add(Count::kWithoutRoom);
        replica.no_room_until_us = now_us_ + added_random_.skewed(500'000);
    }
}

// Those of AddedFaults that come by themselves.
void World::added_fault() {
    next_added_us_ = now_us_ + added_random_.skewed(2 * added_.interval_us);
    std::vector<Replica*> able;
    for (auto& [id, replica] : replicas_)
        if (replica->up() && !replica->busy() && now_us_ >= replica->paused_until_us)
            able.push_back(replica.get());
    if (able.empty()) return;
    Replica& replica = *able[added_random_.below(able.size())];
    const bool older = added_.peer_gone || added_.pause_delivery;
    if ((added_.bar || added_.no_room) && (!older || added_random_.chance(0.3))) {
        restrain(replica);
    } else if (added_.pause_delivery && (!added_.peer_gone || added_random_.chance(0.3))) {
        note("pause delivery", replica.id);
        counts_.add(Count::kDeliveryPauses);
        replica.delivery_paused_until_us = now_us_ + added_random_.skewed(300'000);
    } else {
        const auto any = static_cast<std::ptrdiff_t>(added_random_.below(replicas_.size()));
        const Id leader = added_random_.chance(0.5) ? replica.core->leader() : kNoReplica;
        const Id gone = leader != kNoReplica ? leader : std::next(replicas_.begin(), any)->first;
        note("gone", replica.id, gone);  // true or not
        replica.shell->peer_gone(gone);
    }
    guarded(replica, [&] {
        const uint64_t before = replica.shell->leaders_gone();
        turn(replica);
        counts_.add(Count::kPeersGone, replica.shell->leaders_gone() - before);
    });
    set_wake(replica);
}

}  // namespace crane::sim
