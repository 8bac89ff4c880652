#include "interpose/core/machine.hpp"

#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <sys/statfs.h>

#include <algorithm>

#include "base/shown_files.hpp"
#include "interpose/core/chacha20.hpp"
#include "interpose/core/entropy.hpp"
#include "interpose/core/file_identity.hpp"
#include "interpose/core/memory_file.hpp"
#include "interpose/core/process_files.hpp"

namespace crane::interpose {

namespace {

void write_stat(Text& out) {
    const uint64_t ticks = now_monotonic_ns() / 10'000'000;
    out << "cpu  0 0 0 " << ticks * virtual_cpus() << " 0 0 0 0 0 0\n";
    for (uint64_t cpu = 0; cpu < virtual_cpus(); ++cpu) {
        out << "cpu" << cpu << " 0 0 0 " << ticks << " 0 0 0 0 0 0\n";
    }
    out << "intr 0\nctxt 0\nbtime " << domain().monotonic_offset_ns / kNsPerSecond
        << "\nprocesses 1\nprocs_running 1\nprocs_blocked 0\n";
}

void write_uptime(Text& out) {
    const uint64_t hundredths = now_monotonic_ns() / 10'000'000;
    for (const char* end : {" ", "\n"}) {
        out << hundredths / 100 << "." << hundredths % 100 / 10 << hundredths % 10 << end;
    }
}

void write_hostname(Text& out) {
    out << virtual_hostname() << "\n";
}

void write_uuid(Text& out, uint8_t bytes[16]) {
    bytes[6] = static_cast<uint8_t>((bytes[6] & 0x0f) | 0x40);
    bytes[8] = static_cast<uint8_t>((bytes[8] & 0x3f) | 0x80);
    for (int i = 0; i < 16; ++i) {
        const char digits[3] = {"0123456789abcdef"[bytes[i] >> 4], "0123456789abcdef"[bytes[i] & 15], 0};
        out << (i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "") << digits;
    }
    out << "\n";
}

void write_random_uuid(Text& out) {
    uint8_t bytes[16];
    fill_random(bytes, sizeof(bytes));
    write_uuid(out, bytes);
}

/// One for the domain's life, from a stream that no process has.
void write_boot_id(Text& out) {
    uint8_t bytes[16];
    chacha20_stream(domain().secret, ~uint64_t{0}, 0, bytes, sizeof(bytes));
    write_uuid(out, bytes);
}

/// Counters of the host's doings.
void write_nothing(Text&) {}

struct MachineFile {
    std::string_view path;
    void (*write)(Text&);
};

/// What moves with the domain, or is its own.
constexpr MachineFile kFiles[] = {
    {"/proc/stat", write_stat},
    {"/proc/uptime", write_uptime},
    {"/proc/sys/kernel/hostname", write_hostname},
    {"/proc/sys/kernel/random/uuid", write_random_uuid},
    {"/proc/sys/kernel/random/boot_id", write_boot_id},
    {"/proc/vmstat", write_nothing},
    {"/proc/zoneinfo", write_nothing},
    {"/proc/buddyinfo", write_nothing},
    {"/proc/pagetypeinfo", write_nothing},
    {"/proc/slabinfo", write_nothing},
    {"/proc/vmallocinfo", write_nothing},
    {"/proc/interrupts", write_nothing},
    {"/proc/softirqs", write_nothing},
    {"/proc/schedstat", write_nothing},
    {"/proc/diskstats", write_nothing},
    {"/proc/locks", write_nothing},
    {"/proc/modules", write_nothing},
};

/// False: it is no such file.
bool write_machine_file(Text& out, std::string_view path) {
    for (const MachineFile& file : kFiles)
        if (file.path == path) return file.write(out), true;
    for (const auto& file : kSizedFiles<Text>)
        if (file.path == path) return file.write(out, shown_machine()), true;
    for (const ShownFile& file : kShownFiles)
        if (file.path == path) return out << file.text, true;
    return false;
}

bool is_machine_file(std::string_view path) {
    const auto named = [&](const auto& file) { return file.path == path; };
    return std::ranges::any_of(kFiles, named) || std::ranges::any_of(kSizedFiles<Text>, named) ||
           std::ranges::any_of(kShownFiles, named);
}

}  // namespace

long open_machine_file(const char* path, bool close_on_exec, bool writes) {
    if (strncmp(path, "/proc/", 6) != 0 && strncmp(path, "/sys/", 5) != 0 && strcmp(path, "/etc/mtab") != 0)
        return -1;
    if (!is_machine_file(path)) return writes ? -1 : open_process_file(path, close_on_exec);
    if (writes) return -EROFS;  // as in a container; the machine is the cluster's setting
    return open_memory_file(path, close_on_exec, [&](Text& out) { write_machine_file(out, path); });
}

long show_opened(int fd, int flags) {
    struct statfs system {};
    if ((flags & O_PATH) != 0 || raw(SYS_fstatfs, fd, &system) != 0) return 0;
    if (system.f_type != PROC_SUPER_MAGIC && system.f_type != SYSFS_MAGIC && system.f_type != RAMFS_MAGIC)
        return 0;
    char path[PATH_MAX];
    if (!path_of_descriptor(fd, path, sizeof(path))) return 0;
    const long shown = open_machine_file(path, true, (flags & O_ACCMODE) != O_RDONLY);
    if (shown == -1) return 0;
    if (shown < 0) return shown;
    const long moved = raw(SYS_dup3, shown, fd, flags & O_CLOEXEC);
    raw(SYS_close, shown);
    return moved < 0 ? moved : 0;
}

}  // namespace crane::interpose
