// bench-paxos: three replicas in three processes on loopback; how many values are decided a second, and how
// fast.
#include <event2/event.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <memory>
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
    std::string directory = "/tmp/crane-bench-paxos";
};

// Keeps `inflight` values in the pipeline while this replica leads, and measures.
class Load {
  public:
    Load(event_base* base, const Options& options) : base_(base), options_(options) {}

    void attach(Node* node) { node_ = node; }

    void decided(const Entry& entry) {
        if (node_->role() != crane::paxos::Role::Leader) return;
        if (entry.kind == EntryKind::NewView) {
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
        rusage usage{};
        getrusage(RUSAGE_SELF, &usage);
        std::printf(
            "in flight %zu, %zu bytes: %.0f decided/s, p50 %.0f us, p99 %.0f us, max %.0f us, %.3f "
            "syncs/value, "
            "%.2f messages/value sent by the leader\n",
            options_.inflight, options_.size_bytes, count / elapsed_seconds, at(0.5), at(0.99), at(1),
            static_cast<double>(after.syncs - before_.syncs) / count,
            static_cast<double>(after.messages_sent - before_.messages_sent) / count);
        std::fflush(stdout);
    }

    event_base* base_;
    const Options& options_;
    Node* node_ = nullptr;
    std::deque<Clock::time_point> started_;
    std::vector<double> latencies_us_;
    Clock::time_point begin_;
    bool measuring_ = false, finished_ = false;
    crane::paxos::NodeStats before_;
};

int run_replica(const Options& options, uint32_t self) {
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
    Load load(base.get(), options);
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
    app.add_option("--replicas", options.replicas, "1, 3, 5 or 7")->check(CLI::Range(1, 7));
    app.add_option("--port", options.port, "replica N listens on this + N");
    app.add_option("--directory", options.directory, "databases are made here, and removed");
    app.add_flag("!--no-sync", options.durable, "do not wait for the disk");
    CLI11_PARSE(app, argc, argv);

    std::filesystem::remove_all(options.directory);
    std::vector<pid_t> children;
    for (uint32_t id = 1; id <= options.replicas; ++id) {
        const pid_t child = fork();
        if (child == 0) {
            try {
                _exit(run_replica(options, id));
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
