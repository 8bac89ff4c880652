// What this replica proposes while it leads: batches of calls, and bubbles.
#include <event2/event.h>

#include <algorithm>
#include <stdexcept>

#include "base/clock.hpp"
#include "proxy/replica.hpp"

namespace crane::proxy {

uint64_t Replica::under_way() const {
    const uint64_t in_domain = native_ ? 0 : domain_.link().unadmitted();
    return sequencer_.undecided() + pending_.size() + in_domain;
}

bool Replica::may_propose() const {
    return !stopping_ && fenced_.empty() && !disk_.low() && domain_.state() == DomainState::kAttached &&
           timekeeper_.begun() && sequencer_.can_propose();
}

/// For how long time has come that the server has not been told of: since its next deadline, where it waits.
/// The server's words are not looked at where that cannot be long: it writes them all the time.
uint64_t Replica::late_ns() {
    const uint64_t now = timekeeper_.now(host_time()), told = batcher_.last_timestamp_ns();
    if (now < told + InputFirst::kLateNs) return 0;
    const timebubble::DomainStatus& status = domain_.link().status();
    const bool waits = status.quiescent.load(std::memory_order_seq_cst);
    const uint64_t since = waits ? status.deadline_ns.load(std::memory_order_seq_cst) : told;
    return since == 0 || now < since ? 0 : now - since;
}

bool Replica::has_to_look_first() {
    if (native_ || !may_propose() || (batcher_.empty() && under_way() > 0)) return false;
    return input_first_.holds(monotonic_ns(), late_ns(), batcher_.calls());
}

void Replica::propose() {
    looks_first_ = false;
    begin_time();
    if (server_ended_) {
        propose_start();
        return;
    }
    if (next_proposed()) return;
    settle_connections();
    if (may_propose() && program_is_news()) {
        program_.proposed = true;
        batcher_.add(timebubble::CallKind::kProgram, 0, program_payload(generation_.fed, domain_.program()));
    }
    const bool open = pace_.shut_percent() == 0 || pace_.open(monotonic_ns());
    looks_first_ = open && has_to_look_first();
    if (looks_first_) return;
    while (open && may_propose() &&
           batcher_.due(timekeeper_.now(host_time()), sequencer_.undecided(), under_way())) {
        propose_batch(batcher_.calls());
    }
    await_group();
    if (open && may_propose() && batcher_.empty() && !native_ &&
        bubbles_.due(domain_.link().status(), under_way() > 0)) {
        bubbles_.proposed_bubble();
        propose_batch(0);
    }
}

/// For how long nothing is proposed: where the others are far away, nothing else would wake the loop in time;
/// nor does anything where they are behind (pace.hpp).
uint64_t Replica::held_up_ns() const {
    if ((batcher_.empty() && pace_.shut_percent() == 0) || !may_propose()) return 0;
    const uint64_t now = timekeeper_.now(host_time()), monotonic = monotonic_ns();
    const uint64_t until =
        batcher_.empty() ? 0 : batcher_.due_at_ns();  // else only for the domain, which wakes it
    return std::max(until > now ? until - now : 0, pace_.open_at_ns(monotonic) - monotonic);
}

void Replica::await_group() {
    const uint64_t held_up_ns = this->held_up_ns();
    if ((held_up_ns != 0) == group_armed_) return;
    group_armed_ = held_up_ns != 0;
    if (!group_armed_) {
        evtimer_del(group_timer_);
        return;
    }
    const timeval left{0, static_cast<suseconds_t>(held_up_ns / 1000 + 1)};
    evtimer_add(group_timer_, &left);
}

void Replica::propose_batch(uint64_t calls) {
    sequencer_.set_decisions_awaited(ingress_.any_elsewhere() || datagrams_.take_relayed());
    std::string batch = batcher_.take(timekeeper_.now(host_time()), bubbles_.grant(calls, false));
    if (!sequencer_.propose(std::move(batch))) {
        throw std::logic_error("the log refused a batch that it had room for");
    }
    input_first_.proposed();
    ++batches_proposed_;
    calls_proposed_ += calls - std::min<uint64_t>(calls, batcher_.calls());
}

}  // namespace crane::proxy
