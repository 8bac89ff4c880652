#include "proxy/domain_cores.hpp"

#include <spdlog/spdlog.h>

#include <cstdio>
#include <map>
#include <vector>

#include "proxy/process_tree.hpp"

namespace crane::proxy {

namespace {

constexpr uint64_t kLookNs = 500'000'000;
/// More of them have more to do than to hand over, and would take long to look at.
constexpr size_t kMostThreads = 1024;
/// Of all domains: some were kept before they were so many.
constexpr size_t kMostKept = 8192;
constexpr char kShim[] = "/libcrane.so";

/// Since the start of the machine, in ticks.
struct CoreTimes {
    unsigned long long idle = 0, all = 0;
};

std::map<int, CoreTimes> read_core_times() {
    std::map<int, CoreTimes> times;
    FILE* file = fopen("/proc/stat", "re");
    if (!file) return times;
    char line[512];
    while (fgets(line, sizeof(line), file)) {
        int number = 0;
        unsigned long long t[8] = {};
        if (sscanf(line, "cpu%d %llu %llu %llu %llu %llu %llu %llu %llu", &number, &t[0], &t[1], &t[2], &t[3],
                   &t[4], &t[5], &t[6], &t[7]) != 9)
            continue;
        CoreTimes& core = times[number];
        core.idle = t[3] + t[4];
        for (const unsigned long long one : t) core.all += one;
    }
    fclose(file);
    return times;
}

/// Since the thread began.
struct ThreadTimes {
    unsigned long long ran_ns = 0, waited_ns = 0;
};

std::map<pid_t, ThreadTimes> read_thread_times(pid_t init) {
    std::map<pid_t, ThreadTimes> times;
    for (const pid_t thread : tree_threads(init, kMostThreads)) {
        FILE* file = fopen(("/proc/" + std::to_string(thread) + "/schedstat").c_str(), "re");
        if (!file) continue;  // it has ended
        ThreadTimes one;
        if (fscanf(file, "%llu %llu", &one.ran_ns, &one.waited_ns) == 2) times[thread] = one;
        fclose(file);
    }
    return times;
}

/// Twice: threads may begin while others are set. Not processes that cannot be scheduled: they may look at
/// how many processors they have, and tell.
void keep(pid_t init, const cpu_set_t& cores) {
    for (int round = 0; round < 2; ++round) {
        for (const pid_t thread : tree_threads(init, kMostKept, kShim))
            sched_setaffinity(thread, sizeof(cores), &cores);
    }
}

}  // namespace

struct DomainCores::Look {
    uint64_t now_ns = 0;
    uint64_t handovers = 0;
    std::map<pid_t, ThreadTimes> threads;
    std::map<int, CoreTimes> cores;

    Placement::Work work_since(const Look& before) const {
        Placement::Work work;
        work.passed_ns = now_ns - before.now_ns;
        work.handovers = handovers - before.handovers;
        for (const auto& [thread, times] : threads) {
            const auto found = before.threads.find(thread);
            if (found == before.threads.end() || times.ran_ns < found->second.ran_ns) continue;
            work.ran_ns += times.ran_ns - found->second.ran_ns;
            work.waited_ns += times.waited_ns - found->second.waited_ns;
        }
        return work;
    }
    std::vector<Placement::Core> cores_since(const Look& before, const cpu_set_t& allowed) const {
        std::vector<Placement::Core> out;
        for (const auto& [number, times] : cores) {
            const auto found = before.cores.find(number);
            if (number >= CPU_SETSIZE || !CPU_ISSET(number, &allowed) || found == before.cores.end())
                continue;
            const auto all = static_cast<double>(times.all) - static_cast<double>(found->second.all);
            const auto idle = static_cast<double>(times.idle) - static_cast<double>(found->second.idle);
            if (all > 0) out.push_back({number, idle / all});
        }
        return out;
    }
};

DomainCores::DomainCores(event_base* base) : worker_(base, "crane-cores") {
    CPU_ZERO(&allowed_);
    sched_getaffinity(0, sizeof(allowed_), &allowed_);
}

void DomainCores::look(uint64_t now_ns, pid_t init, uint64_t handovers) {
    if (init != init_) {
        init_ = init;
        placement_.forget();
        last_.reset();
    }
    if (init <= 0 || CPU_COUNT(&allowed_) < 2 || now_ns < next_ns_ || worker_.busy()) return;
    next_ns_ = now_ns + kLookNs;
    if (!placement_.matters(now_ns, handovers)) {
        last_.reset();
        if (placement_.rest()) set(Placement::kAnywhere);
        return;
    }
    auto look = std::make_shared<Look>();
    look->now_ns = now_ns;
    look->handovers = handovers;
    const auto job = [look, init] {
        look->cores = read_core_times();
        look->threads = read_thread_times(init);
    };
    worker_.post(job, [this, look, init] {
        if (init != init_) return;
        if (look->threads.size() >= kMostThreads) {
            if (placement_.rest()) set(Placement::kAnywhere);
        } else if (last_) {
            looked(*last_, *look);
        }
        last_ = look;
    });
}

void DomainCores::looked(const Look& before, const Look& now) {
    const int was = placement_.core();
    const int core =
        placement_.observe(now.now_ns, now.work_since(before), now.cores_since(before, allowed_));
    if (core != was) set(core);
}

void DomainCores::set(int core) {
    cpu_set_t set = allowed_;
    if (core != Placement::kAnywhere) {
        CPU_ZERO(&set);
        CPU_SET(core, &set);
    }
    if (core == Placement::kAnywhere)
        spdlog::debug("no core is the server's own: its threads are on any");
    else
        spdlog::debug("the server's threads are kept on core {}", core);
    worker_.post([init = init_, set] { keep(init, set); }, [] {});
}

}  // namespace crane::proxy
