#include "paxos/node.hpp"

#include <event2/event.h>
#include <spdlog/spdlog.h>
#include <time.h>

#include <algorithm>
#include <random>
#include <set>
#include <stdexcept>

#include "paxos/core/check.hpp"
#include "paxos/core/core.hpp"
#include "paxos/link/address_book.hpp"
#include "paxos/link/transport.hpp"
#include "paxos/store/store.hpp"
#include "paxos/store/store_maintenance.hpp"

namespace crane::paxos {
namespace {

constexpr int rounds_per_turn = 4;  // of taking the outbox; what is left waits for the next turn of the loop

uint64_t now_us() {
    timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return static_cast<uint64_t>(time.tv_sec) * 1'000'000 + static_cast<uint64_t>(time.tv_nsec) / 1000 + 1;
}

uint64_t random_number() {
    std::random_device device;
    return (uint64_t{device()} << 32 | device()) | 1;
}

void validate(const NodeConfig& config) {
    auto refuse = [](const std::string& what) {
        throw std::runtime_error("consensus configuration: " + what);
    };
    if (config.cluster_id.empty()) refuse("cluster_id is empty");
    if (config.tls.configured() && !usable_cluster_name(config.cluster_id))
        refuse("cluster_id \"" + config.cluster_id + "\" cannot stand in a certificate: use 1 to " +
               std::to_string(max_cluster_name_bytes) + " letters, digits, '-', '.' and '_'");
    if (config.db_dir.empty()) refuse("db_dir is empty");
    if (config.members.empty() || config.members.size() > max_members)
        refuse("1 to " + std::to_string(max_members) + " replicas are needed");
    std::set<uint32_t> ids;
    for (const PeerAddress& member : config.members) {
        if (member.id == 0 || member.id > max_replica_id)
            refuse("replica id " + std::to_string(member.id) + " is out of range");
        if (member.host.size() > max_address_bytes - 6) refuse("a peer address is too long");
        if (!ids.insert(member.id).second)
            refuse("replica id " + std::to_string(member.id) + " appears twice");
    }
    if (ids.count(config.self) == 0)
        refuse("this replica, " + std::to_string(config.self) + ", is not among the members");
    const size_t voters = config.members.size() - (config.join ? 1 : 0);
    if (voters < 1 || voters > max_voters)
        refuse(std::to_string(voters) + " voting members: 1 to " + std::to_string(max_voters) +
               " are needed");
    if (config.heartbeat_ms == 0 || config.election_timeout_ms < 3 * config.heartbeat_ms)
        refuse("election_timeout_ms must be at least three times heartbeat_ms, and that not 0");
    if (config.max_inflight_entries == 0 || config.max_inflight_bytes == 0)
        refuse("the pipeline has no room");
}

StoreOptions store_options(const NodeConfig& config) {
    StoreOptions options;
    options.directory = config.db_dir;
    options.cluster_id = config.cluster_id;
    options.replica = config.self;
    options.durable = config.durable;
    options.rejoin = config.rejoin || config.checkpoint.index > 0;
    return options;
}

CoreConfig make_core_config(const NodeConfig& config) {
    CoreConfig core;
    core.self = config.self;
    for (const PeerAddress& member : config.members)
        core.members.add({member.id, !(config.join && member.id == config.self),
                          member.host + ":" + std::to_string(member.port)});
    core.heartbeat_us = uint64_t{config.heartbeat_ms} * 1000;
    core.election_timeout_us = uint64_t{config.election_timeout_ms} * 1000;
    core.max_inflight_entries = config.max_inflight_entries;
    core.max_inflight_bytes = config.max_inflight_bytes;
    core.seed = config.seed != 0 ? config.seed : random_number();
    core.run = random_number();
    return core;
}

}  // namespace

class Node::Impl {
  public:
    Impl(event_base* base, NodeConfig config, NodeCallbacks callbacks)
        : base_(base),
          config_((validate(config), std::move(config))),
          callbacks_(std::move(callbacks)),
          store_(store_options(config_)),
          maintenance_(store_),
          core_(make_core_config(config_), load(), store_),
          book_(config_.self, config_.members) {
        TransportConfig transport;
        transport.cluster_id = config_.cluster_id;
        transport.self = config_.self;
        transport.members = config_.members;
        transport.tls = config_.tls;
        TransportCallbacks handlers;
        handlers.on_frame = [this](ReplicaId from, FrameType type, std::string_view payload) {
            return on_frame(from, type, payload);
        };
        handlers.on_link = [this](ReplicaId peer, bool up) {
            link_events_.push_back({peer, up});
            wake();
        };
        handlers.on_gone = [this](ReplicaId peer) {
            gone_.insert(peer);
            wake();
        };
        handlers.introduction = [this] { return AddressBook::introduction(core_.memberships().back()); };
        handlers.on_introduction = [this](ReplicaId, std::string_view bytes) {
            if (!book_.hear(bytes, core_.membership_index())) return;
            known_peers_ = 0;
            wake();
        };
        transport_ = std::make_unique<Transport>(base_, std::move(transport), std::move(handlers));
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
        CRANE_CHECK(!started_);
        if (first_index <= core_.log_start().index)
            throw std::runtime_error("the log in " + config_.db_dir + " starts at entry " +
                                     std::to_string(core_.log_start().index + 1) + ", entry " +
                                     std::to_string(first_index) +
                                     " has been cut: restore a newer checkpoint");
        core_.deliver_from(first_index);
        core_.tick(now_us());
        started_ = true;
        transport_->start();
        const MembershipAt* at_start = nullptr;
        for (const MembershipAt& membership : core_.memberships())
            if (membership.index < first_index) at_start = &membership;
        if (at_start != nullptr) report_membership(*at_start);
        wake();
    }

