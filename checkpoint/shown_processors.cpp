#include "checkpoint/shown_processors.hpp"

#include <cstdio>

namespace crane::checkpoint {
namespace {

constexpr char kFolder[] = "/sys/devices/system/cpu/";

/// Some processors in the two ways in which the kernel names them.
struct Processors {
    std::string list, map;
};

/// As printed by the kernel's bitmaps: words of 32 bits, the highest first, no more digits than there are
/// processors for.
std::string map_of(uint64_t cpus, uint64_t first, uint64_t last) {
    std::string text;
    for (uint64_t word = (cpus + 31) / 32; word-- > 0;) {
        uint32_t bits = 0;
        for (uint64_t cpu = word * 32; cpu < word * 32 + 32; ++cpu)
            if (cpu >= first && cpu <= last) bits |= uint32_t{1} << (cpu % 32);
        const bool highest = text.empty();
        const uint64_t in_word = highest ? cpus - word * 32 : 32;
        char digits[16];
        snprintf(digits, sizeof digits, "%s%0*x", highest ? "" : ",", static_cast<int>((in_word + 3) / 4),
                 bits);
        text += digits;
    }
    return text;
}

Processors some(const ShownMachine& machine, uint64_t first, uint64_t last) {
    std::string list = std::to_string(first);
    if (last > first) list += "-" + std::to_string(last);
    return {list, map_of(machine.cpus, first, last)};
}

struct Cache {
    int level;
    const char* type;
    int kilobytes, ways;
};
constexpr Cache kCaches[] = {
    {1, "Data", 32, 8}, {1, "Instruction", 32, 8}, {2, "Unified", 1024, 16}, {3, "Unified", 32768, 16}};
constexpr int kLineBytes = 64;

void add_caches(std::vector<FileText>& files, uint64_t cpu, const Processors& own, const Processors& all) {
    int index = 0;
    for (const Cache& cache : kCaches) {
        const std::string folder =
            kFolder + ("cpu" + std::to_string(cpu)) + "/cache/index" + std::to_string(index++) + "/";
        const bool shared = cache.level == 3;
        const Processors& by = shared ? all : own;
        const auto add = [&](const char* name, const std::string& text) {
            files.push_back({folder + name, text + "\n"});
        };
        add("coherency_line_size", std::to_string(kLineBytes));
        add("id", shared ? "0" : std::to_string(cpu));
        add("level", std::to_string(cache.level));
        add("number_of_sets", std::to_string(cache.kilobytes * 1024 / cache.ways / kLineBytes));
        add("physical_line_partition", "1");
        add("shared_cpu_list", by.list);
        add("shared_cpu_map", by.map);
        add("size", std::to_string(cache.kilobytes) + "K");
        add("type", cache.type);
        add("ways_of_associativity", std::to_string(cache.ways));
    }
}

void add_place(std::vector<FileText>& files, uint64_t cpu, const Processors& own, const Processors& all) {
    const std::string folder = kFolder + ("cpu" + std::to_string(cpu)) + "/topology/";
    const auto add = [&](const std::string& name, const std::string& text) {
        files.push_back({folder + name, text + "\n"});
    };
    add("core_id", std::to_string(cpu));
    add("die_id", "0");
    add("physical_package_id", "0");
    for (const char* name : {"core_cpus", "thread_siblings"}) {
        add(name, own.map);
        add(name + std::string("_list"), own.list);
    }
    for (const char* name : {"core_siblings", "die_cpus", "package_cpus"}) {
        add(name, all.map);
        add(name + std::string("_list"), all.list);
    }
}

}  // namespace

std::vector<FileText> processor_files(const ShownMachine& machine) {
    std::vector<FileText> files;
    const Processors all = some(machine, 0, machine.cpus - 1);
    for (uint64_t cpu = 0; cpu < machine.cpus; ++cpu) {
        const Processors own = some(machine, cpu, cpu);
        add_place(files, cpu, own, all);
        add_caches(files, cpu, own, all);
        if (cpu > 0) files.push_back({kFolder + ("cpu" + std::to_string(cpu)) + "/online", "1\n"});
    }
    files.push_back({"/sys/devices/system/node/node0/cpumap", all.map + "\n"});
    return files;
}

}  // namespace crane::checkpoint
