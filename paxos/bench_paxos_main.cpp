// bench-paxos: three replicas in three processes on loopback; how many values are decided a second, how fast,
// and what that takes of CPU (of all three processes) and of syncs (of the leader).
#include <event2/event.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "paxos/node.hpp"

namespace {

using Clock = std::chrono::steady_clock;
using crane::paxos::Entry;
using crane::paxos::EntryKind;
using crane::paxos::Node;

struct Options {
    size_t inflight = 1;
    size_t size_bytes = 100;
    double seconds = 3;
    double warm_up_seconds = 0.5;
    unsigned replicas = 3;
    uint16_t port = 7460;
    bool durable = true;
    bool json = false;
    std::string directory = "/tmp";
};

constexpr unsigned kMaxReplicas = 7;

// The replicas' processes, known to all of them: the one that leads asks what they all have used.
struct Processes {
    std::atomic<pid_t> pids[kMaxReplicas];

    double cpu_seconds() const {
        double total = 0;
        for (const auto& pid : pids) {
            clockid_t clock;
            timespec used;
            if (pid == 0 || clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &used) != 0)
                continue;
            total += static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) / 1e9;
        }
        return total;
    }
};

Processes* share_processes() {
    void* memory =
        mmap(nullptr, sizeof(Processes), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::runtime_error("no shared memory");
    return new (memory) Processes{};
}

// Keeps `inflight` values in the pipeline while this replica leads, and measures.
class Load {
  public:
    Load(event_base* base, const Options& options, const Processes& processes)
        : base_(base), options_(options), processes_(processes) {}

    void attach(Node* node) { node_ = node; }

    void decided(const Entry& entry) {
        if (node_->role() != crane::paxos::Role::kLeader) return;
        if (entry.kind == EntryKind::kNewView) {
            begin_ = Clock::now() + seconds(options_.warm_up_seconds);
            fill();
            return;
        }
        if (started_.empty() || finished_) return;
        const Clock::time_point now = Clock::now();
        if (!measuring_ && now >= begin_) {
            measuring_ = true;
            begin_ = now;
            before_ = node_->stats();
            cpu_before_s_ = processes_.cpu_seconds();
        }
        if (measuring_)
            latencies_us_.push_back(
                std::chrono::duration<double, std::micro>(now - started_.front()).count());
        started_.pop_front();
        if (measuring_ && now >= begin_ + seconds(options_.seconds)) {
            finished_ = true;
            report(std::chrono::duration<double>(now - begin_).count());
            event_base_loopbreak(base_);
            return;
        }
        fill();
    }

  private:
    static Clock::duration seconds(double count) {
        return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(count));
    }

    void fill() {
        while (started_.size() < options_.inflight && node_->propose(std::string(options_.size_bytes, 'x')))
            started_.push_back(Clock::now());
    }

    void report(double elapsed_seconds) {
        std::sort(latencies_us_.begin(), latencies_us_.end());
        const auto count = static_cast<double>(latencies_us_.size());
        const auto at = [&](double part) { return latencies_us_[static_cast<size_t>(part * (count - 1))]; };
        const crane::paxos::NodeStats after = node_->stats();
        const double cpu_us = (processes_.cpu_seconds() - cpu_before_s_) * 1e6 / count;
        const double syncs = static_cast<double>(after.syncs - before_.syncs) / count;
        const double messages = static_cast<double>(after.messages_sent - before_.messages_sent) / count;
        const char* format =
            options_.json ? "{\"per_second\": %.1f, \"p50_us\": %.1f, \"p99_us\": %.1f, \"max_us\": %.1f, "
                            "\"cpu_us\": %.3f, \"syncs\": %.4f, \"messages\": %.4f}\n"
                          : "%.0f decided/s, p50 %.0f us, p99 %.0f us, max %.0f us, %.1f us of CPU, %.3f "
                            "syncs and %.2f messages of the leader a value\n";
        if (!options_.json) std::printf("in flight %zu, %zu bytes: ", options_.inflight, options_.size_bytes);
        std::printf(format, count / elapsed_seconds, at(0.5), at(0.99), at(1), cpu_us, syncs, messages);
        std::fflush(stdout);
    }

    event_base* base_;
    const Options& options_;
    const Processes& processes_;
    double cpu_before_s_ = 0;
    Node* node_ = nullptr;
    std::deque<Clock::time_point> started_;
    std::vector<double> latencies_us_;
    Clock::time_point begin_;
    bool measuring_ = false, finished_ = false;
    crane::paxos::NodeStats before_;
};

int run_replica(const Options& options, const Processes& processes, uint32_t self) {
    spdlog::set_level(spdlog::level::err);
    const std::unique_ptr<event_base, void (*)(event_base*)> base(event_base_new(), event_base_free);
    crane::paxos::NodeConfig config;
    config.cluster_id = "bench";
    config.self = self;
    for (uint32_t id = 1; id <= options.replicas; ++id)
        config.members.push_back({id, "127.0.0.1", static_cast<uint16_t>(options.port + id)});
    config.db_dir = options.directory + "/r" + std::to_string(self);
    config.max_inflight_entries = std::max<size_t>(1024, options.inflight);
    config.max_inflight_bytes = 64u << 20;
    config.durable = options.durable;
    Load load(base.get(), options, processes);
    crane::paxos::NodeCallbacks callbacks;
    callbacks.on_decided = [&](const Entry& entry) { load.decided(entry); };
    Node node(base.get(), config, callbacks);
    load.attach(&node);
    node.start(1);
    event_base_dispatch(base.get());
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    Options options;
    CLI::App app("Measures consensus: replicas in processes of their own, on loopback.");
    app.add_option("--in-flight", options.inflight, "values proposed and not yet decided")
        ->check(CLI::PositiveNumber);
    app.add_option("--size", options.size_bytes, "bytes of a value");
    app.add_option("--seconds", options.seconds, "length of the measurement")->check(CLI::PositiveNumber);
    app.add_option("--replicas", options.replicas, "1, 3, 5 or 7")->check(CLI::Range(1u, kMaxReplicas));
    app.add_option("--port", options.port, "replica N listens on this + N");
    app.add_option("--directory", options.directory,
                   "databases are made in a directory of their own here, and removed");
    app.add_flag("--json", options.json, "for programs");
    app.add_flag("!--no-sync", options.durable, "do not wait for the disk");
    CLI11_PARSE(app, argc, argv);

    options.directory +=
        "/crane-bench-paxos." + std::to_string(getpid());  // nothing of anybody else's is removed
    std::filesystem::create_directories(options.directory);
    std::vector<pid_t> children;
    Processes* processes = share_processes();
    for (uint32_t id = 1; id <= options.replicas; ++id) {
        const pid_t child = fork();
        if (child == 0) {
            try {
                processes->pids[id - 1] = getpid();
                _exit(run_replica(options, *processes, id));
            } catch (const std::exception& error) {
                std::fprintf(stderr, "replica %u: %s\n", id, error.what());
                _exit(1);
            }
        }
        children.push_back(child);
    }
    int status = 0;
    const pid_t first = wait(&status);  // the leader ends when it has measured
    for (pid_t child : children)
        if (child != first) kill(child, SIGKILL);
    while (wait(nullptr) > 0) {
    }
    std::filesystem::remove_all(options.directory);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
