#include "test_paxos_script_world.hpp"

#include <algorithm>
#include <stdexcept>

#include "paxos/core/describe.hpp"
#include "paxos/core/message.hpp"
#include "paxos/core/quorum.hpp"

namespace crane::paxos::script {
namespace {

constexpr int kEndless = 10'000;  // turns: the replicas never come to rest

std::string name(ReplicaId id) {
    return std::to_string(id);
}

std::vector<ReplicaId> first(unsigned replicas) {
    std::vector<ReplicaId> ids;
    for (ReplicaId id = 1; id <= replicas; ++id) ids.push_back(id);
    return ids;
}

}  // namespace

World::World(unsigned replicas, const CoreConfig& settings)
    : settings_(settings), first_members_(simulation::voters(first(replicas))), now_us_(kScriptStartUs) {
    for (const ReplicaId id : first(replicas)) replicas_[id];
    for (const ReplicaId id : first(replicas)) start(id, 0);
}

void World::say(const std::string& line, bool important) {
    if (!brief_ || important) transcript_ += line + "\n";
}

std::vector<ReplicaId> World::ids() const {
    std::vector<ReplicaId> ids;
    for (const auto& [id, ignored] : replicas_) ids.push_back(id);
    return ids;
}

World::Replica& World::replica(ReplicaId id) {
    const auto found = replicas_.find(id);
    if (found == replicas_.end()) throw std::runtime_error("there is no replica " + name(id));
    return found->second;
}

World::Replica& World::running(ReplicaId id) {
    Replica& which = replica(id);
    if (which.core == nullptr) throw std::runtime_error(name(id) + " is down");
    if (which.waiting) throw std::runtime_error(name(id) + " waits for its disk");
    which.core->advance_clock(now_us_);
    return which;
}

void World::report_role(ReplicaId id) {
    Replica& which = replica(id);
    const Core& core = *which.core;
    std::string role = std::string(role_name(core.role())) + " in view " + view_name(core.view());
    if (core.role() == Role::kFollower)
        role += core.leader() == kNoReplica ? ", no leader" : ", leader " + name(core.leader());
    if (core.rejoining()) role += ", rejoining";
    if (core.removed())
        role += ", removed";
    else if (!core.membership().voter(id))
        role += ", learner";
    if (role == which.role) return;
    which.role = role;
    say("  " + name(id) + " is " + role, true);
}

// As the node does: send what may go, make durable, say so, send the rest, hand out, look again.
void World::turn(ReplicaId id) {
    report_role(id);
    for (int round = 0; round < kEndless; ++round) {
        Replica& which = replica(id);
        if (which.core == nullptr) return;
        which.core->take_outbox(which.out);
        cut_log(id);
        if (which.out.empty()) {
            stop_if_handed_over(id);
            return;
        }
        send(which.out.send_now);
        if (!which.out.persist.empty()) {
            say("  " + name(id) + (which.slow ? " begins to write " : " writes ") +
                describe(which.out.persist));
            which.waiting = which.slow;
            if (which.waiting) return;
            which.disk.persist(which.out.persist);
            which.core->persisted();
        }
        finish_turn(id);
    }
    violation_ = name(id) + " has more to do without end";
}

void World::finish_turn(ReplicaId id) {
    report_role(id);
    send(replica(id).out.send_after);
    hand_out(id);
}

void World::finish_write(ReplicaId id) {
    Replica& which = replica(id);
    if (!which.waiting) throw std::runtime_error(name(id) + " is writing nothing");
    which.waiting = false;
    say("  " + name(id) + " has written " + describe(which.out.persist));
    which.disk.persist(which.out.persist);
    which.core->persisted();
    finish_turn(id);
    turn(id);
}

void World::hand_out(ReplicaId id) {
    const std::vector<Entry>& entries = replica(id).out.decided;
    if (entries.empty()) return;
    say("  " + name(id) + " delivers " + describe(entries), true);
    for (const Entry& entry : entries) check(id, entry);
}

void World::check(ReplicaId id, const Entry& entry) {
    Replica& which = replica(id);
    const auto violate = [&](const std::string& what) {
        if (violation_.empty()) violation_ = name(id) + " delivers " + describe(entry) + " " + what;
    };
    if (entry.index != which.delivered + 1) violate("after " + std::to_string(which.delivered));
    which.delivered = entry.index;
    const auto [known, is_new] = decided_.emplace(entry.index, entry);
    if (known->second.chain != entry.chain || *known->second.value != *entry.value)
        violate("but decided was " + describe(known->second));
    if (is_new && !disk_lost_ && !durable(entry)) violate("before it is on a majority of disks");
}

MembershipAt World::membership_at(uint64_t index) const {
    MembershipAt at{0, first_members_};
    for (const auto& [place, entry] : decided_)
        if (place <= index && entry.kind == EntryKind::kMembership) {
            at.index = place;
            if (!decode(*entry.value, at.membership))
                throw std::runtime_error("a membership does not decode");
        }
    return at;
}

// By the membership that held there, or by one that the leader put into its log behind it.
bool World::durable(const Entry& entry) {
    const auto disk = [this](ReplicaId id) { return &replica(id).disk; };
    if (simulation::on_majority(entry, membership_at(entry.index).membership, disk)) return true;
    return std::any_of(replicas_.begin(), replicas_.end(), [&](const auto& each) {
        const Core* core = each.second.core.get();
        return core != nullptr && core->role() == Role::kLeader &&
               simulation::on_majority(entry, core->membership(), disk);
    });
}

void World::start(ReplicaId id, uint64_t checkpoint) {
    Replica& which = replica(id);
    if (which.core != nullptr) throw std::runtime_error(name(id) + " is up");
    if (checkpoint > 0)
        which.disk.restart_at(decided_.at(checkpoint).position(), membership_at(checkpoint), {});
    CoreConfig config = settings_;
    config.self = id;
    config.members = first_members_;
    if (which.joins) config.members.add({id, false, ""});
    config.seed += ++which.starts;
    config.run = which.starts;
    const StoredState stored = which.disk.load();
    which.core = std::make_unique<Core>(config, stored, which.disk);
    which.delivered = stored.start.index;
    which.core->deliver_from(stored.start.index + 1);
    which.core->tick(now_us_);
    which.role.clear();
    which.waiting = which.closing = false;
    turn(id);
}

void World::crash(ReplicaId id, const std::string& write) {
    Replica& which = replica(id);
    if (which.core == nullptr) throw std::runtime_error(name(id) + " is down");
    if (which.waiting != !write.empty())
        throw std::runtime_error(which.waiting ? "say whether its write is lost or kept"
                                               : name(id) + " is writing nothing");
    if (write == "kept") which.disk.persist(which.out.persist);
    if (which.waiting) say("  write " + write + ": " + describe(which.out.persist));
    which.core.reset();
    which.waiting = false;
}

void World::lose_disk(ReplicaId id, bool marked) {
    if (replica(id).core != nullptr) throw std::runtime_error(name(id) + " is up");
    replica(id).disk.lose_everything(marked);
    disk_lost_ = true;
}

void World::propose(ReplicaId id, std::vector<std::string> values) {
    Replica& which = running(id);
    for (std::string& value : values)
        if (which.closing || !which.core->propose(value))
            say("  " + name(id) + " refuses \"" + value.substr(0, 16) + (value.size() > 16 ? "...\"" : "\""));
    turn(id);
}

void World::transfer(ReplicaId id, ReplicaId to) {
    running(id).core->transfer_leadership(to);
    turn(id);
}

void World::step_down(ReplicaId id) {
    running(id).core->step_down();
    turn(id);
}

void World::bar(ReplicaId id, bool barred) {
    running(id).core->set_eligible(!barred);
    turn(id);
}

void World::fill_disk(ReplicaId id, bool full) {
    running(id).core->set_has_room(!full);
    turn(id);
}

void World::change(ReplicaId id, const MembershipChange& change) {
    const std::string refusal = running(id).core->propose_change(change);
    if (!refusal.empty())
        say("  " + name(id) + " refuses: " + refusal, true);
    else if (change.kind == ChangeKind::kAdd)
        replicas_[change.id].joins = true;  // and is not up yet
    turn(id);
}

// As the node does: nothing is proposed any more, and the process ends once somebody else can lead.
void World::shut_down(ReplicaId id) {
    running(id).closing = true;
    running(id).core->leave();
    turn(id);
}

void World::stop_if_handed_over(ReplicaId id) {
    Replica& which = replica(id);
    if (!which.closing || (which.core->role() == Role::kLeader && !which.core->decides_alone())) return;
    say("  " + name(id) + " ends", true);
    which.core.reset();
}

void World::hold_checkpoint(ReplicaId id, uint64_t index) {
    running(id).core->hold_checkpoint(index);
    turn(id);
}

void World::cut_log(ReplicaId id) {
    Replica& which = replica(id);
    const LogPosition& start = which.core->log_start();
    if (start == which.disk.load().start) return;
    which.disk.truncate_front(start);
    say("  the log of " + name(id) + " starts after " + describe(start));
}

void World::link_restored(ReplicaId id, ReplicaId peer) {
    running(id).core->link_restored(peer);
    turn(id);
}

void World::peer_gone(ReplicaId id, ReplicaId peer) {
    running(id).core->advance_clock(now_us_);
    running(id).core->peer_gone(peer);
    turn(id);
}

void World::pause(ReplicaId id, bool paused) {
    running(id).core->pause_delivery(paused);
    turn(id);
}

void World::show(ReplicaId id) {
    const Replica& which = replica(id);
    if (which.core == nullptr) {
        say(name(id) + ": down");
        return;
    }
    const Core& core = *which.core;
    say(name(id) + ": " + which.role + ", log " + describe(core.log_start()) + " to " +
        describe(core.log_position(core.last_index())) + ", durable " + std::to_string(core.durable_index()) +
        ", decided " + std::to_string(core.decided_index()) + ", delivered " +
        std::to_string(core.delivered_index()));
}

void World::describe_core(ReplicaId id) {
    const std::string text = running(id).core->describe();
    for (size_t begin = 0; begin < text.size();) {
        const size_t end = text.find('\n', begin);
        say("  " + text.substr(begin, end - begin));
        begin = end + 1;
    }
}

void World::show_disk(ReplicaId id) {
    const simulation::MemoryStorage& disk = replica(id).disk;
    const StoredState state = disk.state();
    std::vector<Entry> entries;
    if (state.end.index > state.start.index)
        disk.read(state.start.index + 1, state.end.index, SIZE_MAX, entries);
    say("disk of " + name(id) + ": view " + view_name(state.view) + ", after " + describe(state.start) + " " +
        describe(entries) + (state.rejoining ? ", rejoining" : ""));
}

}  // namespace crane::paxos::script
