#include "proxy/cluster_clock.hpp"

#include <algorithm>

namespace crane::proxy {

namespace {

constexpr uint64_t kMillion = 1'000'000;

}  // namespace

void ClusterClock::decided(uint64_t timestamp_ns, uint64_t mono_ns) {
    decided_ns_ = std::max(decided_ns_, timestamp_ns);
    if (runs_ && estimate(mono_ns) < timestamp_ns) {
        shows_ns_ = timestamp_ns;
        mono_ns_ = std::max(mono_ns_, mono_ns);
    }
}

void ClusterClock::follow(uint64_t cluster_ns, uint64_t mono_ns) {
    // Backwards, too: nobody has seen what this replica has shown so far.
    shows_ns_ = std::max(cluster_ns, decided_ns_);
    mono_ns_ = mono_ns;
    runs_ = true;
}

void ClusterClock::hear(uint64_t cluster_ns, uint64_t mono_ns) {
    if (cluster_ns == 0) return;
    shows_ns_ = std::max({estimate(mono_ns), cluster_ns, decided_ns_});
    mono_ns_ = std::max(mono_ns_, mono_ns);
    runs_ = true;
}

void ClusterClock::set(uint64_t real_ns, uint64_t mono_ns) {
    if (runs_) return;
    shows_ns_ = std::max(decided_ns_, real_ns);
    mono_ns_ = mono_ns;
    runs_ = true;
}

/// The most by which the clock may be corrected while `passed_ns` pass. What is not used is not kept.
int64_t ClusterClock::slew_bound(uint64_t passed_ns) {
    // In two parts: the product is large.
    const uint64_t rest = passed_ns % kMillion * slew_ppm_ + slew_rest_;
    slew_rest_ = rest % kMillion;
    return static_cast<int64_t>(passed_ns / kMillion * slew_ppm_ + rest / kMillion);
}

uint64_t ClusterClock::now(uint64_t mono_ns, const RealOffset& real) {
    if (mono_ns <= mono_ns_) return shows_ns_;
    const uint64_t passed_ns = mono_ns - mono_ns_;
    mono_ns_ = mono_ns;
    shows_ns_ += passed_ns;
    const int64_t bound_ns = slew_bound(passed_ns);
    if (!real) return shows_ns_;
    const int64_t error_ns = static_cast<int64_t>(mono_ns) + *real - static_cast<int64_t>(shows_ns_);
    shows_ns_ += static_cast<uint64_t>(std::clamp(error_ns, -bound_ns, bound_ns));
    return shows_ns_;
}

uint64_t ClusterClock::estimate(uint64_t mono_ns) const {
    if (!runs_) return 0;
    return shows_ns_ + (mono_ns > mono_ns_ ? mono_ns - mono_ns_ : 0);
}

}  // namespace crane::proxy
