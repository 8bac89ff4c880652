#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <map>
#include <set>
#include <vector>

#include "proxy/domain_runner.hpp"

namespace crane::proxy {

namespace {

struct ProcessTimes {
    pid_t parent = 0;
    unsigned long ticks = 0;
};

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

}  // namespace

double tree_cpu_seconds(pid_t root) {
    if (root <= 0) return 0;
    std::map<pid_t, ProcessTimes> all;
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
    unsigned long ticks = 0;
    for (pid_t pid : tree) {
        if (all.count(pid)) ticks += all[pid].ticks;
    }
    return static_cast<double>(ticks) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

}  // namespace crane::proxy
