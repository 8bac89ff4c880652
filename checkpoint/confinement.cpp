#include "checkpoint/confinement.hpp"

#include <fcntl.h>
#include <linux/capability.h>
#include <linux/magic.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>

#include "checkpoint/mounts.hpp"

namespace crane::checkpoint {
namespace {

constexpr const char* kCapabilityNames[] = {"CHOWN",
                                            "DAC_OVERRIDE",
                                            "DAC_READ_SEARCH",
                                            "FOWNER",
                                            "FSETID",
                                            "KILL",
                                            "SETGID",
                                            "SETUID",
                                            "SETPCAP",
                                            "LINUX_IMMUTABLE",
                                            "NET_BIND_SERVICE",
                                            "NET_BROADCAST",
                                            "NET_ADMIN",
                                            "NET_RAW",
                                            "IPC_LOCK",
                                            "IPC_OWNER",
                                            "SYS_MODULE",
                                            "SYS_RAWIO",
                                            "SYS_CHROOT",
                                            "SYS_PTRACE",
                                            "SYS_PACCT",
                                            "SYS_ADMIN",
                                            "SYS_BOOT",
                                            "SYS_NICE",
                                            "SYS_RESOURCE",
                                            "SYS_TIME",
                                            "SYS_TTY_CONFIG",
                                            "MKNOD",
                                            "LEASE",
                                            "AUDIT_WRITE",
                                            "AUDIT_CONTROL",
                                            "SETFCAP",
                                            "MAC_OVERRIDE",
                                            "MAC_ADMIN",
                                            "SYSLOG",
                                            "WAKE_ALARM",
                                            "BLOCK_SUSPEND",
                                            "AUDIT_READ",
                                            "PERFMON",
                                            "BPF",
                                            "CHECKPOINT_RESTORE"};

// To open files of others, become another user, end one's workers, listen below 1024, change the root, lock
// memory: what a daemon does between its start as root and its work as somebody else.
constexpr int kUsual[] = {CAP_CHOWN,    CAP_DAC_OVERRIDE, CAP_FOWNER,  CAP_FSETID,           CAP_KILL,
                          CAP_SETGID,   CAP_SETUID,       CAP_SETPCAP, CAP_NET_BIND_SERVICE, CAP_SYS_CHROOT,
                          CAP_IPC_LOCK, CAP_AUDIT_WRITE};

// What tells about the host's kernel, or is a handle to it. Files first, then folders.
constexpr const char* kMaskedFiles[] = {
    "/proc/kcore",         "/proc/keys",       "/proc/key-users",   "/proc/kmsg",
    "/proc/kallsyms",      "/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug",
    "/proc/latency_stats", "/proc/kpagecount", "/proc/kpageflags",  "/proc/kpagecgroup",
    "/proc/vmallocinfo",   "/proc/slabinfo",   "/proc/iomem",       "/proc/ioports",
    "/proc/partitions",    "/proc/modules",    "/proc/config.gz",   "/proc/sysrq-trigger"};
constexpr const char* kMaskedFolders[] = {"/proc/acpi",
                                          "/proc/scsi",
                                          "/proc/asound",
                                          "/proc/dynamic_debug",
                                          "/sys/firmware",
                                          "/sys/kernel/debug",
                                          "/sys/kernel/tracing",
                                          "/sys/kernel/security",
                                          "/sys/kernel/config",
                                          "/sys/devices/virtual/powercap",
                                          "/sys/fs/bpf",
                                          "/sys/fs/pstore",
                                          "/sys/fs/fuse/connections",
                                          "/sys/module",
                                          "/sys/power"};
constexpr const char* kReadOnly[] = {"/proc/sys", "/proc/bus", "/proc/fs", "/proc/irq", "/proc/mtrr", "/sys"};

std::string failed(const std::string& what) {
    return what + ": " + std::strerror(errno);
}

bool exists(const char* path) {
    struct stat info {};
    return ::lstat(path, &info) == 0;
}

/// Adds flags to what is mounted at the path and keeps those that it has.
bool add_flags(const char* path, unsigned long flags) {
    struct statvfs info {};
    if (::statvfs(path, &info) != 0) return false;
    for (const auto& [shown, flag] : {std::pair<unsigned long, unsigned long>{ST_RDONLY, MS_RDONLY},
                                      {ST_NOSUID, MS_NOSUID},
                                      {ST_NODEV, MS_NODEV},
                                      {ST_NOEXEC, MS_NOEXEC},
                                      {ST_NOATIME, MS_NOATIME},
                                      {ST_RELATIME, MS_RELATIME}})
        if ((info.f_flag & shown) != 0) flags |= flag;
    return ::mount(nullptr, path, nullptr, MS_REMOUNT | MS_BIND | flags, nullptr) == 0;
}

/// By show_machine(), which leaves nothing there to be hidden.
bool is_covered(const char* path) {
    struct statfs info {};
    return ::statfs(path, &info) == 0 && info.f_type == RAMFS_MAGIC;
}

bool make_read_only(const char* path) {
    return ::mount(path, path, nullptr, MS_BIND | MS_REC, nullptr) == 0 && add_flags(path, MS_RDONLY);
}

bool mask_folder(const char* path) {
    return ::mount("tmpfs", path, "tmpfs", MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC,
                   "size=0k,mode=755") == 0;
}

/// A device node that the host's disk or a package holds, or that is made on another way, opens nothing.
void forbid_devices(std::vector<std::string>* missing) {
    for (const Mount& mount : read_mounts()) {
        const bool special = is_below(mount.point, "/dev") || is_below(mount.point, "/proc");
        if (special || ::access(mount.point.c_str(), F_OK) != 0) continue;
        if (!add_flags(mount.point.c_str(), MS_NODEV))
            missing->push_back(failed("devices on " + mount.point + " can be opened"));
    }
}

uint64_t kept_capabilities(const Confinement& confinement) {
    uint64_t kept = 0;
    for (const int number : kUsual) kept |= uint64_t{1} << number;
    for (const std::string& name : confinement.capabilities) {
        const int number = capability_number(name);
        if (number >= 0) kept |= uint64_t{1} << number;
    }
    return kept;
}

}  // namespace

int capability_number(const std::string& name) {
    std::string upper = name;
    std::ranges::transform(upper, upper.begin(), [](unsigned char c) { return std::toupper(c); });
    if (upper.compare(0, 4, "CAP_") == 0) upper.erase(0, 4);
    const auto at = std::ranges::find(kCapabilityNames, upper);
    return at == std::end(kCapabilityNames) ? -1 : static_cast<int>(at - std::begin(kCapabilityNames));
}

std::vector<std::string> missing_exceptions(const Confinement& confinement) {
    std::vector<std::string> missing;
    for (const std::string& name : confinement.capabilities) {
        const int number = capability_number(name);
        if (number < 0 || ::prctl(PR_CAPBSET_READ, number, 0, 0, 0) == 1) continue;
        const std::string full = std::string("CAP_") + kCapabilityNames[number];
        missing.push_back("the server does not get " + full +
                          ", which [confinement] asks for: craned was started without it. Add "
                          "CapabilityBoundingSet=" +
                          full + " to its unit (systemctl edit) and restart it");
    }
    if (confinement.new_privileges && ::prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1)
        missing.emplace_back(
            "the server's set-user-ID programs gain nothing, though [confinement] has new_privileges: craned "
            "was started so that nothing below it can. Add NoNewPrivileges=no to its unit (systemctl edit) "
            "and restart it");
    return missing;
}

std::vector<std::string> seal_file_systems() {
    std::vector<std::string> missing;
    for (const char* path : kMaskedFiles)
        if (!is_covered(path) && exists(path) && ::mount("/dev/null", path, nullptr, MS_BIND, nullptr) != 0)
            missing.push_back(failed(std::string(path) + " can be seen"));
    for (const char* path : kReadOnly)
        if (!is_covered(path) && exists(path) && !make_read_only(path))
            missing.push_back(failed(std::string(path) + " can be written"));
    for (const char* path : kMaskedFolders)
        if (!is_covered(path) && exists(path) && !mask_folder(path))
            missing.push_back(failed(std::string(path) + " can be seen"));
    forbid_devices(&missing);
    return missing;
}

std::vector<std::string> drop_privileges(const Confinement& confinement, int until_exec) {
    std::vector<std::string> missing;
    const uint64_t kept = kept_capabilities(confinement);
    for (int number = 0; number < 64 && ::prctl(PR_CAPBSET_READ, number, 0, 0, 0) >= 0; ++number)
        if ((kept >> number & 1) == 0 && ::prctl(PR_CAPBSET_DROP, number, 0, 0, 0) != 0)
            missing.push_back(failed("capability " + std::to_string(number) + " is not dropped"));
    ::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    // Beyond the bounding set: no exec passes it on.
    const uint64_t here = kept | (until_exec >= 0 ? uint64_t{1} << until_exec : 0);
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct sets[2]{};
    bool done = ::syscall(SYS_capget, &header, sets) == 0;
    for (int half = 0; half < 2; ++half) {
        sets[half].permitted &= static_cast<uint32_t>(here >> (32 * half));
        sets[half].effective = sets[half].permitted;
        sets[half].inheritable = 0;
    }
    done = done && ::syscall(SYS_capset, &header, sets) == 0;
    if (!done) missing.push_back(failed("capabilities are not dropped"));
    if (!confinement.new_privileges && ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        missing.push_back(failed("programs may gain privileges"));
    return missing;
}

}  // namespace crane::checkpoint
