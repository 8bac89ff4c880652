// prctl, limits, the parent's pid: what a process asks of the kernel about itself, and which the schedule has
// a part in.
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>

#include <cstdarg>

#include "interpose/alarms.hpp"
#include "interpose/core/blocking.hpp"
#include "interpose/core/main_process.hpp"
#include "interpose/core/passed.hpp"
#include "interpose/core/sandbox.hpp"
#include "interpose/core/signals.hpp"
#include "interpose/core/tsc.hpp"
#include "interpose/core/user_memory.hpp"

namespace crane::interpose {
namespace {

/// Address space that the shim takes up in every process: a limit on it is the program's alone.
rlim_t own_address_space() {
    return sizeof(DomainState) + 2 * timebubble::kTransportFileBytes;
}

long change_limits(pid_t pid, int resource, const rlimit* wanted, rlimit* old) {
    if (resource != RLIMIT_AS) return raw(SYS_prlimit64, pid, resource, wanted, old);
    const auto more = [](rlim_t value) {
        return value > RLIM_INFINITY - own_address_space() ? RLIM_INFINITY : value + own_address_space();
    };
    const auto less = [](rlim_t value) {
        if (value == RLIM_INFINITY) return value;
        return value > own_address_space() ? value - own_address_space() : 0;
    };
    rlimit given{}, before{};
    if (wanted) {
        if (!fetch(given, wanted)) return -EFAULT;
        given = {more(given.rlim_cur), more(given.rlim_max)};
    }
    const long rc = raw(SYS_prlimit64, pid, resource, wanted ? &given : nullptr, &before);
    if (rc == 0 && old && !store(old, rlimit{less(before.rlim_cur), less(before.rlim_max)})) return -EFAULT;
    return rc;
}

/// The switch itself is the shim's (tsc.hpp).
long control_counter(bool set, unsigned long argument) {
    uint32_t& denied = domain().threads[self.slot].counter_denied;
    const int now = denied ? PR_TSC_SIGSEGV : PR_TSC_ENABLE;
    if (!set) return store(reinterpret_cast<void*>(argument), now) ? 0 : -EFAULT;
    if (argument != PR_TSC_ENABLE && argument != PR_TSC_SIGSEGV) return -EINVAL;
    denied = argument == PR_TSC_SIGSEGV;
    return 0;
}

long control_process(int option, unsigned long a, unsigned long b, unsigned long c, unsigned long d) {
    Process& own = *runtime.process;
    switch (option) {
        case PR_SET_PDEATHSIG:
            if (a >= static_cast<unsigned long>(kSignals)) return -EINVAL;
            own.death_signal = static_cast<int32_t>(a);
            return 0;
        case PR_GET_PDEATHSIG:
            return store(reinterpret_cast<void*>(a), own.death_signal) ? 0 : -EFAULT;
        case PR_SET_CHILD_SUBREAPER:
            own.subreaper = a != 0;
            return 0;
        case PR_GET_CHILD_SUBREAPER:
            return store(reinterpret_cast<void*>(a), static_cast<int>(own.subreaper)) ? 0 : -EFAULT;
        case PR_GET_TSC:
        case PR_SET_TSC:
            return tsc_trapped() ? control_counter(option == PR_SET_TSC, a)
                                 : raw(SYS_prctl, option, a, b, c, d);
        case PR_SET_SECCOMP:
            return a == SECCOMP_MODE_STRICT   ? set_strict()
                   : a == SECCOMP_MODE_FILTER ? set_filter(0, reinterpret_cast<const void*>(b))
                                              : -EINVAL;
        case PR_SET_KEEPCAPS:
        case PR_SET_SECUREBITS:
        case PR_CAPBSET_DROP:
        case PR_CAP_AMBIENT: {
            const long rc = raw(SYS_prctl, option, a, b, c, d);
            const long words[] = {option, static_cast<long>(a), static_cast<long>(b), static_cast<long>(c),
                                  static_cast<long>(d)};
            have_timer_thread_follow(SYS_prctl, words, rc >= 0);
            return rc;
        }
        case PR_SET_SYSCALL_USER_DISPATCH:
            return -EINVAL;  // it is the shim's (backstop.hpp), and this kernel has none to give
        default:
            return raw(SYS_prctl, option, a, b, c, d);
    }
}

}  // namespace
}  // namespace crane::interpose

using namespace crane::interpose;

CRANE_EXPORT int chroot(const char* path) noexcept {
    if (active()) before_root_changes();
    return static_cast<int>(as_libc(raw(SYS_chroot, path)));
}

CRANE_EXPORT int prctl(int option, ...) noexcept {
    va_list list;
    va_start(list, option);
    unsigned long a[4];
    for (unsigned long& value : a) value = va_arg(list, unsigned long);
    va_end(list);
    if (!active()) return static_cast<int>(as_libc(raw(SYS_prctl, option, a[0], a[1], a[2], a[3])));
    return static_cast<int>(as_libc(control_process(option, a[0], a[1], a[2], a[3])));
}

/// What a tracer stops has no place in the schedule: one that is stopped in its turn would have all wait.
/// Programs that trace themselves do it for a note in their log (php-fpm's of slow requests), and go on
/// without.
CRANE_EXPORT long ptrace(__ptrace_request request, ...) noexcept {
    va_list list;
    va_start(list, request);
    const auto pid = va_arg(list, pid_t);
    auto* const address = va_arg(list, void*);
    auto* const data = va_arg(list, void*);
    va_end(list);
    if (!active()) return resolve_real(), real.ptrace(request, pid, address, data);
    static bool said = false;
    const Operation turn(Op::kOther, process_key(runtime.process->pid));
    if (!said) refuse_call("ptrace: it is not permitted");
    said = true;
    return as_libc(-EPERM);
}

CRANE_EXPORT pid_t getppid() noexcept {
    if (!active()) return static_cast<pid_t>(raw(SYS_getppid));
    count_cheap_call();
    const Process& own = *runtime.process;
    if (own.parent != kNone) return domain().processes[own.parent].pid;
    return is_first_process() ? static_cast<pid_t>(raw(SYS_getppid)) : 1;
}

CRANE_EXPORT int prlimit(pid_t pid, __rlimit_resource resource, const rlimit* wanted, rlimit* old) noexcept {
    if (!active()) return static_cast<int>(as_libc(raw(SYS_prlimit64, pid, resource, wanted, old)));
    return static_cast<int>(as_libc(change_limits(pid, resource, wanted, old)));
}
CRANE_EXPORT int prlimit64(pid_t pid, __rlimit_resource resource, const rlimit64* wanted,
                           rlimit64* old) noexcept {
    return prlimit(pid, resource, reinterpret_cast<const rlimit*>(wanted), reinterpret_cast<rlimit*>(old));
}
CRANE_EXPORT int setrlimit(__rlimit_resource_t resource, const rlimit* wanted) noexcept {
    return prlimit(0, static_cast<__rlimit_resource>(resource), wanted, nullptr);
}
CRANE_EXPORT int setrlimit64(__rlimit_resource_t resource, const rlimit64* wanted) noexcept {
    return prlimit64(0, static_cast<__rlimit_resource>(resource), wanted, nullptr);
}
CRANE_EXPORT int getrlimit(__rlimit_resource_t resource, rlimit* limits) noexcept {
    return prlimit(0, static_cast<__rlimit_resource>(resource), nullptr, limits);
}
CRANE_EXPORT int getrlimit64(__rlimit_resource_t resource, rlimit64* limits) noexcept {
    return prlimit64(0, static_cast<__rlimit_resource>(resource), nullptr, limits);
}
