#include "interpose/core/sandbox.hpp"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>

#include <cstddef>
#include <cstring>

#include "interpose/core/backstop.hpp"
#include "interpose/core/user_memory.hpp"

namespace crane::interpose {

namespace {

constexpr size_t kOwnSteps = 7;
constexpr uint32_t kAddressAt = offsetof(seccomp_data, instruction_pointer);

sock_filter step(unsigned code, uint32_t k, uint8_t if_true = 0, uint8_t if_false = 0) {
    return {static_cast<uint16_t>(code), if_true, if_false, k};
}

/// Lets calls out of libcrane.so's code through but for one; for any other, goes on behind these steps.
void let_own_calls_pass(sock_filter* out) {
    const auto [start, end] = own_code();
    const auto judged = reinterpret_cast<uint64_t>(crane_judged_call_made);
    CRANE_CHECK(start >> 32 == end >> 32);
    *out++ = step(BPF_LD | BPF_W | BPF_ABS, kAddressAt + 4);
    *out++ = step(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(start >> 32), 0, 5);
    *out++ = step(BPF_LD | BPF_W | BPF_ABS, kAddressAt);
    *out++ = step(BPF_JMP | BPF_JGE | BPF_K, static_cast<uint32_t>(start), 0, 3);
    *out++ = step(BPF_JMP | BPF_JGE | BPF_K, static_cast<uint32_t>(end), 2, 0);
    *out++ = step(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(judged), 1, 0);
    *out++ = step(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
}

}  // namespace

long set_filter(unsigned flags, const void* program) {
    sock_fprog given;
    if (!fetch(given, program)) return -EFAULT;
    if (given.len == 0 || given.len > BPF_MAXINSNS - kOwnSteps) return -EINVAL;
    sock_filter steps[BPF_MAXINSNS];
    let_own_calls_pass(steps);
    if (crane_copy(steps + kOwnSteps, given.filter, given.len * sizeof(sock_filter)) != 0) return -EFAULT;
    const sock_fprog grown{static_cast<unsigned short>(given.len + kOwnSteps), steps};
    const long rc = raw(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &grown);
    if (rc == 0 && self.active && runtime.process->judged == Judged::kByNobody)
        runtime.process->judged = Judged::kByFilters;
    return rc;
}

long set_strict() {
    sock_filter steps[] = {
        step(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        step(BPF_JMP | BPF_JEQ | BPF_K, SYS_read, 4),
        step(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 3),
        step(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit, 2),
        step(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigreturn, 1),
        step(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        step(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog program{sizeof(steps) / sizeof(*steps), steps};
    raw(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);  // what a filter asks for, and the strict mode does not
    const long rc = set_filter(0, &program);
    if (rc == 0 && self.active) runtime.process->judged = Judged::kStrictly;
    return rc;
}

}  // namespace crane::interpose
