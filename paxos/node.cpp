#include "paxos/node.hpp"

#include <event2/event.h>
#include <spdlog/spdlog.h>
#include <time.h>

#include <algorithm>
#include <stdexcept>

#include "base/check.hpp"
#include "paxos/core/core.hpp"
#include "paxos/heartbeat_thread.hpp"
#include "paxos/node_links.hpp"
#include "paxos/node_setup.hpp"
#include "paxos/shell.hpp"
#include "paxos/store/store.hpp"
#include "paxos/store/store_maintenance.hpp"

namespace crane::paxos {
namespace {

class MonotonicClock : public Clock {
  public:
    uint64_t now_us() const override {
        timespec time;
        clock_gettime(CLOCK_MONOTONIC, &time);
        return static_cast<uint64_t>(time.tv_sec) * 1'000'000 + static_cast<uint64_t>(time.tv_nsec) / 1000 +
               1;
    }
};

// A store whose loop is spoken for while it waits.
class SpokenForStore : public BdbStore {
  public:
    using BdbStore::BdbStore;
    void speak_by(HeartbeatThread* thread) { thread_ = thread; }
    bool start_persist(const PersistBatch& batch) override {
        if (thread_ != nullptr)
            thread_->wait_for([&] { persist(batch); });
        else
            persist(batch);
        return true;
    }

  private:
    HeartbeatThread* thread_ = nullptr;
};

}  // namespace

// The shell, given turns by an event loop: everything that arrived together shares one.
class Node::Impl {
  public:
    Impl(event_base* base, NodeConfig config, NodeCallbacks callbacks)
        : base_(base),
          config_(validated(std::move(config))),
          callbacks_(std::move(callbacks)),
          store_(store_options(config_)),
          maintenance_(store_),
          core_(make_core()),
          links_(base, config_, core_, link_callbacks()),
          shell_(core_, store_, links_, clock_, callbacks_),
          voice_(core_.config().heartbeat_us, [this] { shell_.say_still_here(); }) {
        if (config_.durable) store_.speak_by(&voice_);
        turn_ = event_new(
            base_, -1, 0, [](int, short, void* self) { static_cast<Impl*>(self)->turn(); }, this);
        timer_ = evtimer_new(
            base_, [](int, short, void* self) { static_cast<Impl*>(self)->on_timer(); }, this);
        CRANE_CHECK(turn_ != nullptr && timer_ != nullptr);
    }

    ~Impl() {
        event_free(turn_);
        event_free(timer_);
    }

    void start(uint64_t first_index) {
        if (first_index <= core_.log_start().index)
            throw std::runtime_error("the log in " + config_.db_dir + " starts at entry " +
                                     std::to_string(core_.log_start().index + 1) + ", entry " +
                                     std::to_string(first_index) +
                                     " has been cut: restore a newer checkpoint");
        links_.start();
        shell_.start(first_index);
        wake();
    }

    // What follows changes something: a turn is due.
    Shell& wish() {
        wake();
        return shell_;
    }
    bool propose(std::string& value) {
        if (!shell_.propose(value)) return false;
        wake();
        return true;
    }
    bool send_app_message(uint32_t to, const std::string& message) {
        if (!shell_.running() || !links_.send_app_message(to, message)) return false;
        wake();
        return true;
    }
    std::string change_membership(const MembershipChange& change) {
        PeerAddress address;
        if (change.kind == ChangeKind::kAdd && !parse_address(change.address, address))
            return "'" + change.address + "' is no address: it has to be HOST:PORT";
        if (change.kind == ChangeKind::kAdd && links_.open() && !links_.encrypted() &&
            !is_loopback(address.host))
            return "'" + change.address +
                   "' is not on loopback, and the replicas' links are not encrypted: give all of them "
                   "certificates first ([tls] in craned.toml, crane ca)";
        std::string error = shell_.change_membership(change);
        if (error.empty()) wake();
        return error;
    }
    void shutdown(std::function<void()> on_done) {
        if (shell_.closing()) return;
        on_done_ = std::move(on_done);
        wish().shutdown(uint64_t{config_.election_timeout_ms} * 1000);
    }

    NodeStats stats() const;
    std::vector<PeerStatus> peers() const;
    std::string describe() const;

    const Core& core() const { return core_; }
    const Shell& shell() const { return shell_; }
    const NodeLinks& links() const { return links_; }

