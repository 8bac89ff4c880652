// The size of the machine that a server is shown, in the words of /proc and /sys. `Out` takes texts and
// numbers by <<.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <string_view>

namespace crane {

struct ShownMachine {
    uint64_t cpus = 1;
    uint64_t memory_bytes = 0;

    /// As settings say it: 0 is for none.
    static ShownMachine of(uint64_t cpus, uint64_t memory_bytes) {
        constexpr uint64_t kMostCpus = 512, kUsualBytes = uint64_t{4} << 30;
        return {std::clamp(cpus, uint64_t{1}, kMostCpus), memory_bytes ? memory_bytes : kUsualBytes};
    }

    /// Always the same half.
    uint64_t free_bytes() const { return memory_bytes / 2; }
};

template <typename Out>
void write_cpuinfo(Out& out, const ShownMachine& machine) {
    for (uint64_t cpu = 0; cpu < machine.cpus; ++cpu) {
        out << "processor\t: " << cpu << "\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 0\n"
            << "model name\t: Crane virtual CPU\nstepping\t: 0\ncpu MHz\t\t: 2000.000\ncache size\t: 1024 "
               "KB\n"
            << "physical id\t: 0\nsiblings\t: " << machine.cpus << "\ncore id\t\t: " << cpu
            << "\ncpu cores\t: " << machine.cpus
            << "\nfpu\t\t: yes\nflags\t\t: fpu tsc cx8 cmov mmx fxsr sse sse2 ht syscall nx lm pni ssse3 "
               "cx16 sse4_1 sse4_2 popcnt\nbogomips\t: 4000.00\nclflush size\t: 64\ncache_alignment\t: "
               "64\n\n";
    }
}

template <typename Out>
void write_meminfo(Out& out, const ShownMachine& machine) {
    const uint64_t total = machine.memory_bytes / 1024, free = machine.free_bytes() / 1024;
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

template <typename Out>
void write_cpu_list(Out& out, const ShownMachine& machine) {
    out << "0";
    if (machine.cpus > 1) out << "-" << machine.cpus - 1;
    out << "\n";
}

template <typename Out>
void write_node_memory(Out& out, const ShownMachine& machine) {
    out << "Node 0 MemTotal:       " << machine.memory_bytes / 1024
        << " kB\nNode 0 MemFree:        " << machine.free_bytes() / 1024
        << " kB\nNode 0 MemUsed:        " << (machine.memory_bytes - machine.free_bytes()) / 1024 << " kB\n";
}

template <typename Out>
struct SizedFile {
    std::string_view path;
    void (*write)(Out&, const ShownMachine&);
};

/// Those that the settings decide upon.
template <typename Out>
constexpr SizedFile<Out> kSizedFiles[] = {
    {"/proc/cpuinfo", write_cpuinfo<Out>},
    {"/proc/meminfo", write_meminfo<Out>},
    {"/sys/devices/system/cpu/online", write_cpu_list<Out>},
    {"/sys/devices/system/cpu/possible", write_cpu_list<Out>},
    {"/sys/devices/system/cpu/present", write_cpu_list<Out>},
    {"/sys/devices/system/node/node0/cpulist", write_cpu_list<Out>},
    {"/sys/devices/system/node/node0/meminfo", write_node_memory<Out>},
};

}  // namespace crane
