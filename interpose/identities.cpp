// Changing the user and group of a process. libc tells each of its threads by a signal of its own, and both
// sides wait for each other in the kernel: its calls are let through as they are.
#include <linux/capability.h>

#include "interpose/core/blocking.hpp"
#include "interpose/core/runtime.hpp"
#include "interpose/system_calls.hpp"

using namespace crane::interpose;

CRANE_EXPORT int setuid(uid_t user) noexcept {
    return resolve_real(), real.setuid(user);
}
CRANE_EXPORT int setgid(gid_t group) noexcept {
    return resolve_real(), real.setgid(group);
}
CRANE_EXPORT int seteuid(uid_t user) noexcept {
    return resolve_real(), real.seteuid(user);
}
CRANE_EXPORT int setegid(gid_t group) noexcept {
    return resolve_real(), real.setegid(group);
}
CRANE_EXPORT int setreuid(uid_t user, uid_t effective) noexcept {
    return resolve_real(), real.setreuid(user, effective);
}
CRANE_EXPORT int setregid(gid_t group, gid_t effective) noexcept {
    return resolve_real(), real.setregid(group, effective);
}
CRANE_EXPORT int setresuid(uid_t user, uid_t effective, uid_t saved) noexcept {
    return resolve_real(), real.setresuid(user, effective, saved);
}
CRANE_EXPORT int setresgid(gid_t group, gid_t effective, gid_t saved) noexcept {
    return resolve_real(), real.setresgid(group, effective, saved);
}
CRANE_EXPORT int setgroups(size_t count, const gid_t* groups) noexcept {
    return resolve_real(), real.setgroups(count, groups);
}
CRANE_EXPORT int initgroups(const char* user, gid_t group) {
    return resolve_real(), real.initgroups(user, group);
}

extern "C" CRANE_EXPORT int capset(cap_user_header_t header, cap_user_data_t data) noexcept {
    const long a[6] = {reinterpret_cast<long>(header), reinterpret_cast<long>(data)};
    return static_cast<int>(active() ? lead_system_call(SYS_capset, a)
                                     : as_libc(raw(SYS_capset, a[0], a[1])));
}