    bool propose(std::string& value) {
        if (!running() || closing_) return false;
        if (core_.propose(value)) {
            wake();
            return true;
        }
        wants_room_ |= core_.role() == Role::Leader;
        return false;
    }
    bool can_propose() const { return running() && !closing_ && core_.can_propose(); }

    void pause_delivery(bool paused) {
        core_.pause_delivery(paused);
        wake();
    }

    void transfer_leadership(uint32_t to) {
        core_.transfer_leadership(to);
        wake();
    }

    void step_down() {
        core_.step_down();
        wake();
    }

    bool send_app_message(uint32_t to, const std::string& message) {
        if (!running() || message.size() > max_app_message_bytes || !transport_->up(to)) return false;
        if (!transport_->send(to, FrameType::App, make_frame(FrameType::App, message))) return false;
        wake();
        return true;
    }

    size_t app_queue_bytes(uint32_t to) const {
        return transport_ != nullptr ? transport_->queued_bytes(to, FrameType::App) : 0;
    }

    NodeStats stats() const {
        const CoreStats& core = core_.stats();
        if (transport_ != nullptr) transport_stats_ = transport_->stats();
        NodeStats stats;
        stats.syncs = store_.syncs();
        stats.proposals = core.proposals;
        stats.decided = delivered_;
        stats.messages_sent = transport_stats_.frames_sent;
        stats.messages_received = transport_stats_.frames_received;
        stats.bytes_sent = transport_stats_.bytes_sent;
        stats.bytes_received = transport_stats_.bytes_received;
        stats.messages_dropped = transport_stats_.frames_dropped;
        stats.view_changes = core.views_entered;
        stats.entries_caught_up = core.entries_from_disk;
        return stats;
    }

    std::vector<PeerStatus> peers() const {
        std::vector<PeerStatus> peers;
        const uint64_t now = now_us();
        for (const Member& member : core_.membership().members) {
            if (member.id == config_.self) continue;
            PeerStatus status;
            status.id = member.id;
            status.voter = member.voter;
            status.rejoining = core_.rejoining(member.id);
            status.needs_checkpoint = core_.needs_checkpoint(member.id);
            status.connected = transport_ != nullptr && transport_->up(member.id);
            status.matched = core_.matched(member.id);
            status.heard_ms_ago = (now - std::min(now, core_.heard_us(member.id))) / 1000;
            peers.push_back(status);
        }
        return peers;
    }

