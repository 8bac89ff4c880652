// A replica's process: how it starts, when its shell gets a turn, how it ends.
#include <algorithm>

#include "base/check.hpp"
#include "ground.hpp"

namespace crane::sim {

using namespace paxos;

namespace {

constexpr size_t kMaxInbox = 4'000;

}  // namespace

void World::guarded(Replica& replica, const std::function<void()>& act) {
    try {
        act();
    } catch (const StorageError& error) {
        stop_by_disk(replica, error.what());
        return;
    }
    if (replica.disk->is_cut()) {
        finish_cut(replica);
    } else if (replica.up() && replica.shell->closed()) {
        note("closed", replica.id);
        destroy(replica);
        replica.restart_at_us = now_us_ + down_for_us();
    } else if (replica.up() && replica.shell->stopped()) {
        stop_by_disk(replica, std::string(replica.shell->fatal()));
    }
}

// What Node's constructor and start() do.
void World::start(Replica& replica) {
    CRANE_CHECK(!replica.up());
    replica.restart_at_us = kNever;
    replica.disk->restart();
    before_start(replica);
    const DiskFaults& faults = replica.disk->faults;
    replica.disk_suspect = faults.full || faults.sync_error > 0 || faults.write_error > 0;
    counts_.add(Count::kRestarts);
    note("start", replica.id, replica.disk->shape_hash());
    guarded(replica, [&] { open(replica); });
    if (!replica.up()) {
        counts_.add(Count::kFailedStarts);
        if (replica.restart_at_us == kNever) replica.restart_at_us = now_us_ + down_for_us();
        return;
    }
    guarded(replica, [&] { turn(replica); });
}

void World::open(Replica& replica) {
    if (replica.old_copy && ++replica.copy_starts > kMaxPreviousRuns) replace_disk(replica);
    StoreOptions options;
    options.directory = replica.disk->root();
    options.cluster_id = "simulation";
    options.replica = replica.id;
    options.rejoin = replica.rejoins && !(settings_.canary != nullptr && settings_.canary->forgets_loss());
    options.database = settings_.seed << 20 | uint64_t{replica.id} << 10 | (replica.runs + 1);
    options.sizes = profile_.sizes;
    options.files = replica.disk.get();
    if (!replica.shadow.exists()) {
        replica.otherwise = replica.shadow;
        replica.otherwise->created(options.rejoin);
    }
    replica.store = std::make_unique<BdbStore>(options);
    StoredState stored = replica.store->load();
    if (replica.disk->is_cut()) return;
    checks_.recovered(replica, stored);
    if (!replica.shadow.exists()) replica.shadow.created(options.rejoin);
    replica.origin = {stored.database, stored.starts + 1, 0, 0, 0, stored.replaces};
    const uint64_t run = random_.next() | 1;
    replica.store->begin_run(run);
    if (replica.disk->is_cut()) return;
    if (replica.restores) restore(replica);
    if (replica.disk->is_cut() || !violation().empty()) return;
    stored = replica.store->load();
    if (settings_.canary != nullptr) settings_.canary->loaded(replica, stored);
    CoreConfig config = profile_.core;
    config.self = replica.id;
    config.members = founders_;
    if (!replica.founder) config.members.add({replica.id, false, ""});
    config.seed = random_.next();
    config.run = run;
    ++replica.runs;
    replica.core = std::make_unique<Core>(config, stored, *replica.store);
    // The user starts again from some checkpoint, older or newer.
    const uint64_t first =
        random_.between(stored.start.index + 1, std::max(replica.delivered, stored.start.index) + 1);
    replica.delivered = first - 1;
    replica.checkpoint = std::max(replica.checkpoint, stored.start.index);
    auto ground = std::make_unique<Ground>(*this, replica);
    replica.shell =
        std::make_unique<Shell>(*replica.core, *ground, *ground, *ground, ground->callbacks(), ground.get());
    replica.ground = std::move(ground);
    replica.shell->start(first);
}

// From a checkpoint that another replica made: behind the front of all logs, so that whoever leads can go on
// from it.
void World::restore(Replica& replica) {
    uint64_t cut = 0, have = 0;
    const Replica* maker = nullptr;
    for (const auto& [id, other] : replicas_) {
        if (!other->up()) continue;
        cut = std::max(cut, other->core->log_start().index);
        if (other->delivered <= have) continue;
        have = other->delivered;
        maker = other.get();
    }
    if (have < cut || have == 0) return;
    const uint64_t index = random_.between(std::max<uint64_t>(cut, 1), have);
    const LogPosition at = checks_.position(index);
    const MembershipAt& membership = checks_.membership_at(index);
    const Incarnations& starts = maker->core->starts();
    replica.otherwise = replica.shadow;
    replica.otherwise->restart_at(at, membership, starts);
    replica.store->restart_at(at, membership, starts);
    if (replica.disk->is_cut()) return;
    replica.shadow = *replica.otherwise;
    replica.otherwise.reset();
    replica.restores = false;
    counts_.add(Count::kCheckpointsRestored);
    note("restore", replica.id, index);
}

void World::destroy(Replica& replica) {
    replica.shell.reset();
    replica.ground.reset();
    replica.core.reset();
    replica.store.reset();
    replica.inbox.clear();
    replica.links_up.clear();
    replica.paused_until_us = replica.delivery_paused_until_us = 0;
    replica.wake_us = kNever;
}

void World::end(Replica& replica, bool power) {
    note(power ? "power cut" : "kill", replica.id);
    replica.disk->cut(power);
    finish_cut(replica);
}

void World::finish_cut(Replica& replica) {
    note("down", replica.id);
    destroy(replica);
    replica.restart_at_us = now_us_ + down_for_us();
}

void World::stop_by_disk(Replica& replica, const std::string& why) {
    say("replica " + std::to_string(replica.id) + " stops: " + why);
    if (replica.disk->is_cut()) {
        finish_cut(replica);
        return;
    }
    note("stop by disk", replica.id);
    counts_.add(Count::kDiskStops);
    const bool disowned = replica.up() ? replica.core->disowned() != Copy::kCurrent
                                       : replica.old_copy && why.find("second copy") != why.npos;
    if (disowned && !replica.old_copy)
        checks_.violate("replica " + std::to_string(replica.id) + " is taken for a copy: " + why);
    if (!replica.disk_suspect && !replica.rotten && !disowned)
        checks_.violate("replica " + std::to_string(replica.id) + " stops on a sound disk: " + why);
    if (replica.rotten) counts_.add(replica.up() ? Count::kRotFoundLater : Count::kRotRefused);
    destroy(replica);
    if (disowned) counts_.add(Count::kOldDisksNoticed);
    if (replica.rotten || disowned) replace_disk(replica);
    replica.restart_at_us = now_us_ + down_for_us();
}

void World::shut_down(Replica& replica) {
    note("shut down", replica.id);
    counts_.add(Count::kShutdowns);
    replica.shell->shutdown(profile_.core.election_timeout_us);
}

uint64_t World::sync_us(Replica& replica) {
    const uint64_t usual = random_.between(profile_.sync_min_us, profile_.sync_max_us);
    return now_us_ < replica.slow_until_us ? usual + random_.below(100'000) : usual;
}

// Its disk has answered or lets it wait, a deadline is due, or there is something to read.
void World::wake(Replica& replica) {
    if (replica.busy()) {
        if (now_us_ < replica.busy_until_us) {
            counts_.add(Count::kWaitsSpokenFor);
            turn(replica);
            return;
        }
        replica.shell->persisted();
    }
    for (const Id peer : replica.links_up) replica.shell->link_changed(peer, true);
    replica.links_up.clear();
    replica.core->advance_clock(now_us_);
    while (!replica.inbox.empty() && replica.shell->running()) {
        Message message = std::move(replica.inbox.front());
        replica.inbox.pop_front();
        if (settings_.canary != nullptr) settings_.canary->arriving(*replica.core, message);
        replica.shell->receive(message);
    }
    turn(replica);
}

void World::turn(Replica& replica) {
    replica.shell->pause_delivery(now_us_ < replica.delivery_paused_until_us);
    replica.shell->set_eligible(now_us_ >= replica.barred_until_us);
    replica.shell->set_has_room(now_us_ >= replica.no_room_until_us);
    replica.shell->turn();
}

void World::set_wake(Replica& replica) {
    if (!replica.up()) {
        replica.wake_us = replica.retired || replica.held ? kNever : replica.restart_at_us;
        return;
    }
    if (replica.busy()) {
        const uint64_t due = std::min(replica.busy_until_us, replica.shell->next_deadline_us());
        replica.wake_us = std::max({due, now_us_ + 1, replica.paused_until_us});
        return;
    }
    const bool work = replica.shell->turn_due() || !replica.inbox.empty() || !replica.links_up.empty();
    uint64_t due = work ? now_us_ : replica.shell->next_deadline_us();
    if (now_us_ < replica.delivery_paused_until_us) due = std::min(due, replica.delivery_paused_until_us);
    replica.wake_us = std::max(due, replica.paused_until_us);
    CRANE_CHECK(replica.inbox.size() <= kMaxInbox);
}

}  // namespace crane::sim
