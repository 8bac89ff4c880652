#include "interpose/core/machine.hpp"

#include <linux/memfd.h>

#include "interpose/core/chacha20.hpp"
#include "interpose/core/entropy.hpp"
#include "interpose/core/process_files.hpp"
#include "interpose/core/text.hpp"

namespace crane::interpose {

namespace {

void write_cpuinfo(Text& out) {
    for (uint64_t cpu = 0; cpu < virtual_cpus(); ++cpu) {
        out << "processor\t: " << cpu << "\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 0\n"
            << "model name\t: Crane virtual CPU\nstepping\t: 0\ncpu MHz\t\t: 2000.000\ncache size\t: 1024 "
               "KB\n"
            << "physical id\t: 0\nsiblings\t: " << uint64_t{virtual_cpus()} << "\ncore id\t\t: " << cpu
            << "\ncpu cores\t: " << uint64_t{virtual_cpus()}
            << "\nfpu\t\t: yes\nflags\t\t: fpu tsc cx8 cmov mmx fxsr sse sse2 ht syscall nx lm pni ssse3 "
               "cx16 sse4_1 sse4_2 popcnt\nbogomips\t: 4000.00\nclflush size\t: 64\ncache_alignment\t: "
               "64\n\n";
    }
}

void write_meminfo(Text& out) {
    const uint64_t total = virtual_memory_bytes() / 1024, free = virtual_free_bytes() / 1024;
    const auto line = [&](const char* name, uint64_t kilobytes) { out << name << kilobytes << " kB\n"; };
    line("MemTotal:       ", total);
    line("MemFree:        ", free);
    line("MemAvailable:   ", free);
    for (const char* name :
         {"Buffers:        ", "Cached:         ", "SwapCached:     ", "Active:         ", "Inactive:       ",
          "SwapTotal:      ", "SwapFree:       ", "Dirty:          ", "Writeback:      ", "AnonPages:      ",
          "Mapped:         ", "Shmem:          "}) {
        line(name, 0);
    }
    line("CommitLimit:    ", total);
    line("Committed_AS:   ", total - free);
    out << "HugePages_Total:       0\nHugePages_Free:        0\nHugePages_Rsvd:        0\n"
        << "HugePages_Surp:        0\nHugepagesize:       2048 kB\n";
}

void write_stat(Text& out) {
    const uint64_t ticks = now_monotonic_ns() / 10'000'000;
    out << "cpu  0 0 0 " << ticks * virtual_cpus() << " 0 0 0 0 0 0\n";
    for (uint64_t cpu = 0; cpu < virtual_cpus(); ++cpu) {
        out << "cpu" << cpu << " 0 0 0 " << ticks << " 0 0 0 0 0 0\n";
    }
    out << "intr 0\nctxt 0\nbtime " << domain().monotonic_offset_ns / kNsPerSecond
        << "\nprocesses 1\nprocs_running 1\nprocs_blocked 0\n";
}

void write_loadavg(Text& out) {
    out << "0.00 0.00 0.00 1/1 1\n";
}

void write_uptime(Text& out) {
    const uint64_t hundredths = now_monotonic_ns() / 10'000'000;
    for (const char* end : {" ", "\n"}) {
        out << hundredths / 100 << "." << hundredths % 100 / 10 << hundredths % 10 << end;
    }
}

void write_cpu_list(Text& out) {
    out << "0";
    if (virtual_cpus() > 1) out << "-" << uint64_t{virtual_cpus() - 1};
    out << "\n";
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

void write_pressure(Text& out) {
    for (const char* who : {"some", "full"}) out << who << " avg10=0.00 avg60=0.00 avg300=0.00 total=0\n";
}

void write_devices(Text& out) {
    out << "Inter-|   Receive                                                |  Transmit\n"
        << " face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop "
           "fifo colls "
           "carrier compressed\n"
        << "    lo:       0       0    0    0    0     0          0         0        0       0    0    0    "
           "0     0       "
           "0          0\n";
}

void write_swaps(Text& out) {
    out << "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n";
}

void write_file_count(Text& out) {
    out << "0\t0\t1048576\n";
}

struct MachineFile {
    const char* path;
    void (*write)(Text&);
};

constexpr MachineFile kFiles[] = {
    {"/proc/cpuinfo", write_cpuinfo},
    {"/proc/meminfo", write_meminfo},
    {"/proc/stat", write_stat},
    {"/proc/loadavg", write_loadavg},
    {"/proc/uptime", write_uptime},
    {"/proc/sys/kernel/hostname", write_hostname},
    {"/proc/sys/kernel/random/uuid", write_random_uuid},
    {"/proc/sys/kernel/random/boot_id", write_boot_id},
    {"/proc/sys/fs/file-nr", write_file_count},
    {"/proc/swaps", write_swaps},
    {"/proc/net/dev", write_devices},
    {"/proc/self/net/dev", write_devices},
    {"/proc/pressure/cpu", write_pressure},
    {"/proc/pressure/io", write_pressure},
    {"/proc/pressure/memory", write_pressure},
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
    {"/proc/partitions", write_nothing},
    {"/proc/cgroups", write_nothing},
    {"/proc/net/snmp", write_nothing},
    {"/proc/net/netstat", write_nothing},
    {"/proc/net/sockstat", write_nothing},
    {"/proc/net/sockstat6", write_nothing},
    {"/sys/devices/system/cpu/online", write_cpu_list},
    {"/sys/devices/system/cpu/possible", write_cpu_list},
    {"/sys/devices/system/cpu/present", write_cpu_list},
};

}  // namespace

long open_machine_file(const char* path, bool close_on_exec, bool writes) {
    if (strncmp(path, "/proc/", 6) != 0 && strncmp(path, "/sys/", 5) != 0 && strcmp(path, "/etc/mtab") != 0)
        return -1;
    for (const MachineFile& file : kFiles) {
        if (strcmp(file.path, path) != 0) continue;
        if (writes) return -EROFS;  // as in a container; the machine is the cluster's setting
        const long fd = raw(SYS_memfd_create, path, close_on_exec ? MFD_CLOEXEC : 0);
        if (fd < 0) return fd == -1 ? -ENFILE : fd;
        {
            Text out(static_cast<int>(fd));
            file.write(out);
        }
        raw(SYS_lseek, fd, 0, SEEK_SET);
        return fd;
    }
    return writes ? -1 : open_process_file(path, close_on_exec);
}

}  // namespace crane::interpose