    std::string describe() const {
        std::string text = core_.describe();
        const NodeStats now = stats();
        text += "syncs " + std::to_string(now.syncs) + ", messages sent " +
                std::to_string(now.messages_sent) + " received " + std::to_string(now.messages_received) +
                " dropped " + std::to_string(now.messages_dropped) + "\n";
        for (const PeerStatus& peer : peers())
            text += "link to " + std::to_string(peer.id) + (peer.connected ? ": up\n" : ": down\n");
        if (!fatal_.empty()) text += "STOPPED: " + fatal_ + "\n";
        return text;
    }

    void hold_checkpoint(uint64_t index) {
        if (!running()) return;
        core_.hold_checkpoint(index);
        wake();
    }

    std::string change_membership(const MembershipChange& change) {
        if (!running() || closing_) return "this replica is stopping";
        PeerAddress address;
        if (change.kind == ChangeKind::Add && !parse_address(change.address, address))
            return "'" + change.address + "' is no address: it has to be HOST:PORT";
        if (change.kind == ChangeKind::Add && transport_->tls() == nullptr && !is_loopback(address.host))
            return "'" + change.address +
                   "' is not on loopback, and the replicas' links are not encrypted: give all of them "
                   "certificates first ([tls] in craned.toml, crane ca)";
        std::string error = core_.propose_change(change);
        if (error.empty()) wake();
        return error;
    }

    const MembershipAt* delivered_membership() const {
        return delivered_membership_.membership.members.empty() ? nullptr : &delivered_membership_;
    }

    void shutdown(std::function<void()> on_done) {
        if (closing_) return;
        closing_ = true;
        on_done_ = std::move(on_done);
        close_deadline_us_ = now_us() + uint64_t{config_.election_timeout_ms} * 1000;
        if (running()) core_.transfer_leadership(no_replica);
        wake();
    }

    const Core& core() const { return core_; }

  private:
    bool running() const { return started_ && !stopped_; }
    StoredState load() {
        store_.restart_at(config_.checkpoint, config_.checkpoint_membership);
        if (!store_.recovery().empty()) spdlog::warn("{}", store_.recovery());
        return store_.load();
    }
    void wake() { event_active(turn_, EV_TIMEOUT, 1); }

    bool on_frame(ReplicaId from, FrameType type, std::string_view payload) {
        if (!running()) return true;
        if (type == FrameType::App) {
            if (callbacks_.on_app_message) callbacks_.on_app_message(from, std::string(payload));
            return true;
        }
        Message message;
        if (!decode(payload, message) || message.from != from || message.to != config_.self) return false;
        try {
            core_.advance_clock(now_us());
            core_.step(message);
        } catch (const StorageError& error) {
            stop(error.what());
        }
        wake();
        if (!running()) return true;
        if (!message.report.empty() && callbacks_.on_report) callbacks_.on_report(from, message.report);
        return true;
    }

    void on_timer() {
        timer_deadline_us_ = UINT64_MAX;
        turn();
    }

    // One turn: everything stepped since the last one shares this persist and these sends.
    void turn() {
        if (in_turn_) return;
        in_turn_ = true;
        try {
            if (running()) work();
        } catch (const StorageError& error) {
            stop(error.what());
        }
        finish_turn();
        in_turn_ = false;
    }

    void work() {
        handle_link_events();
        core_.tick(now_us());
        bool more = true;
        for (int round = 0; round < rounds_per_turn && more && running(); ++round) {
            core_.take_outbox(outbox_);
            more = !outbox_.empty();
            send(outbox_.send_now);
            transport_->flush();
            persist();
            if (!outbox_.send_after.empty()) {
                send(outbox_.send_after);
                transport_->flush();
            }
            report_role();
            report_mismatches();
            update_links();
            deliver();
        }
        if (more || !link_events_.empty()) wake();
        if (wants_room_ && core_.can_propose()) {
            wants_room_ = false;
            if (callbacks_.on_writable) callbacks_.on_writable();
        }
        truncate_some();
        arm_timer();
    }

