// Scheduling policies and priorities, and on which processors threads may run. The schedule knows none, and a
// real-time thread of the kernel's could keep others from a processor that it waits for; so what a program
// asks for is remembered, checked as the kernel does, and told again, and nothing else.
#include "interpose/scheduling.hpp"

#include <sched.h>

#include <cstring>

#include "interpose/core/blocking.hpp"
#include "interpose/core/machine.hpp"
#include "interpose/core/scheduling_policy.hpp"
#include "interpose/core/threads.hpp"
#include "interpose/core/user_memory.hpp"

namespace crane::interpose {
namespace {

/// The kernel's structure in its first version, which every later one begins with.
struct Attributes {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
};

constexpr long kRoundRobinNs = 100'000'000, kSliceNs = 4'000'000;

/// The thread that the kernel would mean by a number; kNoSlot: none. -EPERM is another user's.
long find(pid_t tid, dmt::SlotId& slot) {
    slot = self.slot;
    if (tid < 0) return -EINVAL;
    if (tid == 0) return 0;
    slot = slot_of_tid(tid);
    if (slot != dmt::kNoSlot) return 0;
    return raw(SYS_kill, tid, 0) == -ESRCH ? -ESRCH : -EPERM;
}

/// Whether the kernel would let this process: it is asked for what the thread has there anyway.
long may_change(pid_t tid) {
    const sched_param none{};
    return tid != 0 && raw(SYS_sched_setparam, tid, &none) == -EPERM ? -EPERM : 0;
}

long set_policy(pid_t tid, int policy, int priority) {
    const bool reset = policy & SCHED_RESET_ON_FORK;
    policy &= ~SCHED_RESET_ON_FORK;
    Operation turn(Op::kOther, own_key());
    dmt::SlotId slot;
    const long unknown = find(tid, slot);
    if (unknown == -EINVAL || unknown == -ESRCH) return unknown;
    if (const long wrong = check_policy(policy, priority); wrong != 0) return wrong;
    if (unknown != 0) return unknown;
    if (const long wrong = may_change(tid); wrong != 0) return wrong;
    domain().threads[slot].policy = {policy, priority, reset};
    return 0;
}

long get_policy(pid_t tid, SchedulingPolicy& policy) {
    Operation turn(Op::kOther, own_key());
    dmt::SlotId slot;
    const long unknown = find(tid, slot);
    policy = {};
    if (unknown == -EPERM) return 0;  // one that is none of the domain's may be asked about
    if (unknown != 0) return unknown;
    policy = domain().threads[slot].policy;
    return 0;
}

/// Of a thread of this process; the error's number.
int change_thread(pthread_t thread, const int* policy, int priority) {
    Operation turn(Op::kOther, thread_key(thread));
    const dmt::SlotId slot = slot_of_thread(thread);
    if (slot == dmt::kNoSlot) return ESRCH;
    SchedulingPolicy& mine = domain().threads[slot].policy;
    const int wanted = policy ? *policy : mine.policy;
    if (const long wrong = check_policy(wanted, priority); wrong != 0) return static_cast<int>(-wrong);
    mine.policy = wanted;
    mine.priority = priority;
    return 0;
}

// --- processors

/// `slot`: kNoSlot, a thread that is none of the domain's. -errno.
long show_processors(dmt::SlotId slot, size_t bytes, cpu_set_t* set) {
    if (bytes * 8 < virtual_cpus() || bytes % sizeof(uint64_t) != 0) return -EINVAL;
    if (!writable(set, bytes)) return -EFAULT;
    count_cheap_call();
    const uint64_t off = slot == dmt::kNoSlot ? 0 : domain().threads[slot].processors_off;
    std::memset(set, 0, bytes);
    for (uint32_t cpu = 0; cpu < virtual_cpus(); ++cpu)
        if (cpu >= 64 || !(off >> cpu & 1)) CPU_SET_S(cpu, bytes, set);
    return 0;
}

long bind_to_processors(dmt::SlotId slot, size_t bytes, const cpu_set_t* set) {
    if (!readable(set, bytes)) return -EFAULT;
    return processors_left_out(set, bytes, domain().threads[slot].processors_off);
}

/// As find(), with the error that these calls have for it.
long find_bound(pid_t tid, dmt::SlotId& slot) {
    const long unknown = find(tid, slot);
    return unknown == -EINVAL ? -ESRCH : unknown;
}

}  // namespace

long set_scheduling_attributes(pid_t tid, const void* given) {
    Attributes wanted{};
    if (!given || tid < 0) return -EINVAL;
    if (!fetch(wanted, given)) return -EFAULT;
    return set_policy(tid, static_cast<int>(wanted.policy), static_cast<int>(wanted.priority));
}

long get_scheduling_attributes(pid_t tid, void* shown, unsigned bytes, unsigned flags) {
    constexpr unsigned kMostBytes = 4096;  // a page
    SchedulingPolicy policy;
    if (!shown || tid < 0 || flags != 0 || bytes < sizeof(Attributes) || bytes > kMostBytes) return -EINVAL;
    if (const long wrong = get_policy(tid, policy); wrong != 0) return wrong;
    Attributes told{};
    told.size = sizeof(Attributes);
    told.policy = static_cast<uint32_t>(policy.policy);
    told.priority = static_cast<uint32_t>(policy.priority);
    return store(shown, told) ? 0 : -EFAULT;
}

}  // namespace crane::interpose

using namespace crane::interpose;

