#include "interpose/core/scheduling_policy.hpp"

#include "interpose/core/machine.hpp"

namespace crane::interpose {
namespace {

constexpr int kLowestRealtime = 1, kHighestRealtime = 99;

bool is_realtime(int policy) {
    return policy == SCHED_FIFO || policy == SCHED_RR;
}

}  // namespace

long check_policy(int policy, int priority) {
    if (is_realtime(policy)) {
        if (priority < kLowestRealtime || priority > kHighestRealtime) return -EINVAL;
        rlimit limit{};
        if (raw(SYS_geteuid) == 0) return 0;
        raw(SYS_prlimit64, 0, RLIMIT_RTPRIO, nullptr, &limit);
        return static_cast<rlim_t>(priority) <= limit.rlim_cur ? 0 : -EPERM;
    }
    if (policy != SCHED_OTHER && policy != SCHED_BATCH && policy != SCHED_IDLE) return -EINVAL;
    return priority == 0 ? 0 : -EINVAL;
}

long explicit_policy(const pthread_attr_t& attributes, SchedulingPolicy& policy) {
    int inherit = PTHREAD_INHERIT_SCHED;
    pthread_attr_getinheritsched(&attributes, &inherit);
    if (inherit != PTHREAD_EXPLICIT_SCHED) return 0;
    sched_param parameter{};
    int wanted = SCHED_OTHER;
    pthread_attr_getschedpolicy(&attributes, &wanted);
    pthread_attr_getschedparam(&attributes, &parameter);
    if (const long wrong = check_policy(wanted, parameter.sched_priority); wrong != 0) return wrong;
    policy = {wanted, parameter.sched_priority, false};
    return 0;
}

long processors_left_out(const cpu_set_t* set, size_t bytes, uint64_t& off) {
    // Of as many as are remembered; who is shown more runs on the rest as well.
    constexpr uint32_t kRemembered = 64;
    uint64_t on = 0;
    bool any = false;
    for (uint32_t cpu = 0; cpu < virtual_cpus() && cpu / 8 < bytes; ++cpu) {
        if (!CPU_ISSET_S(cpu, bytes, set)) continue;
        any = true;
        if (cpu < kRemembered) on |= uint64_t{1} << cpu;
    }
    if (!any) return -EINVAL;
    const uint64_t all = virtual_cpus() < kRemembered ? (uint64_t{1} << virtual_cpus()) - 1 : ~uint64_t{0};
    off = all & ~on;
    return 0;
}

}  // namespace crane::interpose