    // Who the transport has to know: the core's peers, and whoever a peer with a longer log knows of.
    void update_links() {
        if (known_peers_ == core_.peers_version()) return;
        known_peers_ = core_.peers_version();
        std::vector<ReplicaId> unknown;
        const auto members = book_.resolve(core_.peers(), core_.memberships().back(), unknown);
        for (const ReplicaId id : unknown)
            spdlog::error("replica {} has no usable address: add it to this replica's configuration", id);
        transport_->set_members(members, std::max(core_.membership().highest_id, book_.highest_id()));
    }

    void report_membership(const MembershipAt& membership) {
        delivered_membership_ = membership;
        if (callbacks_.on_membership) callbacks_.on_membership(delivered_membership_);
    }

    void handle_link_events() {
        std::vector<std::pair<ReplicaId, bool>> events;
        events.swap(link_events_);
        for (const auto& [peer, up] : events) {
            if (up) core_.link_restored(peer);
            if (callbacks_.on_peer) callbacks_.on_peer(peer, up);
        }
        if (!gone_.empty()) core_.advance_clock(now_us());
        for (const ReplicaId peer : gone_)
            if (core_.peer_gone(peer)) spdlog::info("the process of the leader, replica {}, has ended", peer);
        gone_.clear();
    }

    void persist() {
        if (outbox_.persist.empty()) return;
        store_.persist(outbox_.persist);
        core_.persisted();
    }

    void send(std::vector<Message>& messages) {
        for (Message& message : messages) {
            if (!transport_->up(message.to)) continue;
            if (message.type == MessageType::Ack && message.ok && callbacks_.make_report) {
                message.report = callbacks_.make_report();
                CRANE_CHECK(message.report.size() <= max_report_bytes);
            }
            std::string frame = begin_frame();
            encode(message, frame);
            finish_frame(FrameType::Protocol, frame);
            transport_->send(message.to, FrameType::Protocol, std::move(frame));
        }
    }

    void report_role() {
        const Reported now{core_.role(), core_.view(), core_.leader()};
        if (now == reported_) return;
        reported_ = now;
        spdlog::debug("paxos: {} in view {}, leader {}", role_name(now.role), view_name(now.view),
                      now.leader);
        if (callbacks_.on_role) callbacks_.on_role(now.role, now.view, now.leader);
    }

    // Each of these messages was left unanswered, and comes again: the first, the second, the fourth...
    void report_mismatches() {
        const uint64_t seen = core_.stats().mismatched_chains;
        if (seen < 2 * mismatches_ || seen == mismatches_) return;
        mismatches_ = seen;
        spdlog::error(
            "paxos: what replica {} sends differs from what is decided here ({} messages refused): one of "
            "the two logs is damaged. Stop the replica that 'crane log verify' finds fault with, move its "
            "database away and start it with rejoin = true",
            core_.leader(), seen);
    }

    void deliver() {
        for (const Entry& entry : outbox_.decided) {
            CRANE_CHECK(last_delivered_ == 0 || entry.index == last_delivered_ + 1);
            last_delivered_ = entry.index;
            ++delivered_;
            if (callbacks_.on_decided) callbacks_.on_decided(entry);
            if (entry.kind != EntryKind::Membership) continue;
            MembershipAt at{entry.index, {}};
            CRANE_CHECK(decode(*entry.value, at.membership));
            report_membership(at);
        }
    }

    void truncate_some() {
        if (!running() || (!truncating_ && cut_at_ == core_.log_start().index)) return;
        cut_at_ = core_.log_start().index;
        truncating_ = store_.truncate_front(core_.log_start());
        if (truncating_) wake();
    }

