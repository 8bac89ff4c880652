// What is looked at regularly, whatever happens: the server, the event loop, the clients, the disk.
#include <spdlog/spdlog.h>

#include <utility>

#include "base/clock.hpp"
#include "proxy/backtrace.hpp"
#include "proxy/computing_thread.hpp"
#include "proxy/process_tree.hpp"
#include "proxy/replica.hpp"

namespace crane::proxy {

namespace {

constexpr uint64_t kStepDownPauseNs = 2'000'000'000;

}  // namespace

void Replica::watch(uint64_t now_ns) {
    const timebubble::DomainStatus& domain = domain_.link().status();
    const bool waits = native_ || domain_.state() != DomainState::kAttached ||
                       domain.quiescent.load(std::memory_order_relaxed) != 0;
    const uint64_t clock = domain.clock.load(std::memory_order_relaxed);
    const uint64_t stood_ns = stall_.observe(now_ns, clock, waits);
    round_is_due_ =
        !waits && (rounds_.observe(now_ns, clock, waits) != 0 || (round_is_due_ && rounds_.told()));
    if (!stall_.told()) stall_message_.clear();
    if (stood_ns != 0)
        look_at_domain(stood_ns / 1'000'000'000);
    else if (round_is_due_ && !(look_ && look_->busy()))
        look_for_round();
}

/// Each look has a thread of its own: one that never ends keeps no later look from being taken.
void Replica::look_at_domain(uint64_t stood_s) {
    auto report = std::make_shared<StallReport>();
    try {
        look_ = std::make_unique<Worker>(base_, "crane-look");
    } catch (const std::exception& error) {
        spdlog::warn("the server stands still, and nobody can look why: {}", error.what());
        return;
    }
    const auto job = [report, init = domain_.init_pid(), stood_s] {
        *report = describe_stall(init, stood_s);
    };
    look_->post(job, [this, report] {
        // Every thread sleeps: the next decided batch is waited for.
        if (report->summary.empty() || !stall_.told()) return;
        stall_message_ = report->summary;
        spdlog::warn("{}{}", report->summary, report->details);
    });
}

void Replica::look_for_round() {
    round_is_due_ = false;
    if (image_.phase == ImagePhase::kTaking || (round_look_ && round_look_->busy())) return;
    try {
        round_look_ = std::make_unique<Worker>(base_, "crane-rounds");
    } catch (const std::exception& error) {
        spdlog::warn("the server computes, and nobody can look whether it waits for itself: {}",
                     error.what());
        return;
    }
    round_look_->post([init = domain_.init_pid()] { ask_for_round(init); }, [] {});
}

void Replica::watch_catching_up() {
    const bool leads = sequencer_.leads() && sequencer_.ready();
    const uint64_t admitted = history_.last() ? history_.last()->index : 0;
    const bool level = pending_.empty() && domain_.link().unadmitted() == 0;
    catching_up_.look(leads ? sequencer_.delivered_index() : standing_.others(), admitted,
                      level ? sequencer_.delivered_index() : 0,
                      domain_.link().status().quiescent.load(std::memory_order_relaxed) != 0);
}

void Replica::housekeep() {
    const uint64_t now = monotonic_ns();
    const uint64_t late_ns = lag_.observe(now, waited_for_cpu_ns());
    if (late_ns > config_.election_timeout_ms * 500'000ULL)
        spdlog::warn("the event loop stood still for {} ms: {}", late_ns / 1'000'000, lag_.last().held_up_by);
    if (share_.observe(now, late_ns)) prefer_this_session(share_.preferred());
    watch(now);
    if (cores_) cores_->look(now, domain_.init_pid(), domain_.link().status().handovers.load());
    domain_.trim_output();
    watch_clocks(now);
    watch_server_end(now);
    watch_refusal(now);
    watch_standstill(now);
    pool_.reap(now);
    clients_.reap(now);
    egress_datagrams_.reap(now);
    client_limit_.observe(clients_descriptors());
    ingress_.tick(now);
    watch_disk();
    if (sequencer_.leads()) {
        tell_the_odd();
        tell_standing();
        tell_lacking();
        ask_for_images(now);
        if (!native_) pace_.look(now, last_batch_index_);
    }
    tell_at_image(now);
    fetch_to_keep();
    ask_for_new_image(now);
    watch_begin_from_others(now);
    watch_restored(now);
    watch_base(now);
    if (!ports_open_ && domain_.state() == DomainState::kAttached) open_ports();
    // One that lacks a checkpoint stands still for want of the log, as does one without room for it; what a
    // server says is held while the output log has no place for it.
    const bool attached = domain_.state() == DomainState::kAttached && !native_ && !lacking_ &&
                          !disk_.critical() && image_.phase != ImagePhase::kTaking && !output_held_;
    frozen_.observe(now, history_.last() ? history_.last()->index : 0, attached ? standing_.others() : 0,
                    [this] { return tree_cpu_seconds(domain_.init_pid()); });
    choose_output();
    // Who cannot be served by the primary's copy is known soon after it was asked for.
    clients_.look_for_unserved(own_domain_stands());
    if (!native_) watch_catching_up();
    watch_program(now);
    watch_trial();
    judge_fitness();
    if (without_server() && sequencer_.leads() && !alone() && now - last_step_down_ns_ > kStepDownPauseNs) {
        // Where nobody can take over it is tried again and again, and said once.
        if (now - std::exchange(last_step_down_ns_, now) > 5 * kStepDownPauseNs)
            spdlog::warn("this replica leads {}: leadership is handed over",
                         frozen_.frozen() ? "while its server does not run at all" : "without a server");
        sequencer_.transfer(0);
    }
}

}  // namespace crane::proxy
