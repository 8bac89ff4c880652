#include "runner.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "base/check.hpp"
#include "world.hpp"

namespace crane::sim {
namespace {

constexpr size_t kLivesPerProcess = 8;  // what Berkeley DB leaves in memory after an error ends with it
constexpr int kHangMs = 60'000;
constexpr size_t kMaxViolationBytes = 32u << 10;

struct Header {
    uint64_t seed = 0, trace = 0, violation_bytes = 0;
    Counts counts;
};

struct Worker {
    pid_t pid = 0;
    int fd = -1;
    std::vector<uint64_t> seeds;  // not yet reported, in order
    std::string bytes;
    uint64_t heard_ms = 0;
};

uint64_t now_ms() {
    timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return static_cast<uint64_t>(time.tv_sec) * 1000 + static_cast<uint64_t>(time.tv_nsec) / 1'000'000;
}

void write_all(int fd, const void* data, size_t size) {
    const char* at = static_cast<const char*>(data);
    while (size > 0) {
        const ssize_t written = ::write(fd, at, size);
        if (written <= 0) _exit(3);
        at += written;
        size -= static_cast<size_t>(written);
    }
}

[[noreturn]] void work(const RunSettings& settings, const std::vector<uint64_t>& seeds, int fd) {
    if (settings.canary != nullptr && std::freopen("/dev/null", "w", stderr) == nullptr) _exit(3);
    for (const uint64_t seed : seeds) {
        LifeResult result = lead_life(seed, settings, false);
        result.violation.resize(std::min(result.violation.size(), kMaxViolationBytes));
        Header header;
        header.seed = seed;
        header.trace = result.trace;
        header.violation_bytes = result.violation.size();
        header.counts = result.counts;
        write_all(fd, &header, sizeof header);
        write_all(fd, result.violation.data(), result.violation.size());
    }
    _exit(0);
}

Worker start_worker(const RunSettings& settings, std::vector<uint64_t> seeds) {
    int ends[2];
    CRANE_CHECK(pipe(ends) == 0);
    std::fflush(stdout);
    Worker worker;
    worker.pid = fork();
    CRANE_CHECK(worker.pid >= 0);
    if (worker.pid == 0) {
        ::close(ends[0]);
        work(settings, seeds, ends[1]);
    }
    ::close(ends[1]);
    worker.fd = ends[0];
    worker.seeds = std::move(seeds);
    worker.heard_ms = now_ms();
    return worker;
}

bool take_result(Worker& worker, LifeResult& result) {
    Header header;
    if (worker.bytes.size() < sizeof header) return false;
    std::memcpy(&header, worker.bytes.data(), sizeof header);
    if (worker.bytes.size() < sizeof header + header.violation_bytes) return false;
    result = {header.seed, header.trace, worker.bytes.substr(sizeof header, header.violation_bytes),
              header.counts};
    worker.bytes.erase(0, sizeof header + header.violation_bytes);
    std::erase(worker.seeds, header.seed);
    return true;
}

class Runner {
  public:
    Runner(const RunSettings& settings, const std::function<bool(uint64_t&)>& next,
           const std::function<bool(const LifeResult&)>& report)
        : settings_(settings), next_(next), report_(report) {}

    void run() {
        while (true) {
            while (!stopping_ && workers_.size() < settings_.jobs && start()) {
            }
            if (workers_.empty()) return;
            wait();
        }
    }

  private:
    bool start() {
        std::vector<uint64_t> seeds;
        seeds.swap(left_over_);
        for (uint64_t seed = 0; seeds.size() < kLivesPerProcess && next_(seed);) seeds.push_back(seed);
        if (seeds.empty()) return false;
        workers_.push_back(start_worker(settings_, std::move(seeds)));
        return true;
    }

    void wait() {
        std::vector<pollfd> polled;
        for (const Worker& worker : workers_) polled.push_back({worker.fd, POLLIN, 0});
        poll(polled.data(), polled.size(), 1000);
        for (size_t i = 0; i < polled.size(); ++i) {
            Worker& worker = workers_[i];
            if (polled[i].revents != 0) hear(worker);
            if (worker.fd >= 0 && now_ms() > worker.heard_ms + kHangMs) kill(worker.pid, SIGKILL);
        }
        std::erase_if(workers_, [](const Worker& worker) { return worker.fd < 0; });
    }

    void hear(Worker& worker) {
        char buffer[65536];
        const ssize_t got = ::read(worker.fd, buffer, sizeof buffer);
        if (got > 0) {
            worker.bytes.append(buffer, static_cast<size_t>(got));
            worker.heard_ms = now_ms();
        }
        for (LifeResult result; take_result(worker, result);) tell(result);
        if (got > 0) return;
        ::close(worker.fd);
        worker.fd = -1;
        int status = 0;
        waitpid(worker.pid, &status, 0);
        if (worker.seeds.empty()) return;
        LifeResult died;
        died.seed = worker.seeds.front();
        died.violation =
            WIFSIGNALED(status) ? std::string("died: ") + strsignal(WTERMSIG(status)) : "ended early";
        left_over_.insert(left_over_.end(), worker.seeds.begin() + 1, worker.seeds.end());
        tell(died);
    }

    void tell(const LifeResult& result) {
        if (stopping_ || report_(result)) return;
        stopping_ = true;
        for (const Worker& worker : workers_)
            if (worker.fd >= 0) kill(worker.pid, SIGKILL);
    }

    const RunSettings& settings_;
    const std::function<bool(uint64_t&)>& next_;
    const std::function<bool(const LifeResult&)>& report_;
    std::vector<Worker> workers_;
    std::vector<uint64_t> left_over_;
    bool stopping_ = false;
};

}  // namespace

LifeResult lead_life(uint64_t seed, const RunSettings& settings, bool verbose) {
    LifeResult result;
    result.seed = seed;
    for (int time = 0; time < (settings.twice ? 2 : 1); ++time) {
        const std::unique_ptr<Canary> canary = settings.canary != nullptr ? settings.canary->make() : nullptr;
        LifeSettings life;
        life.seed = seed;
        life.steps = settings.steps;
        life.verbose = verbose;
        life.canary = canary.get();
        World world(life);
        world.run();
        if (time > 0 && world.trace_hash() != result.trace) {
            result.violation = "the same seed has led to another life";
            break;
        }
        result.trace = world.trace_hash();
        result.violation = world.violation();
        result.counts = world.counts();
    }
    return result;
}

void run_lives(const RunSettings& settings, const std::function<bool(uint64_t& seed)>& next,
               const std::function<bool(const LifeResult&)>& report) {
    Runner(settings, next, report).run();
}

}  // namespace crane::sim
