#include "proxy/restart_policy.hpp"

#include <algorithm>

namespace crane::proxy {

namespace {

constexpr uint64_t kFirstPauseNs = 100'000'000;
constexpr uint64_t kLongestPauseNs = 30'000'000'000;
/// A server that lived so long was well: the next pause is the first one again.
constexpr uint64_t kWellNs = 60'000'000'000;

}  // namespace

void RestartPolicy::ended(uint64_t now_ns, int32_t status) {
    const bool was_well = now_ns > started_ns_ + kWellNs;
    pause_ns_ = pause_ns_ == 0 || was_well ? kFirstPauseNs : std::min(2 * pause_ns_, kLongestPauseNs);
    due_ns_ = asked_ ? 0 : now_ns + pause_ns_;
    status_ = status;
    ended_ = true;
}

bool RestartPolicy::wanted() const {
    if (!ended_) return false;
    if (asked_) return true;
    if (!listened_ || when_ == Restart::kNo) return false;
    return when_ == Restart::kAlways || status_ != 0;
}

}  // namespace crane::proxy
