// Disks that are put back from a copy, against all advice.
//
// Put back is what the others can know for old: each of those who vote has on its disk that there was a start
// which no process from the copy could be. What happens to a copy that is newer than that is what happens to
// a lost disk that nobody is told of, unless somebody remembers. Left alone is a copy from a time when its
// replica was the only one that voted: it asks nobody. One that was started often enough without being heard
// cannot be told from the true one any more: before that, its operator gives up.
#include <algorithm>

#include "world.hpp"

namespace crane::sim {

using namespace paxos;

// Between two processes: keeps a copy, or puts back the one that was kept.
void World::copy_disk(Replica& replica) {
    if (replica.old_copy || replica.lost || replica.rotten || replica.shadow.rejoining()) return;
    if (!replica.old) {
        if (replica.origin.database == 0) return;
        replica.old = Replica::OldDisk{replica.disk->image(replica.disk->root()), replica.shadow,
                                       replica.otherwise, replica.origin};
        ++replica.old->origin.start;
        note("copy", replica.id, replica.old->origin.start);
    } else if (may_lose_disk(replica) && is_known_for_old(replica)) {
        put_back(replica);
    }
}

bool World::is_known_for_old(const Replica& replica) const {
    const Replica::OldDisk& old = *replica.old;
    const auto decides_alone = [&](const MembershipAt& at) {
        return at.membership.voters() == 1 && at.membership.voter(replica.id);
    };
    const auto& then = old.shadow.memberships();
    if (then.empty() || std::any_of(then.begin(), then.end(), decides_alone)) return false;
    if (settings_.canary != nullptr && settings_.canary->counts_no_starts()) return true;
    for (const Membership& membership : present_memberships())
        for (const Member& member : membership.members) {
            if (member.id == replica.id) continue;
            const auto other = replicas_.find(member.id);
            if (other == replicas_.end() ||
                other->second->shadow.starts().judge(replica.id, old.origin) == Copy::kCurrent)
                return false;
        }
    return true;
}

void World::put_back(Replica& replica) {
    Replica::OldDisk& old = *replica.old;
    note("put back", replica.id, old.origin.start);
    counts_.add(Count::kOldDisks);
    replica.disk->put_back(*old.image);
    replica.lost = replica.shadow;
    replica.shadow = old.shadow;
    replica.otherwise = old.otherwise;
    replica.old.reset();
    replica.old_copy = replica.rejoins = true;
    replica.copy_starts = 0;
    replica.highest_view = replica.led = 0;
    replica.delivered = 0;
}

}  // namespace crane::sim
