#include "proxy/process_tree.hpp"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <map>
#include <set>

namespace crane::proxy {

namespace {

bool read_times(const char* pid, ProcessTimes& out) {
    char path[64];
    snprintf(path, sizeof(path), "/proc/%.20s/stat", pid);
    FILE* file = fopen(path, "re");
    if (!file) return false;
    char line[1024];
    const size_t got = fread(line, 1, sizeof(line) - 1, file);
    fclose(file);
    line[got] = '\0';
    const char* after = strrchr(line, ')');  // the name may hold anything
    unsigned long user = 0, system = 0;
    long waited_user = 0, waited_system = 0;
    if (!after || sscanf(after + 1, " %*c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu %ld %ld",
                         &out.parent, &user, &system, &waited_user, &waited_system) != 5) {
        return false;
    }
    out.ticks = user + system + static_cast<unsigned long>(waited_user + waited_system);
    return true;
}

uint64_t read_io_bytes(pid_t pid) {
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/io", pid);
    FILE* file = fopen(path, "re");
    if (!file) return 0;
    unsigned long long read = 0, written = 0;
    const bool known = fscanf(file, "rchar: %llu wchar: %llu", &read, &written) == 2;
    fclose(file);
    return known ? read + written : 0;
}

}  // namespace

std::map<pid_t, ProcessTimes> process_tree(pid_t root) {
    std::map<pid_t, ProcessTimes> all;
    if (root <= 0) return all;
    if (DIR* proc = opendir("/proc")) {
        while (const dirent* entry = readdir(proc)) {
            const pid_t pid = atoi(entry->d_name);
            ProcessTimes times;
            if (pid > 0 && read_times(entry->d_name, times)) all[pid] = times;
        }
        closedir(proc);
    }
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
    for (const auto& [pid, times] : process_tree(root)) ticks += times.ticks;
    return static_cast<double>(ticks) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

uint64_t tree_io_bytes(pid_t root) {
    uint64_t bytes = 0;
    for (const auto& [pid, times] : process_tree(root)) bytes += read_io_bytes(pid);
    return bytes;
}

}  // namespace crane::proxy
