#include "test_paxos_simulation.hpp"

#include <algorithm>

#include "base/check.hpp"
#include "paxos/core/message.hpp"
#include "paxos/core/quorum.hpp"

namespace crane::paxos::simulation {

namespace {

constexpr uint64_t kElectionTimeoutUs = 60'000;

}  // namespace

StoredState MemoryStorage::state() const {
    StoredState state;
    state.view = view_;
    state.commit = commit_;
    state.rejoining = rejoining_;
    state.memberships = memberships_;
    state.start = state.end = start_;
    if (!entries_.empty()) state.end = {entries_.back().index, entries_.back().view, entries_.back().chain};
    return state;
}

void MemoryStorage::persist(const PersistBatch& batch) {
    CRANE_CHECK(!batch.empty());
    if (batch.has_view) {
        CRANE_CHECK(batch.view > view_);
        view_ = batch.view;
    }
    if (batch.rejoined) rejoining_ = false;
    if (!batch.memberships.empty()) memberships_ = batch.memberships;
    if (batch.truncate_from != 0) {
        CRANE_CHECK(batch.truncate_from > start_.index && batch.truncate_from <= last_index());
        entries_.resize(batch.truncate_from - start_.index - 1);
    }
    for (const Entry& entry : batch.append) {
        CRANE_CHECK(entry.index == last_index() + 1);
        entries_.push_back(entry);
    }
    commit_ = std::max(commit_, batch.commit / 10 * 10);  // like the real one: not always up to date
    ++syncs_;
}

bool MemoryStorage::truncate_front(const LogPosition& start) {
    if (start.index <= start_.index) return false;
    entries_.erase(entries_.begin(),
                   entries_.begin() + static_cast<std::ptrdiff_t>(start.index - start_.index));
    start_ = start;
    return false;
}

// No starts are counted here.
void MemoryStorage::restart_at(const LogPosition& start, const MembershipAt& membership,
                               const Incarnations&) {
    if (start.index <= start_.index) return;
    if (start.index <= last_index() && entries_[start.index - start_.index - 1].position() == start) return;
    entries_.clear();
    start_ = start;
    if (!membership.membership.members.empty()) memberships_ = {membership};
    view_ = std::max(view_, start.view);
    commit_ = std::max(commit_, start.index);
}

void MemoryStorage::lose_everything(bool marked) {
    *this = MemoryStorage();
    rejoining_ = marked;
}

void MemoryStorage::read(uint64_t first, uint64_t last, size_t max_bytes, std::vector<Entry>& out) const {
    CRANE_CHECK(first > start_.index && first <= last && last <= last_index());
    size_t bytes = 0;
    for (uint64_t index = first; index <= last; ++index) {
        const Entry& entry = entries_[index - start_.index - 1];
        bytes += entry.size_bytes();
        if (index > first && bytes > max_bytes) return;
        out.push_back(entry);
    }
}

bool MemoryStorage::holds(const Entry& entry) const {
    if (entry.index <= start_.index) return true;  // cut after delivery everywhere
    return entry.index <= last_index() && entries_[entry.index - start_.index - 1].chain == entry.chain;
}

void MemoryStorage::go_back() {
    if (earlier_ == nullptr) return;
    view_ = earlier_->view_;
    start_ = earlier_->start_;
    entries_ = earlier_->entries_;
    memberships_ = earlier_->memberships_;
    commit_ = std::min(commit_, last_index());
}

Membership voters(const std::vector<ReplicaId>& ids) {
    Membership membership;
    for (const ReplicaId id : ids) membership.add({id, true, ""});
    return membership;
}

bool on_majority(const Entry& entry, const Membership& membership,
                 const std::function<const MemoryStorage*(ReplicaId)>& disk) {
    const auto copies =
        std::count_if(membership.members.begin(), membership.members.end(),
                      [&](const Member& each) { return each.voter && disk(each.id)->holds(entry); });
    return static_cast<size_t>(copies) >= membership.quorum();
}

class Cluster::Ground : public Storage, public Links, public Clock, public ShellProbe {
  public:
    Ground(Cluster& cluster, ReplicaId id, Replica& replica) : cluster_(cluster), id_(id), replica_(replica) {
        callbacks_.on_decided = [this](const Entry& entry) { cluster_.deliver(id_, replica_, entry); };
    }
    const NodeCallbacks& callbacks() const { return callbacks_; }

