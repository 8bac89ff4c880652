#include "ground.hpp"

#include "base/check.hpp"
#include "paxos/core/describe.hpp"

namespace crane::sim {

using namespace paxos;

World::Ground::Ground(World& world, Replica& replica) : world_(world), replica_(replica) {
    callbacks_.on_decided = [this](const Entry& entry) { world_.checks_.delivering(replica_, entry); };
    callbacks_.on_fatal = [](const std::string&) {};  // guarded() looks
}

// What the process would do next, it does no more.
void World::Ground::check_machine() const {
    if (replica_.disk->is_cut()) throw StorageError("the machine has died");
}

void World::Ground::persist(const PersistBatch&) {
    CRANE_CHECK(!"a shell starts its persists");
}

bool World::Ground::start_persist(const PersistBatch& batch) {
    check_machine();
    Checks& checks = world_.checks_;
    const std::string name = "replica " + std::to_string(replica_.id) + " persists ";
    checks.persisting(replica_, batch);
    if (world_.settings_.verbose) world_.say("    " + name + describe(batch));
    replica_.busy_until_us = world_.now_us_;
    if (!replica_.shadow.fits(batch)) {
        checks.violate(name + describe(batch) + ", and its disk ends at " + describe(replica_.shadow.end()));
        return false;
    }
    replica_.otherwise = replica_.shadow;
    replica_.otherwise->apply(batch);
    replica_.store->persist(batch);
    check_machine();
    if (replica_.disk->synced()) {
        replica_.shadow = std::move(*replica_.otherwise);
        replica_.otherwise.reset();
    } else {
        world_.say("not synced:\n" + replica_.disk->describe());
    }
    if (!replica_.shadow.rejoining() && replica_.lost && !replica_.old_copy) {
        replica_.lost.reset();
        replica_.rejoins = false;
        world_.counts_.add(Count::kRejoined);
    }
    replica_.busy_until_us = world_.now_us_ + world_.sync_us(replica_);
    return false;
}

bool World::Ground::truncate_front(const LogPosition& start) {
    check_machine();
    if (replica_.shadow.cut() != start.index) world_.counts_.add(Count::kTruncations);
    replica_.shadow.cut_front(start);
    return replica_.store->truncate_front(start);
}

void World::Ground::restart_at(const LogPosition& start, const MembershipAt& membership,
                               const Incarnations& starts) {
    replica_.store->restart_at(start, membership, starts);
}

void World::Ground::send(const Message& message) {
    world_.checks_.sending(replica_, message);
    if (world_.settings_.verbose) world_.say("    " + describe(message));
    world_.network_.send(world_.now_us_, message);
}

void World::Ground::before_turn() {
    if (world_.settings_.canary != nullptr) world_.settings_.canary->before_turn(*replica_.core);
}

void World::Ground::taken(Outbox& out) {
    check_machine();
    if (world_.settings_.canary != nullptr) world_.settings_.canary->outbox(out);
}

}  // namespace crane::sim
