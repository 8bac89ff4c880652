#include "proxy/sequencer.hpp"

#include <event2/event.h>
#include <spdlog/spdlog.h>

#include <algorithm>

#include "base/clock.hpp"

namespace crane::proxy {

namespace {

constexpr uint64_t kLocalView = 1;
constexpr size_t kLocalQueue = 64;

/// A Crane to come, for tests: CRANE_TEST_PROTOCOL=OLDEST-NEWEST.
paxos::Versions spoken_versions() {
    paxos::Versions versions;
    const char* text = getenv("CRANE_TEST_PROTOCOL");
    if (text && sscanf(text, "%u-%u", &versions.oldest, &versions.newest) == 2)
        spdlog::warn("as CRANE_TEST_PROTOCOL says, protocol version {} is spoken", paxos::to_text(versions));
    return versions;
}

paxos::NodeConfig node_config(const Config& config, const std::optional<CheckpointState>& from) {
    paxos::NodeConfig out;
    out.cluster_id = config.cluster_id;
    out.self = config.replica_id;
    for (const ReplicaAddress& one : config.replicas) {
        out.members.push_back({one.id, one.peer_host, one.peer_port});
    }
    out.db_dir = config.state_dir + "/db";
    out.versions = spoken_versions();
    out.heartbeat_ms = config.heartbeat_ms;
    out.election_timeout_ms = config.election_timeout_ms;
    out.max_election_timeout_ms = config.max_election_timeout_ms;
    out.durable = config.durable;
    out.rejoin = config.rejoin;
    out.join = config.join;
    if (config.mode == Mode::kFull) out.tls = config.tls;
    if (from) {
        out.checkpoint = from->position;
        out.checkpoint_membership = from->membership;
        out.checkpoint_starts = from->starts;
    }
    return out;
}

}  // namespace

Sequencer::Sequencer(event_base* base, const Config& config, const std::optional<CheckpointState>& from,
                     SequencerEvents events)
    : base_(base), events_(std::move(events)), self_(config.replica_id) {
    if (from) {
        batches_seen_ = 1;  // that of the checkpoint at least
        delivered_ = from->position;
    }
    alone_.add({self_, true, ""});
    if (config.mode == Mode::kDmt) {
        local_event_ = event_new(base_, -1, EV_PERSIST, &Sequencer::on_local_turn, this);
        return;
    }
    paxos::NodeCallbacks calls;
    calls.on_decided = [this](const paxos::Entry& entry) { decided(entry); };
    calls.on_role = [this](paxos::Role role, uint64_t, uint32_t) { role_changed(role); };
    calls.make_report = events_.make_report;
    calls.on_report = events_.on_report;
    calls.on_app_message = events_.on_message;
    calls.on_writable = [] {};  // the turn of the loop that follows looks by itself
    calls.on_peer = events_.on_peer;
    calls.on_fatal = events_.on_fatal;
    calls.on_membership = [this](const paxos::MembershipAt& now) {
        if (now.index > 0) events_.on_membership(now);
    };
    node_ = std::make_unique<paxos::Node>(base_, node_config(config, from), std::move(calls));
    rejoining_ = node_->rejoining();
    if (rejoining_)
        spdlog::warn("the database is new (rejoin = true): no vote until all that is decided is copied");
}

Sequencer::~Sequencer() {
    if (local_event_) event_free(local_event_);
}

void Sequencer::start() {
    if (node_) {
        node_->start(std::max(delivered_.index + 1, first_log_index()));
        return;
    }
    events_.on_role();
    ready_ = true;
    events_.on_ready();
}

void Sequencer::decided(const paxos::Entry& entry) {
    if (rejoining_ && !node_->rejoining()) {
        rejoining_ = false;
        spdlog::info("rejoined: this replica has all that was decided, and votes");
    }
    if (entry.kind == paxos::EntryKind::kValue) {
        if (undecided_ > 0 && node_->role() == paxos::Role::kLeader && entry.view == node_->view())
            own_decided();
        ++batches_seen_;
        delivered_ = entry.position();
        events_.on_batch(entry.index, entry.view, entry.value);
        return;
    }
    const bool own = entry.kind == paxos::EntryKind::kNewView && entry.view == node_->view();
    if (own && node_->role() == paxos::Role::kLeader && !ready_) {
        ready_ = true;
        events_.on_ready();
    }
}

/// They are decided in the order in which they were proposed.
void Sequencer::own_decided() {
    --undecided_;
    latency_.observe((monotonic_ns() - proposed_ns_.front()) / 1000);
    proposed_ns_.pop_front();
}

void Sequencer::role_changed(paxos::Role) {
    ready_ = false;
    undecided_ = 0;
    proposed_ns_.clear();
    events_.on_role();
}

bool Sequencer::can_propose() const {
    if (!ready_) return false;
    return node_ ? node_->can_propose() : local_queue_.size() < kLocalQueue;
}

bool Sequencer::propose(std::string batch) {
    if (!can_propose()) return false;
    if (node_) {
        if (!node_->propose(std::move(batch))) return false;
    } else {
        local_queue_.push_back(std::make_shared<const std::string>(std::move(batch)));
        event_active(local_event_, EV_TIMEOUT, 0);
    }
    ++undecided_;
    proposed_ns_.push_back(monotonic_ns());
    return true;
}

void Sequencer::on_local_turn(int, short, void* self) {
    static_cast<Sequencer*>(self)->deliver_local();
}

void Sequencer::deliver_local() {
    while (!local_queue_.empty() && !local_paused_) {
        const auto batch = local_queue_.front();
        local_queue_.pop_front();
        own_decided();
        ++batches_seen_;
        events_.on_batch(++local_index_, kLocalView, batch);
    }
}

void Sequencer::pause_delivery(bool paused) {
    if (node_) {
        node_->pause_delivery(paused);
        return;
    }
    local_paused_ = paused;
    if (!paused) event_active(local_event_, EV_TIMEOUT, 0);
}

const paxos::MembershipAt* Sequencer::delivered_membership() const {
    return node_ ? node_->delivered_membership() : nullptr;
}
paxos::Incarnations Sequencer::starts() const {
    return node_ ? node_->starts() : paxos::Incarnations();
}
void Sequencer::hold_checkpoint(uint64_t index) {
    if (node_) node_->hold_checkpoint(index);
}
uint64_t Sequencer::common_checkpoint() const {
    return node_ ? node_->common_checkpoint() : 0;
}
uint64_t Sequencer::first_log_index() const {
    return node_ ? node_->first_log_index() : 1;
}

bool Sequencer::leads() const {
    return !node_ || node_->role() == paxos::Role::kLeader;
}
uint64_t Sequencer::view() const {
    return node_ ? node_->view() : kLocalView;
}
uint64_t Sequencer::view_counter() const {
    return node_ ? paxos::view_counter(node_->view()) : kLocalView;
}
uint32_t Sequencer::leader() const {
    return node_ ? node_->leader() : self_;
}

std::string Sequencer::change_membership(const paxos::MembershipChange& change) {
    return node_ ? node_->change_membership(change) : "a replica without consensus is alone";
}
const paxos::Membership& Sequencer::membership() const {
    return node_ ? node_->membership() : alone_;
}
uint64_t Sequencer::membership_index() const {
    return node_ ? node_->membership_index() : 0;
}

const char* Sequencer::role_name() const {
    if (leads()) return "primary";
    if (node_->role() == paxos::Role::kFollower && !membership().voter(self_))
        return membership().removed(self_) ? "removed" : "learner";
    return node_->role() == paxos::Role::kFollower ? "backup" : "candidate";
}

uint64_t Sequencer::decided_index() const {
    return node_ ? node_->decided_index() : local_index_;
}
uint64_t Sequencer::delivered_index() const {
    return node_ ? node_->delivered_index() : local_index_;
}
uint64_t Sequencer::last_index() const {
    return node_ ? node_->last_index() : local_index_;
}

std::vector<paxos::Entry> Sequencer::read_decided(uint64_t first) {
    return node_ ? node_->read_decided(std::max(first, first_log_index())) : std::vector<paxos::Entry>();
}

uint64_t Sequencer::look_ahead(uint64_t first,
                               const std::function<void(uint64_t index, const std::string& batch)>& see) {
    if (!node_) {
        for (uint64_t at = first; at > local_index_ && at - local_index_ <= local_queue_.size(); ++at)
            see(at, *local_queue_[at - local_index_ - 1]);
        return std::max(first, local_index_ + local_queue_.size() + 1);
    }
    for (const paxos::Entry& entry : node_->read_decided(std::max(first, first_log_index()))) {
        if (entry.kind == paxos::EntryKind::kValue) see(entry.index, *entry.value);
        first = entry.index + 1;
    }
    return first;
}

void Sequencer::transfer(uint32_t to) {
    if (node_) node_->transfer_leadership(to);
}

bool Sequencer::send(uint32_t to, const std::string& message) {
    return node_ && node_->send_app_message(to, message);
}

size_t Sequencer::queued_bytes(uint32_t to) const {
    return node_ ? node_->app_queue_bytes(to) : 0;
}

std::vector<paxos::PeerStatus> Sequencer::peers() const {
    return node_ ? node_->peers() : std::vector<paxos::PeerStatus>{};
}

paxos::NodeStats Sequencer::stats() const {
    if (node_) return node_->stats();
    paxos::NodeStats local;
    local.decided = local_index_;
    return local;
}

void Sequencer::shutdown(std::function<void()> done) {
    if (node_) {
        node_->shutdown(std::move(done));
    } else {
        done();
    }
}

}  // namespace crane::proxy
