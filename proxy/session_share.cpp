#include "proxy/session_share.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>

#include "base/session_priority.hpp"
#include "proxy/worker.hpp"

namespace crane::proxy {

namespace {

constexpr uint64_t kBeginningNs = 3'000'000'000;
constexpr uint64_t kAfterLateNs = 60ULL * 1'000'000'000;

}  // namespace

bool make_real_time(pid_t thread, bool wanted) {
    // What this thread starts is as craned was started, not like this thread.
    const int policy = (wanted ? SCHED_RR : SCHED_OTHER) | SCHED_RESET_ON_FORK;
    sched_param parameters{};
    parameters.sched_priority = wanted ? sched_get_priority_min(SCHED_RR) : 0;
    return sched_setscheduler(thread, policy, &parameters) == 0;
}

bool may_be_real_time() {
    return make_real_time(0, true) && make_real_time(0, false);
}

bool SessionShare::observe(uint64_t now_ns, uint64_t late_ns) {
    if (boosted_) return false;
    if (until_ns_ == 0) until_ns_ = now_ns + kBeginningNs;
    if (late_ns > late_limit_ns_) until_ns_ = std::max(until_ns_, now_ns + kAfterLateNs);
    const bool before = preferred_;
    preferred_ = now_ns < until_ns_;
    return preferred_ != before;
}

void prefer_this_session(bool preferred) {
    if (getsid(0) != getpid()) return;
    const int own = nice_at_start();
    set_session_nice(getpid(), preferred ? std::min(own, kPreferredNice) : own);
}

}  // namespace crane::proxy
