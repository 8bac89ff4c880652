#include "world.hpp"

#include <xxhash.h>

#include <array>
#include <cstdio>
#include <cstring>

#include "base/check.hpp"
#include "paxos/core/describe.hpp"

namespace crane::sim {

using namespace paxos;

namespace {

constexpr uint64_t kAuditEvery = 50;   // steps
constexpr size_t kInboxLimit = 2'000;  // messages that a paused replica's queues hold

Membership voters(unsigned count) {
    Membership membership;
    for (ReplicaId id = 1; id <= count; ++id) membership.add({id, true, ""});
    return membership;
}

}  // namespace

World::World(const LifeSettings& settings)
    : settings_(settings),
      random_(settings.seed),
      added_random_(~settings.seed),
      profile_(Profile::of(random_)),
      added_(AddedFaults::of(added_random_)),
      network_(random_, counts_),
      founders_(voters(profile_.replicas)),
      checks_(replicas_, founders_, counts_) {
    network_.faults = profile_.network;
    for (const Member& member : founders_.members) add_replica(member.id, true);
    for (auto& [id, replica] : replicas_) start(*replica);
    next_fault_us_ = now_us_ + random_.below(300'000);
    next_operation_us_ = now_us_ + random_.below(200'000);
    if (added_.interval_us > 0) next_added_us_ = now_us_ + added_random_.below(300'000);
}

World::~World() {
    for (auto& [id, replica] : replicas_) {
        replica->disk->cut(false);
        destroy(*replica);
    }
}

Replica& World::add_replica(Id id, bool founder) {
    auto replica = std::make_unique<Replica>();
    replica->id = id;
    replica->founder = founder;
    replica->disk =
        std::make_unique<Disk>("/sim/" + std::to_string(id), random_.next(), profile_.sizes.page_bytes);
    replica->mount = std::make_unique<Mount>(*replica->disk);
    if (settings_.canary != nullptr) settings_.canary->disk(*replica->disk);
    return *(replicas_[id] = std::move(replica));
}

void World::note(const char* what, Id id, uint64_t detail) {
    uint64_t word = 0;
    std::memcpy(&word, what, std::min<size_t>(std::strlen(what), sizeof word));
    const std::array<uint64_t, 4> event = {now_us_, word, id, detail};
    trace_ = XXH64(event.data(), sizeof event, trace_);
    if (settings_.verbose) say(std::string(what) + " " + std::to_string(id) + " " + std::to_string(detail));
}

void World::say(const std::string& line) const {
    if (settings_.verbose)
        std::printf("%6lu %10.3f ms  %s\n", static_cast<unsigned long>(steps_),
                    static_cast<double>(now_us_) / 1000, line.c_str());
}

Replica* World::leader() {
    Replica* best = nullptr;
    for (auto& [id, replica] : replicas_)
        if (replica->up() && replica->core->role() == Role::kLeader &&
            (best == nullptr || replica->core->view() > best->core->view()))
            best = replica.get();
    return best;
}

Replica* World::pick(bool up) {
    std::vector<Replica*> some;
    for (auto& [id, replica] : replicas_)
        if (replica->up() == up && !replica->retired) some.push_back(replica.get());
    return some.empty() ? nullptr : some[random_.below(some.size())];
}

void World::arrive(Packet packet) {
    const auto found = replicas_.find(packet.message.to);
    if (found == replicas_.end() || !found->second->up()) return;
    Replica& replica = *found->second;
    if (packet.link_up) {
        replica.links_up.push_back(packet.message.from);
    } else if (replica.inbox.size() < kInboxLimit) {
        std::string bytes;
        encode(packet.message, bytes);
        Message message;
        if (!decode(bytes, message))
            checks_.violate("a message does not decode: " + describe(packet.message));
        note("arrives", message.to, message.index ^ message.view << 20 ^ static_cast<uint64_t>(message.type));
        if (settings_.verbose) say("  " + describe(message));
        replica.inbox.push_back(std::move(message));
    }
    if (replica.busy() || now_us_ < replica.paused_until_us) return;
    guarded(replica, [&] { wake(replica); });
    set_wake(replica);
}

// A client's turn: whoever takes itself for a leader is offered values.
void World::propose() {
    next_proposal_us_ = now_us_ + random_.skewed(2 * profile_.proposal_interval_us);
    for (auto& [id, replica] : replicas_) {
        if (!replica->up() || replica->busy() || replica->shell->closing() ||
            now_us_ < replica->paused_until_us)
            continue;
        bool accepted = false;
        for (uint64_t burst = random_.below(4); burst > 0; --burst) {
            if (replica->core->role() != Role::kLeader) break;
            const uint64_t number = proposed_[replica->core->view()] + 1;
            const bool large = profile_.large_values && random_.chance(0.1);
            std::string value = make_value(replica->core->view(), number, random_.below(large ? 3'000 : 100));
            if (!replica->shell->propose(value)) break;
            proposed_[replica->core->view()] = number;
            counts_.add(Count::kProposals);
            accepted = true;
        }
        if (!accepted) continue;
        guarded(*replica, [&, each = replica.get()] { turn(*each); });
        set_wake(*replica);
    }
}

bool World::step() {
    Replica* next = nullptr;
    uint64_t wake_us = kNever;
    for (auto& [id, replica] : replicas_)
        if (replica->wake_us < wake_us) {
            next = replica.get();
            wake_us = replica->wake_us;
        }
    const uint64_t network_us = network_.next_us();
    const uint64_t proposal_us = proposals_on_ ? next_proposal_us_ : kNever;
    const uint64_t fault_us = faults_on_ ? next_fault_us_ : kNever;
    const uint64_t added_us = faults_on_ ? next_added_us_ : kNever;
    const uint64_t at_us =
        std::min({wake_us, network_us, proposal_us, fault_us, next_operation_us_, added_us});
    CRANE_CHECK(at_us != kNever);
    counts_.add(Count::kSteps);
    ++steps_;
    now_us_ = std::max(now_us_, at_us);
    if (at_us == network_us) {
        Packet packet;
        if (network_.pop(packet)) arrive(std::move(packet));
    } else if (at_us == wake_us) {
        note("wakes", next->id);
        if (next->up())
            guarded(*next, [&] { wake(*next); });
        else
            start(*next);
        set_wake(*next);
    } else if (at_us == proposal_us) {
        propose();
    } else if (at_us == fault_us) {
        fault();
    } else if (at_us == added_us) {
        added_fault();
    } else {
        operate();
    }
    if (steps_ % kAuditEvery == 0) checks_.audit(random_);
    return violation().empty();
}

void World::run_steps(uint64_t until_step) {
    while (steps_ < until_step && step()) {
    }
}

void World::run_until(uint64_t end_us, const std::function<bool()>& done) {
    while (now_us_ < end_us && !done() && step()) {
    }
}

void World::run() {
    say("seed " + std::to_string(settings_.seed) + ": " + profile_.text());
    for (auto& [id, replica] : replicas_) set_wake(*replica);
    run_steps(settings_.steps);
    if (violation().empty()) settle();
    counts_.add(Count::kSimulatedMs, now_us_ / 1000);
    for (const auto& [id, replica] : replicas_) {
        const DiskCounts& disk = replica->disk->counts();
        counts_.add(Count::kTornSectors, disk.torn);
        counts_.add(Count::kLostWrites, disk.lost_writes);
        counts_.add(Count::kLostNames, disk.lost_names);
        counts_.add(Count::kRemovedFiles, disk.removed);
        counts_.add(Count::kDiskErrors, disk.errors);
        counts_.add(Count::kForgottenWrites, disk.forgotten);
    }
}

}  // namespace crane::sim
