#include "proxy/image_rounds.hpp"

#include <algorithm>

namespace crane::proxy {

namespace {

/// Longer than a disk that stands still holds up who would say so.
constexpr uint64_t kSilenceNs = 120'000'000'000;
/// In all, for one whose disk never comes back, though it itself says that it is at it.
constexpr uint64_t kPatienceNs = 60 * 60'000'000'000;
/// So many times the log that asks for a round, and the pause after the last one is not kept.
constexpr uint64_t kTooLong = 8;
/// A round that a disk has held up for longer delays the next by no more than this.
constexpr uint64_t kLongestPauseNs = 10 * 60'000'000'000;

}  // namespace

void ImageRounds::computed(double cpu_s) {
    if (looked_at_s_ >= 0) computed_s_ += cpu_s >= looked_at_s_ ? cpu_s - looked_at_s_ : cpu_s;
    looked_at_s_ = cpu_s;
}

bool ImageRounds::due(uint64_t now_ns, bool lacking) const {
    if (asked_) return true;
    const uint64_t longer_ns = lacking ? kLongestPauseNs : std::min(2 * took_ns_, kLongestPauseNs);
    const uint64_t pause_ns = std::max(settings_.pause_ns, longer_ns);
    const bool paused = began_ns_ == 0 || now_ns - began_ns_ >= pause_ns;
    if (settings_.log_bytes == 0) return false;
    if (paused && computed_s_ >= kMostComputedS) return true;
    return bytes_ >= (paused ? settings_.log_bytes : kTooLong * settings_.log_bytes);
}

/// A majority holds one of this round.
bool ImageRounds::is_over(uint64_t now_ns, const std::vector<Voter>& voters) {
    size_t holders = 0;
    for (const Voter& one : voters) {
        const bool holds = one.held >= first_index_;
        holders += holds;
        if (one.id == whom_ && (holds || !one.able)) whom_ = 0;
    }
    if (now_ns - heard_ns_ > kSilenceNs || now_ns - since_ns_ > kPatienceNs) whom_ = 0;
    return holders > voters.size() / 2;
}

uint32_t ImageRounds::next(uint64_t now_ns, uint64_t index, const std::vector<Voter>& voters) {
    if (!open_) {
        const bool lacking =
            std::any_of(voters.begin(), voters.end(), [](const Voter& one) { return one.lacks; });
        if (!due(now_ns, lacking)) return 0;
        open_ = true;
        began_ns_ = now_ns;
        asked_ = false;
        bytes_ = 0;
        computed_s_ = 0;
        first_index_ = index;
        whom_ = 0;
        tried_.clear();
    }
    if (is_over(now_ns, voters)) {
        finish(now_ns);
        return 0;
    }
    if (whom_ != 0) return 0;
    const auto choose = [&](bool self, bool takes) {
        const auto found = std::find_if(voters.begin(), voters.end(), [&](const Voter& one) {
            return (one.id == self_) == self && one.takes == takes && one.able && one.held < first_index_ &&
                   tried_.count(one.id) == 0;
        });
        return found != voters.end() ? found->id : 0;
    };
    const bool taken =
        std::any_of(voters.begin(), voters.end(), [&](const Voter& one) { return one.held >= first_index_; });
    whom_ = choose(false, true);
    if (whom_ == 0 && taken) whom_ = choose(false, false);
    if (whom_ == 0) whom_ = choose(true, true);
    if (whom_ == 0) {
        finish(now_ns);
        return 0;
    }
    since_ns_ = heard_ns_ = now_ns;
    tried_.insert(whom_);
    return whom_;
}

}  // namespace crane::proxy
