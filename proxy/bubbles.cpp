#include "proxy/bubbles.hpp"

#include <event2/event.h>

#include <algorithm>
#include <utility>

#include "base/clock.hpp"

namespace crane::proxy {

namespace {

constexpr uint64_t kLongestNapNs = 3600ULL * 1'000'000'000;

}  // namespace

Bubbles::Bubbles(event_base* base, const Config& config, std::function<uint64_t()> cluster_ns)
    : cluster_ns_(std::move(cluster_ns)),
      enabled_(config.bubbles),
      w_timeout_ns_(config.w_timeout_us * 1000),
      sizer_(config.n_clock),
      timer_(evtimer_new(
          base, [](int, short, void*) {}, nullptr)) {}  // ending the sleep is all it does

Bubbles::~Bubbles() {
    event_free(timer_);
}

void Bubbles::wake_after_ns(uint64_t delay_ns) {
    delay_ns = std::min(delay_ns, kLongestNapNs) + 1000;  // not just before it
    const timeval delay{static_cast<time_t>(delay_ns / 1'000'000'000),
                        static_cast<suseconds_t>(delay_ns % 1'000'000'000 / 1000)};
    evtimer_add(timer_, &delay);
}

bool Bubbles::due(const timebubble::DomainStatus& status, bool under_way) {
    if (under_way) {
        asked_since_ns_ = 0;
        return false;
    }
    if (enabled_ && status.asks.load(std::memory_order_seq_cst)) {
        const uint64_t now = monotonic_ns();
        if (asked_since_ns_ == 0) {
            asked_since_ns_ = now;
            note_ask(status);
        }
        if (now - asked_since_ns_ >= w_timeout_ns_) return true;
        wake_after_ns(w_timeout_ns_ - (now - asked_since_ns_));
        return false;
    }
    asked_since_ns_ = 0;
    if (!status.quiescent.load(std::memory_order_seq_cst)) return false;
    const uint64_t deadline = status.deadline_ns.load(std::memory_order_seq_cst);
    if (deadline == 0) return false;
    const uint64_t now = cluster_ns_();
    if (now >= deadline) return true;
    wake_after_ns(deadline - now);
    return false;
}

/// A domain that waits starts to run with this batch; one that runs goes on from its last sample.
void Bubbles::fed(const timebubble::DomainStatus& status) {
    const uint64_t clock = status.clock.load(std::memory_order_relaxed);
    const bool waits = status.quiescent.load(std::memory_order_relaxed) ||
                       clock >= status.grant_end.load(std::memory_order_relaxed);
    if (!waits) return;
    sample_ns_ = monotonic_ns();
    sample_clock_ = clock;
}

void Bubbles::note_ask(const timebubble::DomainStatus& status) {
    const uint64_t now = monotonic_ns();
    const uint64_t clock = status.clock.load(std::memory_order_relaxed);
    if (sample_ns_ != 0 && clock > sample_clock_) sizer_.measured(clock - sample_clock_, now - sample_ns_);
    sample_ns_ = now;
    sample_clock_ = clock;
}

}  // namespace crane::proxy
