#include "proxy/placement.hpp"

#include <algorithm>

namespace crane::proxy {

namespace {

constexpr uint64_t kSecond = 1'000'000'000;
/// Fewer a second are not worth a look.
constexpr uint64_t kManyHandovers = 1000;
/// Shares of the time that it runs: worth a try, and no longer worth a core (half as dear there, it runs half
/// as much).
constexpr double kWorthATry = 0.3, kNotBusy = 0.1;
/// One that runs so much cannot lose by it.
constexpr double kBusy = 0.75;
/// How a hand-over's cost and their number have to change for a try to be worth it; of a busy one, not to
/// change.
constexpr double kCheaper = 0.95, kNotDearer = 1.05, kNotSlower = 0.9, kFaster = 1.15;
/// In the first look behind it the threads have only just been set.
constexpr int kLooksOfATry = 2;
/// Waiting for a processor, per time on it. Hand-overs on one core alone make up to 0.8: who gives the turn
/// away still runs when the next one is ready.
constexpr double kAlone = 1.2, kCrowded = 1.4, kContended = 2.0;
constexpr double kIdleCore = 0.5;
constexpr uint64_t kShortestPause = 2 * kSecond, kLongestPause = 64 * kSecond;
/// After so long it was worth while.
constexpr uint64_t kLasting = 10 * kSecond;

}  // namespace

bool Placement::matters(uint64_t now_ns, uint64_t handovers) {
    const uint64_t passed_ns = now_ns - looked_ns_;
    const bool many = looked_ns_ != 0 && handovers >= seen_handovers_ && passed_ns > 0 &&
                      (handovers - seen_handovers_) * kSecond / passed_ns >= kManyHandovers;
    looked_ns_ = now_ns;
    seen_handovers_ = handovers;
    return many;
}

Placement::Pace Placement::pace_of(const Work& work) {
    const auto passed = static_cast<double>(std::max<uint64_t>(1, work.passed_ns));
    return {static_cast<double>(work.ran_ns) / passed,
            static_cast<double>(work.handovers) * static_cast<double>(kSecond) / passed};
}

bool Placement::worth_it(const Pace& now) const {
    if (now.handovers_per_s >= kFaster * elsewhere_.handovers_per_s) return true;
    const double most = elsewhere_.share >= kBusy ? kNotDearer : kCheaper;
    return now.handovers_per_s >= kNotSlower * elsewhere_.handovers_per_s &&
           now.cost_of_handover() <= most * elsewhere_.cost_of_handover();
}

int Placement::anywhere(uint64_t now_ns) {
    looks_left_ = 0;
    pause_ns_ = std::clamp(pause_ns_ * 2, kShortestPause, kLongestPause);
    next_try_ns_ = now_ns + pause_ns_;
    return core_ = kAnywhere;
}

int Placement::observe(uint64_t now_ns, const Work& work, const std::vector<Core>& cores) {
    const auto ran = static_cast<double>(work.ran_ns), waited = static_cast<double>(work.waited_ns);
    const Pace pace = pace_of(work);
    if (cores.size() < 2) return core_;
    const double crowd = waited / std::max(ran, 1.0);
    const auto best = std::max_element(cores.begin(), cores.end(),
                                       [](const Core& a, const Core& b) { return a.idle < b.idle; });
    if (core_ == kAnywhere) {
        if (pace.share < kWorthATry || now_ns < next_try_ns_ || crowd > kAlone) return core_;
        kept_since_ns_ = now_ns;
        elsewhere_ = pace;
        looks_left_ = kLooksOfATry;
        return core_ = best->number;
    }
    if (crowd > kCrowded && best->number != core_ && best->idle >= kIdleCore) {
        kept_since_ns_ = now_ns;
        return core_ = best->number;
    }
    if (crowd > kContended) return anywhere(now_ns);
    if (looks_left_ > 0 && --looks_left_ == 0 && !worth_it(pace)) return anywhere(now_ns);
    if (pace.share < kNotBusy && crowd <= kCrowded) return core_ = kAnywhere;
    if (now_ns - kept_since_ns_ >= kLasting) pause_ns_ = 0;
    return core_;
}

bool Placement::rest() {
    const bool kept = core_ != kAnywhere;
    core_ = kAnywhere;
    return kept;
}

void Placement::forget() {
    core_ = kAnywhere;
    looked_ns_ = 0;
}

}  // namespace crane::proxy
