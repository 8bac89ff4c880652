#include "proxy/pace.hpp"

#include <algorithm>
#include <optional>

namespace crane::proxy {

namespace {

constexpr uint64_t kMs = 1'000'000;
/// Short beside what a client waits for, long beside a grant (some two milliseconds' work).
constexpr uint64_t kPeriodNs = 20 * kMs;
/// Marks are some 100 ms apart: these reach back for minutes.
constexpr size_t kMostMarks = 4096;
constexpr uint64_t kJudgeEveryNs = 1000 * kMs;
/// Longer than it takes to stand still for a checkpoint.
constexpr uint64_t kStandsNs = 5000 * kMs;
/// Who comes nearer by so much of each second is left to it, and who would be level so soon by going on like
/// that.
constexpr uint64_t kRegainsNs = 100 * kMs;
constexpr uint64_t kLevelWithinS = 120;
constexpr uint32_t kUpPercent = 10, kDownPercent = 10;

}  // namespace

void Pace::heard(uint32_t replica, uint64_t admitted, uint64_t now_ns) {
    Other& other = others_[replica];
    // One that was made anew begins further back.
    if (other.came_on_ns == 0 || admitted != other.admitted) other.came_on_ns = now_ns;
    other.admitted = admitted;
}

void Pace::begin() {
    marks_.clear();
    judged_ns_ = 0;
    shut_percent_ = 0;
    watched_ = 0;
    behind_ns_ = 0;
}

uint64_t Pace::behind_ns(const Other& other, uint64_t now_ns) const {
    const auto next =
        std::upper_bound(marks_.begin(), marks_.end(), other.admitted,
                         [](uint64_t admitted, const Mark& mark) { return admitted < mark.index; });
    return next == marks_.end() ? 0 : now_ns - next->at_ns;
}

bool Pace::lags(uint32_t replica, uint64_t now_ns) const {
    const auto found = others_.find(replica);
    return found != others_.end() && settings_.behind_ns != 0 &&
           behind_ns(found->second, now_ns) > settings_.behind_ns;
}

void Pace::look(uint64_t now_ns, uint64_t last_index) {
    if (settings_.behind_ns == 0) return;
    if (marks_.empty() || last_index > marks_.back().index) marks_.push_back({last_index, now_ns});
    if (marks_.size() > kMostMarks) marks_.pop_front();
    if (now_ns - judged_ns_ < kJudgeEveryNs) return;
    judged_ns_ = now_ns;
    judge(now_ns);
}

void Pace::judge(uint64_t now_ns) {
    std::optional<std::pair<uint64_t, uint32_t>> nearest, furthest;
    for (const auto& [replica, other] : others_) {
        if (now_ns - other.came_on_ns > kStandsNs) continue;
        const std::pair<uint64_t, uint32_t> one{behind_ns(other, now_ns), replica};
        nearest = std::min(nearest.value_or(one), one);
        furthest = std::max(furthest.value_or(one), one);
    }
    const uint32_t watched_before = watched_;
    const uint64_t behind_before_ns = behind_ns_;
    const bool all_behind = nearest && nearest->first > settings_.behind_ns;
    const auto watched = all_behind ? nearest : furthest;
    behind_ns_ = watched ? watched->first : 0;
    watched_ = behind_ns_ > settings_.behind_ns ? watched->second : 0;
    if (watched_ == 0) {
        shut_percent_ -= std::min(shut_percent_, kDownPercent);
        return;
    }
    const uint64_t wanted_ns = std::max(kRegainsNs, behind_ns_ / kLevelWithinS);
    const bool regains = watched_ == watched_before && behind_ns_ + wanted_ns <= behind_before_ns;
    if (!regains) shut_percent_ += kUpPercent;
    const uint32_t for_the_rest = behind_ns_ > kFarBehindNs ? kForTheFarPercent : kForTheRestPercent;
    shut_percent_ = std::min({shut_percent_, settings_.most_shut_percent,
                              all_behind ? settings_.most_shut_percent : for_the_rest});
}

uint64_t Pace::open_at_ns(uint64_t now_ns) const {
    const uint64_t shut_ns = kPeriodNs / 100 * shut_percent_, into_ns = now_ns % kPeriodNs;
    return into_ns >= shut_ns ? now_ns : now_ns - into_ns + shut_ns;
}

}  // namespace crane::proxy