  private:
    Core make_core() {
        const CoreConfig core = core_config(config_);
        return Core(core, load(core.run), store_);
    }

    StoredState load(uint64_t run) {
        store_.restart_at(config_.checkpoint, config_.checkpoint_membership, config_.checkpoint_starts);
        store_.begin_run(run);
        if (!store_.recovery().empty()) spdlog::warn("{}", store_.recovery());
        return store_.load();
    }

    NodeLinksCallbacks link_callbacks() {
        NodeLinksCallbacks links;
        links.on_message = [this](const Message& message) { wish().receive(message); };
        links.on_app_message = [this](ReplicaId from, std::string_view message) {
            if (shell_.running() && callbacks_.on_app_message)
                callbacks_.on_app_message(from, std::string(message));
        };
        links.on_link = [this](ReplicaId peer, bool up) { wish().link_changed(peer, up); };
        links.on_gone = [this](ReplicaId peer) { wish().peer_gone(peer); };
        links.on_news = [this] { wake(); };
        return links;
    }

    void wake() { event_active(turn_, EV_TIMEOUT, 1); }

    void on_timer() {
        timer_deadline_us_ = UINT64_MAX;
        turn();
    }

    void turn() {
        shell_.turn();
        if (shell_.turn_due()) wake();
        if (shell_.closed() && on_done_) call_done();
        if (shell_.stopped()) {
            links_.close();  // never called from within the transport: turns have an event of their own
            evtimer_del(timer_);
        } else if (shell_.running()) {
            arm_timer();
        }
    }

    void arm_timer() {
        const uint64_t deadline = shell_.next_deadline_us();
        if (deadline >= timer_deadline_us_) return;  // an early timer looks again when it fires
        const uint64_t now = clock_.now_us();
        const uint64_t wait = deadline > now ? deadline - now : 0;
        const timeval time{static_cast<time_t>(wait / 1'000'000), static_cast<suseconds_t>(wait % 1'000'000)};
        evtimer_add(timer_, &time);
        timer_deadline_us_ = deadline;
    }

    // From the event loop: it may destroy the node.
    void call_done() {
        auto* done = new std::function<void()>(std::move(on_done_));
        on_done_ = nullptr;
        const timeval at_once{0, 0};
        event_base_once(
            base_, -1, EV_TIMEOUT,
            [](int, short, void* argument) {
                const std::unique_ptr<std::function<void()>> call(
                    static_cast<std::function<void()>*>(argument));
                (*call)();
            },
            done, &at_once);
    }

