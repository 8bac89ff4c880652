// A replica's process: how it starts, what a turn of its loop does (as Node's does), how it ends.
#include <algorithm>

#include "paxos/core/check.hpp"
#include "paxos/core/describe.hpp"
#include "world.hpp"

namespace crane::sim {

using namespace paxos;

namespace {

constexpr int rounds_per_turn = 4;  // as in Node
constexpr size_t max_inbox = 4'000;

}  // namespace

void World::guarded(Replica& replica, const std::function<void()>& act) {
    try {
        act();
    } catch (const StorageError& error) {
        stop_by_disk(replica, error.what());
        return;
    }
    if (replica.disk->is_cut()) finish_cut(replica);
}

// What Node's constructor and start() do.
void World::start(Replica& replica) {
    CRANE_CHECK(!replica.up());
    replica.restart_at_us = never;
    replica.disk->restart();
    before_start(replica);
    const DiskFaults& faults = replica.disk->faults;
    replica.disk_suspect = faults.full || faults.sync_error > 0 || faults.write_error > 0;
    counts_.add(Count::restarts);
    note("start", replica.id, replica.disk->shape_hash());
    guarded(replica, [&] { open(replica); });
    if (!replica.up()) {
        counts_.add(Count::failed_starts);
        if (replica.restart_at_us == never) replica.restart_at_us = now_us_ + down_for_us();
        return;
    }
    guarded(replica, [&] { turn(replica); });
}

void World::open(Replica& replica) {
    StoreOptions options;
    options.directory = replica.disk->root();
    options.cluster_id = "simulation";
    options.replica = replica.id;
    options.rejoin = replica.rejoins && !(settings_.canary != nullptr && settings_.canary->forgets_loss());
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
    if (replica.restores) restore(replica);
    if (replica.disk->is_cut() || !violation().empty()) return;
    stored = replica.store->load();
    if (settings_.canary != nullptr) settings_.canary->loaded(replica, stored);
    CoreConfig config = profile_.core;
    config.self = replica.id;
    config.members = founders_;
    if (!replica.founder) config.members.add({replica.id, false, ""});
    config.seed = random_.next();
    config.run = random_.next() | 1;
    ++replica.runs;
    replica.core = std::make_unique<Core>(config, stored, *replica.store);
    // The user starts again from some checkpoint, older or newer.
    const uint64_t first =
        random_.between(stored.start.index + 1, std::max(replica.delivered, stored.start.index) + 1);
    replica.core->deliver_from(first);
    replica.delivered = first - 1;
    replica.checkpoint = std::max(replica.checkpoint, stored.start.index);
    replica.again = true;
    replica.core->tick(now_us_);
}

// From a checkpoint that another replica made: behind the front of all logs, so that whoever leads can go on
// from it.
void World::restore(Replica& replica) {
    uint64_t cut = 0, have = 0;
    for (const auto& [id, other] : replicas_) {
        if (!other->up()) continue;
        cut = std::max(cut, other->core->log_start().index);
        have = std::max(have, other->delivered);
    }
    if (have < cut || have == 0) return;
    const uint64_t index = random_.between(std::max<uint64_t>(cut, 1), have);
    const LogPosition at = checks_.position(index);
    const MembershipAt& membership = checks_.membership_at(index);
    replica.otherwise = replica.shadow;
    replica.otherwise->restart_at(at, membership);
    replica.store->restart_at(at, membership);
    if (replica.disk->is_cut()) return;
    replica.shadow = *replica.otherwise;
    replica.otherwise.reset();
    replica.restores = false;
    counts_.add(Count::checkpoints_restored);
    note("restore", replica.id, index);
}

void World::destroy(Replica& replica) {
    replica.core.reset();
    replica.store.reset();
    replica.out = Outbox{};
    replica.inbox.clear();
    replica.links_up.clear();
    replica.busy = replica.again = replica.truncating = replica.closing = false;
    replica.paused_until_us = replica.delivery_paused_until_us = 0;
    replica.wake_us = never;
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
    counts_.add(Count::disk_stops);
    if (!replica.disk_suspect && !replica.rotten)
        checks_.violate("replica " + std::to_string(replica.id) + " stops on a sound disk: " + why);
    if (replica.rotten) counts_.add(replica.up() ? Count::rot_found_later : Count::rot_refused);
    destroy(replica);
    if (replica.rotten) replace_disk(replica);
    replica.restart_at_us = now_us_ + down_for_us();
}

void World::shut_down(Replica& replica) {
    note("shut down", replica.id);
    counts_.add(Count::shutdowns);
    replica.closing = true;
    replica.close_deadline_us = now_us_ + profile_.core.election_timeout_us;
    if (!replica.busy) replica.core->transfer_leadership(no_replica);
}

uint64_t World::sync_us(Replica& replica) {
    const uint64_t usual = random_.between(profile_.sync_min_us, profile_.sync_max_us);
    return now_us_ < replica.slow_until_us ? usual + random_.below(100'000) : usual;
}

void World::send(Replica& replica, std::vector<Message>& messages) {
    for (const Message& message : messages) {
        checks_.sending(replica, message);
        if (settings_.verbose) say("    " + describe(message));
        network_.send(now_us_, message);
    }
    messages.clear();
}

// Its disk has answered, a deadline is due, or there is something to read.
void World::wake(Replica& replica) {
    if (replica.busy) {
        replica.busy = false;
        complete(replica);
        if (replica.disk->is_cut()) return;
    }
    for (const Id peer : replica.links_up) replica.core->link_restored(peer);
    replica.links_up.clear();
    replica.core->advance_clock(now_us_);
    while (!replica.inbox.empty()) {
        Message message = std::move(replica.inbox.front());
        replica.inbox.pop_front();
        if (settings_.canary != nullptr) settings_.canary->arriving(*replica.core, message);
        replica.core->step(message);
        checks_.observe(replica);
    }
    turn(replica);
}

void World::turn(Replica& replica) {
    if (settings_.canary != nullptr) settings_.canary->before_turn(*replica.core);
    replica.core->pause_delivery(now_us_ < replica.delivery_paused_until_us);
    replica.core->tick(now_us_);
    checks_.observe(replica);
    replica.again = true;
    for (int round = 0; round < rounds_per_turn && replica.again && !replica.busy; ++round) {
        take(replica);
        if (replica.disk->is_cut() || !violation().empty()) return;
    }
    if (replica.busy) return;
    truncate_some(replica);
    if (!replica.closing) return;
    const bool handed_over = replica.core->role() != Role::Leader || replica.core->decides_alone();
    if (!handed_over && now_us_ < replica.close_deadline_us) return;
    replica.store->close(replica.core->decided_index());
    note("closed", replica.id);
    if (replica.disk->is_cut()) return;
    destroy(replica);
    replica.restart_at_us = now_us_ + down_for_us();
}

void World::take(Replica& replica) {
    replica.core->take_outbox(replica.out);
    if (settings_.canary != nullptr) settings_.canary->outbox(replica.out);
    replica.again = !replica.out.empty();
    send(replica, replica.out.send_now);
    if (replica.out.persist.empty()) {
        complete(replica);
        return;
    }
    persist(replica);
}

void World::persist(Replica& replica) {
    const PersistBatch& batch = replica.out.persist;
    checks_.persisting(replica, batch);
    if (settings_.verbose) say("    replica " + std::to_string(replica.id) + " persists " + describe(batch));
    if (!replica.shadow.fits(batch)) {
        checks_.violate("replica " + std::to_string(replica.id) + " persists " + describe(batch) +
                        ", and its disk ends at " + describe(replica.shadow.end()));
        return;
    }
    replica.otherwise = replica.shadow;
    replica.otherwise->apply(batch);
    replica.store->persist(batch);
    if (replica.disk->is_cut()) return;
    if (replica.disk->synced()) {
        replica.shadow = std::move(*replica.otherwise);
        replica.otherwise.reset();
    } else {
        say("not synced:\n" + replica.disk->describe());
    }
    if (!replica.shadow.rejoining() && replica.lost) {
        replica.lost.reset();
        replica.rejoins = false;
        counts_.add(Count::rejoined);
    }
    replica.busy = true;
    replica.busy_until_us = now_us_ + sync_us(replica);
}

void World::complete(Replica& replica) {
    if (!replica.out.persist.empty()) {
        replica.core->persisted();
        checks_.observe(replica);
    }
    send(replica, replica.out.send_after);
    for (const Entry& entry : replica.out.decided) checks_.delivering(replica, entry);
    replica.out = Outbox{};
}

void World::truncate_some(Replica& replica) {
    if (!replica.truncating && replica.shadow.cut() == replica.core->log_start().index) return;
    if (replica.shadow.cut() != replica.core->log_start().index) counts_.add(Count::truncations);
    replica.shadow.cut_front(replica.core->log_start());
    replica.truncating = replica.store->truncate_front(replica.core->log_start());
}

void World::set_wake(Replica& replica) {
    if (!replica.up()) {
        replica.wake_us = replica.retired || replica.held ? never : replica.restart_at_us;
        return;
    }
    if (replica.busy) {
        replica.wake_us = std::max(replica.busy_until_us, replica.paused_until_us);
        return;
    }
    const bool work =
        replica.again || replica.truncating || !replica.inbox.empty() || !replica.links_up.empty();
    uint64_t due = work ? now_us_ : replica.core->next_deadline_us();
    if (replica.closing) due = std::min(due, replica.close_deadline_us);
    if (now_us_ < replica.delivery_paused_until_us) due = std::min(due, replica.delivery_paused_until_us);
    replica.wake_us = std::max(due, replica.paused_until_us);
    CRANE_CHECK(replica.inbox.size() <= max_inbox);
}

}  // namespace crane::sim
