#include "paxos/shell.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "base/check.hpp"

namespace crane::paxos {
namespace {

constexpr int kRoundsPerTurn = 4;  // of taking the outbox; what is left waits for the next turn
constexpr size_t kMaxWaiting = 4096;
constexpr uint64_t kAttentionHeartbeats = 2;   // between two looks at the clock
constexpr uint64_t kUsualLatenessUs = 25'000;  // of a turn: no news

}  // namespace

Shell::Shell(Core& core, Storage& storage, Links& links, const Clock& clock, const NodeCallbacks& callbacks,
             ShellProbe* probe)
    : core_(core), storage_(storage), links_(links), clock_(clock), callbacks_(callbacks), probe_(probe) {}

void Shell::start(uint64_t first_index) {
    CRANE_CHECK(!started_);
    core_.deliver_from(first_index);
    core_.tick(clock_.now_us());
    started_ = true;
    const MembershipAt* at_start = nullptr;
    for (const MembershipAt& membership : core_.memberships())
        if (membership.index < first_index) at_start = &membership;
    if (at_start != nullptr) report_membership(*at_start);
}

void Shell::changed() {
    if (probe_ != nullptr) probe_->changed();
}

void Shell::guarded(const std::function<void()>& act) {
    try {
        act();
    } catch (const StorageError& error) {
        stop(error.what());
    }
}

std::vector<Entry> Shell::read_decided(uint64_t first) {
    std::vector<Entry> entries;
    if (running()) guarded([&] { core_.read_decided(first, entries); });
    return entries;
}

// One turn: everything stepped since the last one shares this persist and these sends.
void Shell::turn() {
    if (in_turn_) return;
    look_at_clock();
    if (busy_) {
        say_still_here();
        return;
    }
    in_turn_ = true;
    if (running()) guarded([this] { work(); });
    if (!busy_) finish_closing();
    in_turn_ = false;
}

// How much later than asked for is this? The process did not run, or something else kept the loop.
void Shell::look_at_clock() {
    const uint64_t now = clock_.now_us();
    if (attention_us_ != 0 && now > attention_us_ + kUsualLatenessUs) held_up_us_ += now - attention_us_;
    attention_us_ = core_.decides_alone() ? 0 : now + kAttentionHeartbeats * core_.config().heartbeat_us;
}

void Shell::move_clock() {
    core_.advance_clock(clock_.now_us());
    if (held_up_us_ == 0) return;
    core_.held_up(held_up_us_);
    held_up_us_ = 0;
}

void Shell::say_still_here() {
    const uint64_t now = clock_.now_us();
    if (!running() || now < still_here_us_) return;
    still_here_us_ = now + core_.config().heartbeat_us;
    if (now >= persist_since_us_ + core_.config().max_election_timeout_us) return;
    std::vector<Message> messages;
    core_.still_here(messages);
    send(messages);
    links_.flush();
}

bool Shell::turn_due() const {
    return running() && !busy_ && (more_ || truncating_ || !link_events_.empty() || !gone_.empty());
}

uint64_t Shell::next_deadline_us() const {
    uint64_t deadline = busy_ ? still_here_us_ : core_.next_deadline_us();
    if (closing_ && !busy_) deadline = std::min(deadline, close_deadline_us_);
    return attention_us_ != 0 ? std::min(deadline, attention_us_) : deadline;
}

void Shell::work() {
    move_clock();
    handle_link_events();
    if (probe_ != nullptr) probe_->before_turn();
    core_.tick(clock_.now_us());
    changed();
    more_ = true;
    for (int round = 0; round < kRoundsPerTurn && more_ && running() && !busy_; ++round) take();
    if (busy_) return;
    if (wants_room_ && core_.can_propose()) {
        wants_room_ = false;
        if (callbacks_.on_writable) callbacks_.on_writable();
    }
    truncate_some();
}

void Shell::take() {
    core_.take_outbox(outbox_);
    if (probe_ != nullptr) probe_->taken(outbox_);
    more_ = !outbox_.empty();
    send(outbox_.send_now);
    links_.flush();
    if (!outbox_.persist.empty()) {
        persist_since_us_ = clock_.now_us();
        still_here_us_ = persist_since_us_ + core_.config().heartbeat_us;
        busy_ = !storage_.start_persist(outbox_.persist);
        if (busy_) return;
        has_persisted();
    }
    complete();
}

void Shell::persisted(const std::string& error) {
    CRANE_CHECK(busy_);
    busy_ = false;
    more_ = true;
    if (!running()) return;
    if (!error.empty()) {
        stop(error);
        return;
    }
    guarded([this] {
        move_clock();
        has_persisted();
        complete();
        while (!waiting_.empty() && running()) {
            const auto change = std::move(waiting_.front());
            waiting_.pop_front();
            change();
        }
    });
}

// What had to be durable is.
void Shell::has_persisted() {
    const uint64_t took_us = clock_.now_us() - persist_since_us_;
    longest_sync_us_ = std::max(longest_sync_us_, took_us);
    syncs_.observe(took_us);
    core_.persisted();
    core_.saw_delay(took_us);
    changed();
}

void Shell::complete() {
    if (!outbox_.send_after.empty()) {
        send(outbox_.send_after);
        links_.flush();
    }
    report_role();
    report_mismatches();
    links_.follow(core_);
    deliver();
}

void Shell::when_idle(std::function<void()> change) {
    more_ = true;
    if (!busy_)
        change();
    else if (waiting_.size() < kMaxWaiting)
        waiting_.push_back(std::move(change));
}

void Shell::receive(const Message& message) {
    if (!running()) return;
    look_at_clock();
    if (busy_) {
        when_idle([this, message] { receive(message); });
        return;
    }
    guarded([&] {
        move_clock();
        core_.step(message);
        changed();
        if (core_.disowned() == Copy::kCurrent) return;
        storage_.disown();
        throw DisownedStore(
            "replica " + std::to_string(core_.disowned_by()) + " knows that this database " +
            describe(core_.disowned()) +
            ". Rebuild this replica: move the directory away and start with rejoin = true under "
            "[consensus], while the others run");
    });
    if (running() && !message.report.empty() && callbacks_.on_report)
        callbacks_.on_report(message.from, message.report);
}

bool Shell::propose(std::string& value) {
    if (!running() || closing_) return false;
    if (!busy_ && core_.propose(value)) return true;
    wants_room_ |= core_.role() == Role::kLeader;
    return false;
}

std::string Shell::change_membership(const MembershipChange& change) {
    if (!running() || closing_) return "this replica is stopping";
    return busy_ ? "this replica waits for its disk: try again" : core_.propose_change(change);
}

void Shell::transfer_leadership(ReplicaId to) {
    when_idle([this, to] { core_.transfer_leadership(to); });
}

void Shell::step_down() {
    when_idle([this] { core_.step_down(); });
}

void Shell::set_eligible(bool eligible) {
    if (core_.eligible() != eligible) when_idle([this, eligible] { core_.set_eligible(eligible); });
}

void Shell::set_has_room(bool has_room) {
    if (core_.takes_entries() != has_room) when_idle([this, has_room] { core_.set_has_room(has_room); });
}

void Shell::set_decisions_awaited(bool awaited) {
    if (core_.decisions_awaited() != awaited)
        when_idle([this, awaited] { core_.set_decisions_awaited(awaited); });
}

void Shell::hold_checkpoint(uint64_t index) {
    if (running()) when_idle([this, index] { core_.hold_checkpoint(index); });
}

void Shell::handle_link_events() {
    std::vector<std::pair<ReplicaId, bool>> events;
    events.swap(link_events_);
    for (const auto& [peer, up] : events) {
        if (up) core_.link_restored(peer);
        if (callbacks_.on_peer) callbacks_.on_peer(peer, up);
    }
    if (!gone_.empty()) core_.advance_clock(clock_.now_us());
    for (const ReplicaId peer : gone_) {
        if (!core_.peer_gone(peer)) continue;
        ++leaders_gone_;
        spdlog::info("the process of the leader, replica {}, has ended", peer);
    }
    gone_.clear();
}

void Shell::send(std::vector<Message>& messages) {
    for (Message& message : messages) {
        if (!links_.up(message.to) && message.type != MessageType::kDisown) continue;
        if (message.type == MessageType::kAck && message.ok && callbacks_.make_report) {
            message.report = callbacks_.make_report();
            CRANE_CHECK(message.report.size() <= kMaxReportBytes);
        }
        links_.send(message);
    }
}

void Shell::report_role() {
    const Reported now{core_.role(), core_.view(), core_.leader()};
    if (now == reported_) return;
    reported_ = now;
    spdlog::debug("paxos: {} in view {}, leader {}", role_name(now.role), view_name(now.view), now.leader);
    if (callbacks_.on_role) callbacks_.on_role(now.role, now.view, now.leader);
}

// Each of these messages was left unanswered, and comes again: told are the first, the second, the fourth...
void Shell::report_mismatches() {
    const CoreStats& seen = core_.stats();
    auto news = [](uint64_t now, uint64_t& told) {
        if (now == told || now < 2 * told) return false;
        told = now;
        return true;
    };
    if (news(seen.mismatched_chains, mismatches_))
        spdlog::error(
            "paxos: what replica {} sends differs from what is decided here ({} messages refused): one of "
            "the "
            "two logs is damaged. Stop the replica that 'crane log verify' finds fault with, move its "
            "database "
            "away and start it with rejoin = true",
            core_.leader(), seen.mismatched_chains);
    if (news(seen.disowned, disowned_) && seen.disowned_from != kNoReplica)
        spdlog::error("paxos: {} ({} messages refused)", describe_disowned(seen), seen.disowned);
    if (news(seen.absurd_views, absurd_views_))
        spdlog::error(
            "paxos: replica {} speaks of views that cannot be ({} messages refused): its database or its "
            "memory "
            "is damaged. Stop it, move its database away and start it with rejoin = true",
            seen.absurd_from, seen.absurd_views);
}

const MembershipAt* Shell::delivered_membership() const {
    return delivered_membership_.membership.members.empty() ? nullptr : &delivered_membership_;
}

void Shell::report_membership(const MembershipAt& membership) {
    delivered_membership_ = membership;
    if (callbacks_.on_membership) callbacks_.on_membership(delivered_membership_);
}

void Shell::deliver() {
    for (const Entry& entry : outbox_.decided) {
        CRANE_CHECK(last_delivered_ == 0 || entry.index == last_delivered_ + 1);
        last_delivered_ = entry.index;
        ++delivered_;
        if (callbacks_.on_decided) callbacks_.on_decided(entry);
        if (entry.kind != EntryKind::kMembership) continue;
        MembershipAt at{entry.index, {}};
        CRANE_CHECK(decode(*entry.value, at.membership));
        report_membership(at);
    }
}

void Shell::truncate_some() {
    if (!running() || (!truncating_ && cut_at_ == core_.log_start().index)) return;
    cut_at_ = core_.log_start().index;
    truncating_ = storage_.truncate_front(core_.log_start());
}

void Shell::stop(const std::string& reason) {
    stopped_ = true;
    fatal_ = reason;
    spdlog::critical("this replica stops: {}", reason);
    if (!callbacks_.on_fatal) {
        std::fprintf(stderr, "crane: this replica stops: %s\n", reason.c_str());
        std::abort();
    }
    callbacks_.on_fatal(reason);
}

void Shell::shutdown(uint64_t patience_us) {
    if (closing_) return;
    closing_ = true;
    close_deadline_us_ = clock_.now_us() + patience_us;
    if (running()) when_idle([this] { core_.leave(); });
}

void Shell::finish_closing() {
    if (!closing_ || closed_) return;
    const bool handed_over = !running() || core_.role() != Role::kLeader || core_.decides_alone() ||
                             clock_.now_us() >= close_deadline_us_;
    if (!handed_over) return;
    closed_ = true;
    if (!stopped_) storage_.close(core_.decided_index());
    stopped_ = true;
}

}  // namespace crane::paxos