    void arm_timer() {
        uint64_t deadline = core_.next_deadline_us();
        if (closing_) deadline = std::min(deadline, close_deadline_us_);
        if (deadline >= timer_deadline_us_) return;  // an early timer looks again when it fires
        const uint64_t now = now_us();
        const uint64_t wait = deadline > now ? deadline - now : 0;
        const timeval time{static_cast<time_t>(wait / 1'000'000), static_cast<suseconds_t>(wait % 1'000'000)};
        evtimer_add(timer_, &time);
        timer_deadline_us_ = deadline;
    }

    void stop(const std::string& reason) {
        stopped_ = true;
        fatal_ = reason;
        spdlog::critical("this replica stops: {}", reason);
        if (!callbacks_.on_fatal) {
            std::fprintf(stderr, "crane: this replica stops: %s\n", reason.c_str());
            std::abort();
        }
        callbacks_.on_fatal(reason);
    }

    void finish_turn() {
        const bool handed_over = !running() || core_.role() != Role::Leader || core_.decides_alone() ||
                                 now_us() >= close_deadline_us_;
        if (closing_ && !closed_ && handed_over) {
            closed_ = true;
            if (!stopped_) store_.close(core_.decided_index());
            stopped_ = true;
            if (on_done_) {
                auto* done = new std::function<void()>(std::move(on_done_));
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
        }
        if (stopped_ && transport_ != nullptr) {
            transport_stats_ = transport_->stats();
            transport_.reset();  // never called from within the transport: turns have an event of their own
            evtimer_del(timer_);
        }
    }

    struct Reported {
        Role role = Role::Follower;
        View view = 0;
        ReplicaId leader = no_replica;
        bool operator==(const Reported&) const = default;
    };

    event_base* const base_;
    const NodeConfig config_;
    const NodeCallbacks callbacks_;
    BdbStore store_;
    StoreMaintenance maintenance_;
    Core core_;
    std::unique_ptr<Transport> transport_;
    mutable TransportStats transport_stats_;
    event* turn_ = nullptr;
    event* timer_ = nullptr;
    uint64_t timer_deadline_us_ = UINT64_MAX;
    Outbox outbox_;
    std::vector<std::pair<ReplicaId, bool>> link_events_;
    std::set<ReplicaId> gone_;  // see TransportCallbacks::on_gone
    AddressBook book_;
    uint64_t known_peers_ = 0;  // Core::peers_version() that the transport knows
    MembershipAt delivered_membership_;
    Reported reported_;
    uint64_t delivered_ = 0, last_delivered_ = 0;
    uint64_t cut_at_ = 0;      // where the core has cut the log; the disk follows
    uint64_t mismatches_ = 0;  // of CoreStats, that were reported
    bool started_ = false, stopped_ = false, in_turn_ = false, wants_room_ = false, truncating_ = false;
    bool closing_ = false, closed_ = false;
    uint64_t close_deadline_us_ = UINT64_MAX;
    std::function<void()> on_done_;
    std::string fatal_;
};

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
    return impl_->can_propose();
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
uint64_t Node::last_index() const {
    return impl_->core().last_index();
}
void Node::pause_delivery(bool paused) {
    impl_->pause_delivery(paused);
}
void Node::transfer_leadership(uint32_t to) {
    impl_->transfer_leadership(to);
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
    return impl_->delivered_membership();
}
void Node::step_down() {
    impl_->step_down();
}
bool Node::send_app_message(uint32_t to, const std::string& message) {
    return impl_->send_app_message(to, message);
}
size_t Node::app_queue_bytes(uint32_t to) const {
    return impl_->app_queue_bytes(to);
}
NodeStats Node::stats() const {
    return impl_->stats();
}
std::vector<PeerStatus> Node::peers() const {
    return impl_->peers();
}
std::string Node::describe() const {
    return impl_->describe();
}
void Node::hold_checkpoint(uint64_t index) {
    impl_->hold_checkpoint(index);
}
bool Node::rejoining() const {
    return impl_->core().rejoining();
}
uint64_t Node::first_log_index() const {
    return impl_->core().log_start().index + 1;
}
void Node::shutdown(std::function<void()> on_done) {
    impl_->shutdown(std::move(on_done));
}

}  // namespace crane::paxos
