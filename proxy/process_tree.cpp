#include "proxy/process_tree.hpp"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

namespace crane::proxy {

namespace {

/// In one look. The shim schedules 512 processes of 4,096 threads in all; what it does not schedule may be
/// more.
constexpr size_t kMostProcesses = 4096;
constexpr size_t kMostThreads = 8192;

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

/// The entries of a /proc folder that are numbers, `most` at most.
template <typename Visit>
void each_number(const std::string& path, size_t most, const Visit& visit) {
    DIR* folder = opendir(path.c_str());
    if (!folder) return;
    while (const dirent* entry = most > 0 ? readdir(folder) : nullptr) {
        const pid_t number = atoi(entry->d_name);
        if (number <= 0) continue;
        --most;
        visit(number, path + "/" + entry->d_name);
    }
    closedir(folder);
}

/// False: this kernel does not tell children (CONFIG_PROC_CHILDREN), or the thread has ended.
bool read_children(const std::string& thread, size_t most, std::vector<pid_t>& out) {
    FILE* file = fopen((thread + "/children").c_str(), "re");
    if (!file) return false;
    for (int child = 0; most > 0 && fscanf(file, "%d", &child) == 1; --most) out.push_back(child);
    fclose(file);
    return true;
}

/// From parent to child, so that nobody else's process is looked at.
std::map<pid_t, ProcessTimes> walk_down(pid_t root, const std::string& proc) {
    std::map<pid_t, ProcessTimes> found;
    std::vector<pid_t> level{root};
    size_t threads_left = kMostThreads;
    while (!level.empty()) {
        std::vector<pid_t> next;
        for (const pid_t pid : level) {
            const std::string process = proc + "/" + std::to_string(pid);
            ProcessTimes times;
            if (found.size() == kMostProcesses || found.count(pid) || !read_times(process, times)) continue;
            found[pid] = times;
            each_number(process + "/task", threads_left, [&](pid_t, const std::string& thread) {
                --threads_left;
                read_children(thread, kMostProcesses - std::min(kMostProcesses, next.size()), next);
            });
        }
        level = std::move(next);
    }
    return found;
}

bool maps_file(const std::string& process, const char* name) {
    FILE* file = fopen((process + "/maps").c_str(), "re");
    if (!file) return false;
    char* line = nullptr;
    size_t room = 0;
    bool found = false;
    while (!found && getline(&line, &room, file) > 0) found = strstr(line, name) != nullptr;
    free(line);
    fclose(file);
    return found;
}

/// Where children are not told. A host with more processes than are looked at has such a kernel hardly ever.
std::map<pid_t, ProcessTimes> pick_from_all(pid_t root, const std::string& proc) {
    std::map<pid_t, ProcessTimes> all;
    const auto add = [&all](pid_t pid, const std::string& process) {
        ProcessTimes times;
        if (read_times(process, times)) all[pid] = times;
    };
    add(root, proc + "/" + std::to_string(root));
    each_number(proc, kMostProcesses, add);
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

/// `root` and all below it, by their folders in some /proc.
template <typename Visit>
void each_below(pid_t root, const Visit& visit) {
    if (const std::string proc = own_proc(root); !proc.empty()) {
        each_number(proc, kMostProcesses, [&](pid_t, const std::string& process) { visit(process); });
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

std::map<pid_t, ProcessTimes> process_tree(pid_t root, const std::string& proc) {
    if (root <= 0) return {};
    const std::string number = std::to_string(root);
    std::vector<pid_t> ignored;
    const bool told = read_children(proc + "/" + number + "/task/" + number, 1, ignored);
    return told ? walk_down(root, proc) : pick_from_all(root, proc);
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

std::vector<pid_t> tree_threads(pid_t root, size_t most, const char* mapped) {
    std::vector<pid_t> threads;
    for (const auto& [pid, times] : process_tree(root)) {
        const std::string process = "/proc/" + std::to_string(pid);
        if (mapped && !maps_file(process, mapped)) continue;
        each_number(process + "/task", most - threads.size(),
                    [&](pid_t thread, const std::string&) { threads.push_back(thread); });
    }
    return threads;
}

uint64_t tree_io_bytes(pid_t root) {
    uint64_t bytes = 0;
    each_below(root, [&bytes](const std::string& process) { bytes += read_io_bytes(process); });
    return bytes;
}

double own_cpu_seconds() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    const auto seconds = [](const timeval& t) {
        return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
    };
    return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

}  // namespace crane::proxy
