#include "checkpoint/system_calls.hpp"

#include <sched.h>
#include <seccomp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

namespace crane::checkpoint {
namespace {

// io_uring and kernel AIO complete in the kernel's own order; userfaultfd and secret memory cannot be
// checkpointed; restartable sequences tell a thread which CPU it is on and when it was preempted, and a
// thread whose area holds rubbish at that moment is killed. Programs that try them have a fallback for
// kernels without.
constexpr const char* kUnordered[] = {
    "io_setup",       "io_destroy",     "io_getevents",      "io_submit",   "io_cancel",    "io_pgetevents",
    "io_uring_setup", "io_uring_enter", "io_uring_register", "userfaultfd", "memfd_secret", "rseq"};

// What reaches around a container: the kernel's modules, keys, clocks, tracers and mounts. clone3 is not here
// but among the unknown ones: its flags lie in memory, where a filter cannot look, and libc falls back to
// clone.
constexpr const char* kForbidden[] = {"acct",
                                      "add_key",
                                      "keyctl",
                                      "request_key",
                                      "bpf",
                                      "perf_event_open",
                                      "init_module",
                                      "finit_module",
                                      "delete_module",
                                      "create_module",
                                      "query_module",
                                      "get_kernel_syms",
                                      "kexec_load",
                                      "kexec_file_load",
                                      "reboot",
                                      "swapon",
                                      "swapoff",
                                      "mount",
                                      "umount",
                                      "umount2",
                                      "move_mount",
                                      "open_tree",
                                      "fsopen",
                                      "fsconfig",
                                      "fsmount",
                                      "fspick",
                                      "mount_setattr",
                                      "pivot_root",
                                      "setns",
                                      "open_by_handle_at",
                                      "name_to_handle_at",
                                      "clock_settime",
                                      "clock_settime64",
                                      "settimeofday",
                                      "stime",
                                      "clock_adjtime",
                                      "clock_adjtime64",
                                      "iopl",
                                      "ioperm",
                                      "syslog",
                                      "quotactl",
                                      "quotactl_fd",
                                      "fanotify_init",
                                      "lookup_dcookie",
                                      "nfsservctl",
                                      "kcmp",
                                      "pidfd_getfd",
                                      "process_madvise",
                                      "process_vm_writev",
                                      "uselib",
                                      "ustat",
                                      "sysfs",
                                      "_sysctl",
                                      "vhangup",
                                      "vm86",
                                      "vm86old",
                                      "sethostname",
                                      "setdomainname"};

// Kernels learn calls that this list has not judged: from here on they are as on a kernel without.
constexpr int kFirstUnknown = 452, kLastUnknown = 511;

using Filter = std::unique_ptr<void, void (*)(scmp_filter_ctx)>;

std::string failed(const std::string& what, int rc) {
    return "seccomp filter: " + what + ": " + std::strerror(-rc);
}

std::string refuse(const Filter& filter, const char* name, int error) {
    const int number = ::seccomp_syscall_resolve_name(name);
    if (number == __NR_SCMP_ERROR) return {};  // this library has never heard of it
    const int rc = ::seccomp_rule_add(filter.get(), SCMP_ACT_ERRNO(static_cast<uint32_t>(error)), number, 0);
    return rc == 0 || rc == -EDOM ? std::string() : failed(name, rc);
}

/// A user namespace gives every capability again, inside; so none is made.
std::string refuse_user_namespaces(const Filter& filter) {
    const auto add = [&](const char* name) {
        return ::seccomp_rule_add(filter.get(), SCMP_ACT_ERRNO(EPERM), ::seccomp_syscall_resolve_name(name),
                                  1, SCMP_A0_64(SCMP_CMP_MASKED_EQ, CLONE_NEWUSER, CLONE_NEWUSER));
    };
    for (const char* name : {"clone", "unshare"})
        if (const int rc = add(name); rc != 0) return failed(name, rc);
    return refuse(filter, "clone3", ENOSYS);
}

/// Sockets that leave the network namespace: to the machine that hosts this one, and to the kernel's ciphers.
std::string refuse_foreign_sockets(const Filter& filter) {
    for (const unsigned family : {AF_VSOCK, AF_ALG}) {
        const int rc = ::seccomp_rule_add(filter.get(), SCMP_ACT_ERRNO(EAFNOSUPPORT), SCMP_SYS(socket), 1,
                                          SCMP_A0_64(SCMP_CMP_EQ, family, 0));
        if (rc != 0) return failed("socket", rc);
    }
    return {};
}

std::string load(const Filter& filter) {
    ::seccomp_attr_set(filter.get(), SCMP_FLTATR_CTL_NNP, 0);
    if (::seccomp_load(filter.get()) == 0) return {};
    // Without privilege the kernel wants the promise that no exec gains any.
    ::seccomp_attr_set(filter.get(), SCMP_FLTATR_CTL_NNP, 1);
    const int rc = ::seccomp_load(filter.get());
    return rc == 0 ? std::string() : failed("loading", rc);
}

/// A filter of its own, since only the machine's own numbers are meant.
std::string refuse_unknown() {
    const Filter filter(::seccomp_init(SCMP_ACT_ALLOW), ::seccomp_release);
    if (!filter) return "seccomp filter: no memory";
    ::seccomp_attr_set(filter.get(), SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_ALLOW);
    for (int number = kFirstUnknown; number <= kLastUnknown; ++number)
        if (const int rc = ::seccomp_rule_add(filter.get(), SCMP_ACT_ERRNO(ENOSYS), number, 0); rc != 0)
            return failed("call " + std::to_string(number), rc);
    return load(filter);
}

}  // namespace

bool is_system_call(const std::string& name) {
    return ::seccomp_syscall_resolve_name(name.c_str()) != __NR_SCMP_ERROR;
}

std::string load_system_call_filter(bool confined, const std::vector<std::string>& allowed) {
    const auto is_allowed = [&](const char* name) { return std::ranges::count(allowed, name) != 0; };
    const Filter filter(::seccomp_init(SCMP_ACT_ALLOW), ::seccomp_release);
    if (!filter) return "seccomp filter: no memory";
    // A 32-bit child gets the same; x32 is another way to the same calls, which nobody uses.
    if (const int rc = ::seccomp_arch_add(filter.get(), SCMP_ARCH_X86); rc != 0 && rc != -EEXIST)
        return failed("32-bit programs", rc);
    ::seccomp_attr_set(filter.get(), SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_ERRNO(ENOSYS));
    ::seccomp_attr_set(filter.get(), SCMP_FLTATR_CTL_OPTIMIZE, 2);
    std::string error;
    for (const char* name : kUnordered)
        if (error.empty()) error = refuse(filter, name, ENOSYS);
    for (const char* name : kForbidden)
        if (error.empty() && confined && !is_allowed(name)) error = refuse(filter, name, EPERM);
    if (error.empty() && confined && !is_allowed("unshare")) error = refuse_user_namespaces(filter);
    if (error.empty() && confined && !is_allowed("socket")) error = refuse_foreign_sockets(filter);
    if (error.empty() && confined) error = refuse_unknown();
    return error.empty() ? load(filter) : error;
}

}  // namespace crane::checkpoint