    StoredState load() override { return replica_.disk.load(); }
    void persist(const PersistBatch& batch) override { replica_.disk.persist(batch); }
    bool start_persist(const PersistBatch& batch) override { return cluster_.persist(replica_, batch); }
    bool truncate_front(const LogPosition& start) override { return replica_.disk.truncate_front(start); }
    void restart_at(const LogPosition& start, const MembershipAt& membership,
                    const Incarnations& starts) override {
        replica_.disk.restart_at(start, membership, starts);
    }
    void read(uint64_t first, uint64_t last, size_t max_bytes, std::vector<Entry>& out) const override {
        replica_.disk.read(first, last, max_bytes, out);
    }
    uint64_t syncs() const override { return replica_.disk.syncs(); }

    bool up(ReplicaId) const override { return true; }
    void send(const Message& message) override { cluster_.send(message); }
    void flush() override {}
    void follow(const Core&) override {}
    uint64_t now_us() const override { return cluster_.now_us_; }
    void changed() override { cluster_.check_state(id_, replica_); }

  private:
    Cluster& cluster_;
    const ReplicaId id_;
    Replica& replica_;
    NodeCallbacks callbacks_;
};

Cluster::Replica::Replica() = default;
Cluster::Replica::~Replica() = default;
Cluster::~Cluster() = default;

Cluster::Cluster(unsigned replicas, uint64_t seed) : random_(seed) {
    for (ReplicaId id = 1; id <= replicas; ++id) replicas_[id];
    for (ReplicaId id = 1; id <= replicas; ++id) restart(id);
}

void Cluster::violate(const std::string& what) {
    if (violation_.empty()) violation_ = "at " + std::to_string(now_us_) + " us: " + what;
}

void Cluster::restart(ReplicaId id) {
    Replica& replica = replicas_.at(id);
    if (replica.core != nullptr) return;
    CoreConfig config;
    config.self = id;
    for (const auto& [member, ignored] : replicas_) config.members.add({member, true, ""});
    config.heartbeat_us = 10'000;
    config.election_timeout_us = kElectionTimeoutUs;
    config.max_election_timeout_us = 240'000;
    config.max_inflight_entries = 32;
    config.max_inflight_bytes = 4'000;
    config.max_batch_bytes = 300;
    config.max_memory_entries = 8;
    config.max_memory_bytes = 400;
    config.max_delivery_entries = 5;
    config.seed = random_() + ++restarts_;
    config.run = restarts_;
    if (replica.disk.rejoining()) {  // restored from a checkpoint, if logs were cut
        uint64_t cut = 0;
        for (const auto& [other, peer] : replicas_) cut = std::max(cut, peer.disk.start().index);
        if (cut > replica.disk.last_index()) replica.disk.restart_at(decided_.at(cut).position(), {}, {});
    }
    const StoredState stored = replica.disk.load();
    if (stored.view < replica.promised && !faults_.lying_disks) violate("a promise was forgotten");
    replica.core = std::make_unique<Core>(config, stored, replica.disk);
    // The user starts again from some checkpoint, older or newer.
    const uint64_t first =
        between(stored.start.index + 1, std::max(replica.delivered, stored.start.index) + 1);
    replica.delivered = first - 1;
    replica.highest_view = replica.promised;
    replica.dying = false;
    replica.ground = std::make_unique<Ground>(*this, id, replica);
    replica.shell = std::make_unique<Shell>(*replica.core, *replica.ground, *replica.ground, *replica.ground,
                                            replica.ground->callbacks(), replica.ground.get());
    replica.shell->start(first);
    turn(id, replica);
}

void Cluster::crash(ReplicaId id) {
    Replica& replica = replicas_.at(id);
    if (replica.core == nullptr) return;
    replica.shell.reset();
    replica.ground.reset();
    replica.core.reset();
    ++crashes_;
    if (faults_.lying_disks) replica.disk.go_back();
    if (chance() < faults_.lost_disk) lose_disk(id);
}

void Cluster::lose_disk(ReplicaId id) {
    for (const auto& [other, peer] : replicas_)
        if (peer.disk.rejoining() || peer.disk.state().view == 0) return;
    Replica& replica = replicas_.at(id);
    replica.disk.lose_everything(!faults_.rejoin_unmarked);
    replica.highest_view = replica.promised = 0;
    replica.delivered = 0;
    ++lost_disks_;
}

void Cluster::isolate(ReplicaId id) {
    for (const auto& [other, ignored] : replicas_) {
        cut(id, other);
        cut(other, id);
    }
}

void Cluster::heal() {
    reconnect();
    faults_ = Faults{};
    for (auto& [id, replica] : replicas_) restart(id);
}

ReplicaId Cluster::leader() const {
    ReplicaId best = kNoReplica;
    View best_view = 0;
    for (const auto& [id, replica] : replicas_)
        if (replica.core != nullptr && replica.core->role() == Role::kLeader &&
            replica.core->view() > best_view) {
            best = id;
            best_view = replica.core->view();
        }
    return best;
}

bool Cluster::propose(ReplicaId at) {
    Replica& replica = replicas_.at(at);
    if (replica.core == nullptr) return false;
    std::string value = "value " + std::to_string(proposed_ + 1) + std::string(between(0, 60), '.');
    if (!replica.shell->propose(value)) return false;
    ++proposed_;
    turn(at, replica);
    return true;
}

void Cluster::act(ReplicaId id) {
    turn(id, replicas_.at(id));
}

bool Cluster::settled() const {
    const ReplicaId first = leader();
    if (first == kNoReplica) return false;
    const uint64_t last = replicas_.at(first).core->last_index();
    return std::all_of(replicas_.begin(), replicas_.end(), [&](const auto& each) {
        return each.second.core != nullptr && each.second.delivered == last;
    });
}

void Cluster::send(const Message& message) {
    if (cut_.count({message.from, message.to}) > 0 || chance() < faults_.loss) return;
    std::string bytes;
    encode(message, bytes);
    const int copies = chance() < faults_.duplication ? 2 : 1;
    for (int copy = 0; copy < copies; ++copy) {
        uint64_t delay = between(faults_.min_delay_us, faults_.max_delay_us);
        if (faults_.duplication > 0 && chance() < 0.01) delay += between(0, 200'000);  // a late one
        network_.push({now_us_ + delay, ++sequence_, message.to, bytes});
    }
}

// As the node does: messages that are due together share a turn.
void Cluster::deliver_packets() {
    std::set<ReplicaId> touched;
    while (!network_.empty() && network_.top().at_us <= now_us_) {
        const Packet packet = network_.top();
        network_.pop();
        Replica& replica = replicas_.at(packet.to);
        if (replica.core == nullptr) continue;
        Message message;
        if (!decode(packet.bytes, message)) {
            violate("a message does not decode");
            return;
        }
        if (cut_.count({message.from, message.to}) > 0) continue;
        replica.shell->receive(message);
        touched.insert(packet.to);
    }
    for (ReplicaId id : touched) turn(id, replicas_.at(id));
}

bool Cluster::persist(Replica& replica, const PersistBatch& batch) {
    replica.dying = chance() < faults_.crash_in_turn;
    if (replica.dying && chance() < 0.5) return false;
    if (chance() < 0.05) replica.disk.remember();
    replica.disk.persist(batch);
    if (batch.has_view) replica.promised = batch.view;
    return !replica.dying;
}

void Cluster::turn(ReplicaId id, Replica& replica) {
    if (replica.core == nullptr) return;
    replica.shell->turn();
    for (int more = 0; more < 16 && replica.shell->turn_due(); ++more) replica.shell->turn();
    if (replica.dying || replica.shell->closed()) crash(id);
}

void Cluster::shut_down(ReplicaId id) {
    replicas_.at(id).shell->shutdown(kElectionTimeoutUs);
    act(id);
}

void Cluster::deliver(ReplicaId id, Replica& replica, const Entry& entry) {
    const std::string where = "replica " + std::to_string(id) + ", entry " + std::to_string(entry.index);
    if (entry.index != replica.delivered + 1)
        violate(where + " delivered after " + std::to_string(replica.delivered));
    replica.delivered = entry.index;
    const auto [known, is_new] = decided_.emplace(entry.index, entry);
    if (known->second.chain != entry.chain || *known->second.value != *entry.value ||
        known->second.view != entry.view || known->second.kind != entry.kind)
        violate(where + " differs from what was decided");
    if (!is_new) return;
    if (entry.kind == EntryKind::kValue && !decided_values_.insert(*entry.value).second)
        violate(where + " was decided twice");
    const auto copies = std::count_if(replicas_.begin(), replicas_.end(),
                                      [&](const auto& each) { return each.second.disk.holds(entry); });
    if (lost_disks_ == 0 && static_cast<size_t>(copies) < majority(replicas_.size()))
        violate(where + " delivered before it was on a majority of disks");
}

void Cluster::check_state(ReplicaId id, Replica& replica) {
    const Core& core = *replica.core;
    if (core.view() < replica.highest_view) violate("replica " + std::to_string(id) + " went back in views");
    replica.highest_view = core.view();
    if (core.role() != Role::kLeader || replica.led == core.view()) return;
    replica.led = core.view();
    // Newly elected, and nobody is ahead of it: everything decided must be in its log.
    for (const auto& [other, peer] : replicas_)
        if (peer.highest_view > core.view()) return;
    if (decided_.empty()) return;
    const Entry& last = decided_.rbegin()->second;
    if (core.last_index() < last.index ||
        (last.index > core.log_start().index && core.log_position(last.index).chain != last.chain))
        violate("replica " + std::to_string(id) + " leads without what was decided");
}

void Cluster::partition() {
    cut_.clear();
    const double kind = chance();
    if (kind < 0.4) return;
    if (kind < 0.6) {
        isolate(anyone());
    } else if (kind < 0.8) {  // one direction of some links
        for (const auto& [from, a] : replicas_)
            for (const auto& [to, b] : replicas_)
                if (from != to && chance() < 0.3) cut(from, to);
    } else {  // two sides
        std::set<ReplicaId> side;
        for (const auto& [id, replica] : replicas_)
            if (chance() < 0.5) side.insert(id);
        for (const auto& [a, left] : replicas_)
            for (const auto& [b, right] : replicas_)
                if (side.count(a) != side.count(b)) cut(a, b);
    }
}

void Cluster::upheaval() {
    const ReplicaId id = anyone();
    Replica& replica = replicas_.at(id);
    if (replica.core == nullptr) return;
    const double kind = chance();
    if (kind < 0.4) {
        replica.shell->transfer_leadership(chance() < 0.5 ? kNoReplica : anyone());
    } else if (kind < 0.5) {
        replica.shell->step_down();
    } else if (kind < 0.6) {
        replica.shell->link_changed(anyone(), true);
    } else if (kind < 0.7) {
        replica.shell->peer_gone(anyone());  // true or not
    } else {
        uint64_t everywhere = UINT64_MAX;
        for (const auto& [other, peer] : replicas_) everywhere = std::min(everywhere, peer.delivered);
        replica.shell->hold_checkpoint(everywhere);
    }
    turn(id, replica);
}

void Cluster::inject(const Faults& faults, uint64_t elapsed_us) {
    const double seconds = static_cast<double>(elapsed_us) / 1e6;
    if (chance() < faults.crash_per_s * seconds) {
        const ReplicaId id = anyone();
        up(id) ? crash(id) : restart(id);
    }
    const bool crashing = faults.crash_per_s > 0 || faults.crash_in_turn > 0;
    for (auto& [id, replica] : replicas_)
        if (crashing && replica.core == nullptr && chance() < 5 * seconds) restart(id);
    if (chance() < faults.partition_per_s * seconds) partition();
    if (chance() < faults.upheaval_per_s * seconds) upheaval();
}

// The logs were cut further while it made up for its loss.
void Cluster::restore_who_needs_it() {
    const ReplicaId first = leader();
    if (first == kNoReplica) return;
    for (auto& [id, replica] : replicas_) {
        const bool restarts = replica.core != nullptr && replica.disk.rejoining();
        if (!restarts || !replicas_.at(first).core->needs_checkpoint(id)) continue;
        replica.shell.reset();
        replica.core.reset();
        restart(id);
    }
}

uint64_t Cluster::next_event_us() const {
    uint64_t next = next_proposal_us_;
    if (!network_.empty()) next = std::min(next, network_.top().at_us);
    for (const auto& [id, replica] : replicas_)
        if (replica.core != nullptr) next = std::min(next, replica.shell->next_deadline_us());
    return std::max(next, now_us_ + 1);
}

void Cluster::run(uint64_t duration_us, const Faults& faults) {
    faults_ = faults;
    const uint64_t end_us = now_us_ + duration_us;
    while (now_us_ < end_us && violation_.empty()) {
        const uint64_t before_us = now_us_;
        now_us_ = std::min(next_event_us(), end_us);
        inject(faults, now_us_ - before_us);
        deliver_packets();
        for (auto& [id, replica] : replicas_)
            if (replica.core != nullptr && replica.shell->next_deadline_us() <= now_us_) {
                turn(id, replica);
            }
        restore_who_needs_it();
        if (now_us_ < next_proposal_us_) continue;
        next_proposal_us_ = now_us_ + proposal_interval_us;
        for (auto& [id, replica] : replicas_)
            for (uint64_t burst = between(0, 3); burst > 0 && propose(id); --burst) {
            }
    }
}

}  // namespace crane::paxos::simulation