    event_base* const base_;
    const NodeConfig config_;
    const NodeCallbacks callbacks_;
    const MonotonicClock clock_{};
    SpokenForStore store_;
    StoreMaintenance maintenance_;
    Core core_;
    NodeLinks links_;
    Shell shell_;
    HeartbeatThread voice_;
    event* turn_ = nullptr;
    event* timer_ = nullptr;
    uint64_t timer_deadline_us_ = UINT64_MAX;
    std::function<void()> on_done_;
};

NodeStats Node::Impl::stats() const {
    const CoreStats& core = core_.stats();
    const TransportStats links = links_.stats();
    NodeStats stats;
    stats.syncs = store_.syncs();
    stats.longest_sync_us = shell_.longest_sync_us();
    stats.sync_latency = shell_.syncs();
    stats.election_timeout_us = core_.election_timeout_us();
    stats.proposals = core.proposals;
    stats.decided = shell_.delivered();
    stats.messages_sent = links.frames_sent;
    stats.messages_received = links.frames_received;
    stats.bytes_sent = links.bytes_sent;
    stats.bytes_received = links.bytes_received;
    stats.messages_dropped = links.frames_dropped;
    stats.view_changes = core.views_entered;
    stats.entries_caught_up = core.entries_from_disk;
    if (core_.membership().find(core.disowned_from) != nullptr) stats.disowned = describe_disowned(core);
    return stats;
}

std::vector<PeerStatus> Node::Impl::peers() const {
    std::vector<PeerStatus> peers;
    const uint64_t now = clock_.now_us();
    for (const Member& member : core_.membership().members) {
        if (member.id == config_.self) continue;
        PeerStatus status;
        status.id = member.id;
        status.voter = member.voter;
        status.rejoining = core_.rejoining(member.id);
        status.needs_checkpoint = core_.needs_checkpoint(member.id);
        status.checkpoint = core_.held_checkpoint(member.id);
        status.connected = links_.up(member.id);
        status.protocol = links_.version(member.id);
        status.matched = core_.matched(member.id);
        const uint64_t silent_us = now - std::min(now, core_.heard_us(member.id));
        status.silent = core_.role() == Role::kLeader && silent_us > core_.config().max_election_timeout_us;
        status.heard_ms_ago = silent_us / 1000;
        peers.push_back(status);
    }
    return peers;
}

std::string Node::Impl::describe() const {
    std::string text = core_.describe();
    const NodeStats now = stats();
    text += "syncs " + std::to_string(now.syncs) + ", messages sent " + std::to_string(now.messages_sent) +
            " received " + std::to_string(now.messages_received) + " dropped " +
            std::to_string(now.messages_dropped) + "\n";
    for (const PeerStatus& peer : peers())
        text += "link to " + std::to_string(peer.id) + (peer.connected ? ": up\n" : ": down\n");
    if (!shell_.fatal().empty()) text += "STOPPED: " + shell_.fatal() + "\n";
    return text;
}

Node::Node(event_base* base, NodeConfig config, NodeCallbacks callbacks)
    : impl_(std::make_unique<Impl>(base, std::move(config), std::move(callbacks))) {}
Node::~Node() = default;

void Node::start(uint64_t first_index) {
    impl_->start(first_index);
}
bool Node::propose(std::string value) {
    return impl_->propose(value);
}
bool Node::can_propose() const {
    return impl_->shell().can_propose();
}
Role Node::role() const {
    return impl_->core().role();
}
uint64_t Node::view() const {
    return impl_->core().view();
}
uint32_t Node::leader() const {
    return impl_->core().leader();
}
uint64_t Node::decided_index() const {
    return impl_->core().decided_index();
}
uint64_t Node::delivered_index() const {
    return impl_->core().delivered_index();
}
std::vector<Entry> Node::read_decided(uint64_t first) {
    return impl_->wish().read_decided(first);
}
uint64_t Node::last_index() const {
    return impl_->core().last_index();
}
void Node::pause_delivery(bool paused) {
    impl_->wish().pause_delivery(paused);
}
void Node::transfer_leadership(uint32_t to) {
    impl_->wish().transfer_leadership(to);
}
std::string Node::change_membership(const MembershipChange& change) {
    return impl_->change_membership(change);
}
const Membership& Node::membership() const {
    return impl_->core().membership();
}
uint64_t Node::membership_index() const {
    return impl_->core().membership_index();
}
const MembershipAt* Node::delivered_membership() const {
    return impl_->shell().delivered_membership();
}
const Incarnations& Node::starts() const {
    return impl_->core().starts();
}
bool Node::disowned() const {
    return impl_->core().disowned() != Copy::kCurrent;
}
void Node::step_down() {
    impl_->wish().step_down();
}
void Node::set_eligible(bool eligible) {
    if (impl_->core().eligible() != eligible) impl_->wish().set_eligible(eligible);
}
void Node::set_has_room(bool has_room) {
    if (impl_->core().takes_entries() != has_room) impl_->wish().set_has_room(has_room);
}
void Node::set_decisions_awaited(bool awaited) {
    if (impl_->core().decisions_awaited() != awaited) impl_->wish().set_decisions_awaited(awaited);
}
bool Node::send_app_message(uint32_t to, const std::string& message) {
    return impl_->send_app_message(to, message);
}
size_t Node::app_queue_bytes(uint32_t to) const {
    return impl_->links().app_queue_bytes(to);
}
NodeStats Node::stats() const {
    return impl_->stats();
}
TlsStanding Node::tls_standing() const {
    return impl_->links().tls_standing();
}
std::vector<PeerStatus> Node::peers() const {
    return impl_->peers();
}
std::string Node::describe() const {
    return impl_->describe();
}
void Node::hold_checkpoint(uint64_t index) {
    impl_->wish().hold_checkpoint(index);
}
bool Node::rejoining() const {
    return impl_->core().rejoining();
}
uint64_t Node::common_checkpoint() const {
    return impl_->core().common_checkpoint();
}
uint64_t Node::first_log_index() const {
    return impl_->core().log_start().index + 1;
}
void Node::shutdown(std::function<void()> on_done) {
    impl_->shutdown(std::move(on_done));
}

}  // namespace crane::paxos
