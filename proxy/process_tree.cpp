#include "proxy/process_tree.hpp"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <string>

namespace crane::proxy {

namespace {

/// Without what precedes the second field: the name may hold anything.
bool read_stat(const std::string& process, char (&line)[1024], const char*& after_name) {
    FILE* file = fopen((process + "/stat").c_str(), "re");
    if (!file) return false;
    const size_t got = fread(line, 1, sizeof(line) - 1, file);
    fclose(file);
    line[got] = '\0';
    after_name = strrchr(line, ')');
    return after_name != nullptr;
}

bool read_times(const std::string& process, ProcessTimes& out) {
    char line[1024];
    const char* after = nullptr;
    unsigned long user = 0, system = 0;
    long waited_user = 0, waited_system = 0;
    if (!read_stat(process, line, after) ||
        sscanf(after + 1, " %*c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu %ld %ld", &out.parent, &user,
               &system, &waited_user, &waited_system) != 5) {
        return false;
    }
    out.ticks = user + system + static_cast<unsigned long>(waited_user + waited_system);
    return true;
}

/// In ticks since the host's start, which are the same in every namespace. 0: there is no such process.
unsigned long long start_of(const std::string& process) {
    char line[1024];
    const char* after = nullptr;
    unsigned long long start = 0;
    if (read_stat(process, line, after))
        sscanf(after + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
               &start);
    return start;
}

uint64_t read_io_bytes(const std::string& process) {
    FILE* file = fopen((process + "/io").c_str(), "re");
    if (!file) return 0;
    unsigned long long read = 0, written = 0;
    const bool known = fscanf(file, "rchar: %llu wchar: %llu", &read, &written) == 2;
    fclose(file);
    return known ? read + written : 0;
}

struct Memory {
    uint64_t own_kb = 0, shared_kb = 0;
};

Memory read_memory(const std::string& process) {
    Memory out;
    FILE* file = fopen((process + "/status").c_str(), "re");
    if (!file) return out;
    char line[256];
    unsigned long long kb = 0;
    while (fgets(line, sizeof(line), file)) {
        if (sscanf(line, "RssAnon: %llu kB", &kb) == 1 || sscanf(line, "VmSwap: %llu kB", &kb) == 1)
            out.own_kb += kb;
        if (sscanf(line, "RssShmem: %llu kB", &kb) == 1) out.shared_kb += kb;
    }
    fclose(file);
    return out;
}

template <typename Visit>
void each_process(const std::string& proc, const Visit& visit) {
    DIR* folder = opendir(proc.c_str());
    if (!folder) return;
    while (const dirent* entry = readdir(folder))
        if (const pid_t pid = atoi(entry->d_name); pid > 0) visit(pid, proc + "/" + entry->d_name);
    closedir(folder);
}

/// `root` and all below it, by their folders in some /proc.
template <typename Visit>
void each_below(pid_t root, const Visit& visit) {
    if (const std::string proc = own_proc(root); !proc.empty()) {
        each_process(proc, [&](pid_t, const std::string& process) { visit(process); });
        return;
    }
    for (const auto& [pid, times] : process_tree(root)) visit("/proc/" + std::to_string(pid));
}

}  // namespace

std::string own_proc(pid_t root) {
    if (root <= 0) return "";
    const std::string seen_here = "/proc/" + std::to_string(root);
    std::string proc = seen_here + "/root/proc";
    const unsigned long long start = start_of(seen_here);
    struct stat here {
    }, there{};
    // The first of them, and in that namespace: not merely a process that began in the same tick.
    const bool same = start != 0 && start_of(proc + "/1") == start &&
                      stat((seen_here + "/ns/pid").c_str(), &here) == 0 &&
                      stat((proc + "/1/ns/pid").c_str(), &there) == 0 && here.st_ino == there.st_ino;
    return same && root != 1 ? proc : "";
}

std::map<pid_t, ProcessTimes> process_tree(pid_t root) {
    std::map<pid_t, ProcessTimes> all;
    if (root <= 0) return all;
    each_process("/proc", [&all](pid_t pid, const std::string& process) {
        ProcessTimes times;
        if (read_times(process, times)) all[pid] = times;
    });
    std::set<pid_t> tree{root};
    for (bool grew = true; grew;) {
        grew = false;
        for (const auto& [pid, times] : all) {
            if (tree.count(times.parent) && tree.insert(pid).second) grew = true;
        }
    }
    std::erase_if(all, [&](const auto& one) { return tree.count(one.first) == 0; });
    return all;
}

double tree_cpu_seconds(pid_t root) {
    unsigned long ticks = 0;
    each_below(root, [&ticks](const std::string& process) {
        ProcessTimes times;
        if (read_times(process, times)) ticks += times.ticks;
    });
    return static_cast<double>(ticks) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

uint64_t tree_memory_bytes(pid_t root) {
    uint64_t own_kb = 0, shared_kb = 0;
    each_below(root, [&](const std::string& process) {
        const Memory memory = read_memory(process);
        own_kb += memory.own_kb;
        shared_kb = std::max(shared_kb, memory.shared_kb);
    });
    return (own_kb + shared_kb) * 1024;
}

uint64_t tree_io_bytes(pid_t root) {
    uint64_t bytes = 0;
    each_below(root, [&bytes](const std::string& process) { bytes += read_io_bytes(process); });
    return bytes;
}

}  // namespace crane::proxy