CRANE_EXPORT int sched_setscheduler(pid_t pid, int policy, const sched_param* parameter) noexcept {
    if (!active()) return resolve_real(), real.sched_setscheduler(pid, policy, parameter);
    if (!parameter) return static_cast<int>(as_libc(-EINVAL));
    if (!readable(parameter, sizeof(*parameter))) return static_cast<int>(as_libc(-EFAULT));
    return static_cast<int>(as_libc(set_policy(pid, policy, parameter->sched_priority)));
}

CRANE_EXPORT int sched_setparam(pid_t pid, const sched_param* parameter) noexcept {
    if (!active()) return resolve_real(), real.sched_setparam(pid, parameter);
    if (!parameter) return static_cast<int>(as_libc(-EINVAL));
    if (!readable(parameter, sizeof(*parameter))) return static_cast<int>(as_libc(-EFAULT));
    SchedulingPolicy now;
    if (const long wrong = get_policy(pid, now); wrong != 0) return static_cast<int>(as_libc(wrong));
    return static_cast<int>(as_libc(set_policy(pid, now.policy, parameter->sched_priority)));
}

CRANE_EXPORT int sched_getscheduler(pid_t pid) noexcept {
    if (!active()) return resolve_real(), real.sched_getscheduler(pid);
    SchedulingPolicy now;
    if (const long wrong = get_policy(pid, now); wrong != 0) return static_cast<int>(as_libc(wrong));
    return now.policy | (now.reset_on_fork ? SCHED_RESET_ON_FORK : 0);
}

CRANE_EXPORT int sched_getparam(pid_t pid, sched_param* parameter) noexcept {
    if (!active()) return resolve_real(), real.sched_getparam(pid, parameter);
    if (!parameter) return static_cast<int>(as_libc(-EINVAL));
    SchedulingPolicy now;
    if (const long wrong = get_policy(pid, now); wrong != 0) return static_cast<int>(as_libc(wrong));
    return static_cast<int>(as_libc(store(&parameter->sched_priority, now.priority) ? 0 : -EFAULT));
}

CRANE_EXPORT int sched_rr_get_interval(pid_t pid, timespec* interval) noexcept {
    if (!active()) return resolve_real(), real.sched_rr_get_interval(pid, interval);
    SchedulingPolicy now;
    if (const long wrong = get_policy(pid, now); wrong != 0) return static_cast<int>(as_libc(wrong));
    *interval = {0, now.policy == SCHED_RR ? kRoundRobinNs : now.policy == SCHED_FIFO ? 0 : kSliceNs};
    return 0;
}

CRANE_EXPORT int pthread_setschedparam(pthread_t thread, int policy, const sched_param* parameter) noexcept {
    if (!active()) return resolve_real(), real.pthread_setschedparam(thread, policy, parameter);
    return change_thread(thread, &policy, parameter->sched_priority);
}

CRANE_EXPORT int pthread_setschedprio(pthread_t thread, int priority) noexcept {
    if (!active()) return resolve_real(), real.pthread_setschedprio(thread, priority);
    return change_thread(thread, nullptr, priority);
}

CRANE_EXPORT int pthread_getschedparam(pthread_t thread, int* policy, sched_param* parameter) noexcept {
    if (!active()) return resolve_real(), real.pthread_getschedparam(thread, policy, parameter);
    Operation turn(Op::kOther, thread_key(thread));
    const crane::dmt::SlotId slot = slot_of_thread(thread);
    if (slot == crane::dmt::kNoSlot) return ESRCH;
    const SchedulingPolicy& now = domain().threads[slot].policy;
    *policy = now.policy;
    return static_cast<int>(as_libc(store(&parameter->sched_priority, now.priority) ? 0 : -EFAULT));
}

CRANE_EXPORT int sched_getaffinity(pid_t pid, size_t bytes, cpu_set_t* set) noexcept {
    if (!active()) return resolve_real(), real.sched_getaffinity(pid, bytes, set);
    crane::dmt::SlotId slot;
    const long unknown = find_bound(pid, slot);
    if (unknown != 0 && unknown != -EPERM) return static_cast<int>(as_libc(unknown));
    return static_cast<int>(as_libc(show_processors(slot, bytes, set)));
}

CRANE_EXPORT int sched_setaffinity(pid_t pid, size_t bytes, const cpu_set_t* set) noexcept {
    if (!active()) return resolve_real(), real.sched_setaffinity(pid, bytes, set);
    crane::dmt::SlotId slot;
    if (!readable(set, bytes)) return static_cast<int>(as_libc(-EFAULT));
    if (const long unknown = find_bound(pid, slot); unknown != 0) return static_cast<int>(as_libc(unknown));
    if (const long wrong = may_change(pid); wrong != 0) return static_cast<int>(as_libc(wrong));
    return static_cast<int>(as_libc(bind_to_processors(slot, bytes, set)));
}

CRANE_EXPORT int pthread_getaffinity_np(pthread_t thread, size_t bytes, cpu_set_t* set) noexcept {
    if (!active()) return resolve_real(), real.pthread_getaffinity_np(thread, bytes, set);
    const crane::dmt::SlotId slot = slot_of_thread(thread);
    return slot == crane::dmt::kNoSlot ? ESRCH : static_cast<int>(-show_processors(slot, bytes, set));
}

CRANE_EXPORT int pthread_setaffinity_np(pthread_t thread, size_t bytes, const cpu_set_t* set) noexcept {
    if (!active()) return resolve_real(), real.pthread_setaffinity_np(thread, bytes, set);
    const crane::dmt::SlotId slot = slot_of_thread(thread);
    return slot == crane::dmt::kNoSlot ? ESRCH : static_cast<int>(-bind_to_processors(slot, bytes, set));
}
