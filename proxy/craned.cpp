#include "proxy/craned.hpp"

#include <event2/event.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "proxy/clock.hpp"
#include "proxy/worker.hpp"

namespace crane::proxy {

namespace {

constexpr uint64_t kSecondNs = 1'000'000'000;
constexpr size_t kMaxRestarts = 5;
constexpr uint64_t kRestartWindowNs = 120 * kSecondNs;
constexpr timeval kRestartPoll{0, 10'000};
constexpr uint64_t kEndPatienceNs = 20 * kSecondNs;  ///< with a domain that does not end
constexpr timeval kStopLimit{5, 0};
constexpr timeval kStopDelay{0, 20'000};

event_base* make_base() {
    event_config* options = event_config_new();
    event_config_set_flag(options, EVENT_BASE_FLAG_PRECISE_TIMER);  // bubbles wait for microseconds
    event_base* base = event_base_new_with_config(options);
    event_config_free(options);
    if (!base) throw std::runtime_error("no event loop: libevent found no usable method (epoll)");
    return base;
}

/// As many clients as the system lets us have.
void raise_descriptor_limit() {
    rlimit limit{};
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

Craned::Craned(Config config)
    : config_(std::move(config)), base_(make_base()), timekeeper_(config_.replica_id, config_.clock) {
    raise_descriptor_limit();
    signal(SIGPIPE, SIG_IGN);
    for (int number : {SIGTERM, SIGINT}) {
        events_.push_back(evsignal_new(
            base_, number,
            [](int which, short, void* self) {
                static_cast<Craned*>(self)->begin_stop(which == SIGTERM ? "SIGTERM" : "SIGINT");
            },
            this));
        event_add(events_.back(), nullptr);
    }
    restart_timer_ = event_new(
        base_, -1, EV_PERSIST, [](int, short, void* self) { static_cast<Craned*>(self)->try_restart(); },
        this);
    stop_timer_ = evtimer_new(
        base_, [](int, short, void* self) { static_cast<Craned*>(self)->done_ = true; }, this);
    control_ = std::make_unique<ControlServer>(
        base_, config_.control_path(), [this](const nlohmann::json& request) { return handle(request); });
    make_replica();
}

Craned::~Craned() {
    replica_.reset();
    control_.reset();
    for (event* one : events_) event_free(one);
    event_free(restart_timer_);
    event_free(stop_timer_);
    event_base_free(base_);
}

void Craned::make_replica() {
    replica_ = std::make_unique<Replica>(
        base_, config_, timekeeper_,
        Replica::Events{[this] { on_lost(); }, [this](const std::string& reason) { fatal(reason); },
                        [this](uint64_t index) {
                            begin_stop("removed from the cluster by log entry " + std::to_string(index));
                        }});
    replica_->start();
}

int Craned::run() {
    prefer_this_thread();
    while (!done_) {
        const bool may_sleep = replica_->turn();
        event_base_loop(base_, EVLOOP_ONCE | (may_sleep ? 0 : EVLOOP_NONBLOCK));
        replica_->awake();
    }
    return exit_status_;
}

void Craned::fatal(const std::string& reason) {
    spdlog::critical("{}", reason);
    exit_status_ = 1;
    done_ = true;
}

void Craned::begin_stop(const std::string& why) {
    if (stopping_) return;
    stopping_ = true;
    spdlog::info("stopping: {}", why);
    evtimer_add(stop_timer_, &kStopLimit);
    replica_->stop([this] { done_ = true; });
}

/// Called from inside the replica, so nothing is taken down here.
void Craned::on_lost() {
    if (stopping_ || lost_ns_ != 0) return;
    lost_ns_ = monotonic_ns();
    if (config_.mode != Mode::kFull) {
        given_up_ = config_.mode == Mode::kDmt
                        ? "the domain is gone, and without consensus there is no log to bring it back from"
                        : "the server is gone, and mode proxy cannot replay its log: it is not scheduled";
        spdlog::error("{}", given_up_);
        return;
    }
    std::erase_if(restarts_ns_, [this](uint64_t then) { return lost_ns_ - then > kRestartWindowNs; });
    if (restarts_ns_.size() >= kMaxRestarts) {
        given_up_ = "the server's processes were lost " + std::to_string(kMaxRestarts) +
                    " times within two minutes; this replica stays without a server: see " +
                    config_.state_dir + "/stderr, then restart craned";
        spdlog::error("{}", given_up_);
        if (replica_->leads()) replica_->hand_over();
        return;
    }
    restart_at_ns_ = lost_ns_ + (restarts_ns_.empty() ? 0 : (kSecondNs / 4) << restarts_ns_.size());
    if (replica_->leads() && !replica_->alone()) replica_->hand_over();
    event_add(restart_timer_, &kRestartPoll);
}

void Craned::try_restart() {
    const uint64_t now = monotonic_ns();
    // A successor first, if this one led: its clients then have a primary sooner.
    const uint64_t patience_ns = config_.election_timeout_ms * 1'000'000ULL;
    const bool must_wait = replica_->leads() && !replica_->alone() && now - lost_ns_ < patience_ns;
    const bool ends = !replica_->settled() && now - lost_ns_ < kEndPatienceNs;
    if (stopping_ || now < restart_at_ns_ || must_wait || ends) return;
    event_del(restart_timer_);
    restarts_ns_.push_back(now);
    lost_ns_ = 0;
    spdlog::info("starting a fresh domain and replaying the log from its first index");
    replica_.reset();
    try {
        make_replica();
    } catch (const std::exception& error) {
        fatal(error.what());
    }
}

std::string Craned::change_membership(const nlohmann::json& request) {
    const std::map<std::string, paxos::ChangeKind> kinds = {{"add", paxos::ChangeKind::Add},
                                                            {"promote", paxos::ChangeKind::Promote},
                                                            {"remove", paxos::ChangeKind::Remove}};
    const auto kind = kinds.find(request.value("do", ""));
    if (kind == kinds.end()) return "member needs \"do\": add, promote or remove";
    if (!request.contains("id") || !request["id"].is_number_unsigned() || request["id"] > kMaxReplicaId)
        return "member needs \"id\": a number up to " + std::to_string(kMaxReplicaId);
    return replica_->change_membership({kind->second, request["id"], request.value("address", "")});
}

nlohmann::json Craned::handle(const nlohmann::json& request) {
    const std::string command = request["cmd"];
    nlohmann::json done = {{"ok", true}};
    if (command == "status") {
        // Who asks may read the output log next: what is told of is also there.
        replica_->flush_log();
        nlohmann::json status = replica_->status();
        status["counters"]["domain_restarts"] = restarts_ns_.size();
        if (!given_up_.empty()) {
            status["message"] = given_up_;
            status["server"] = "refused";
        }
        return status;
    }
    if (command == "stop") {
        // A moment later, so that the answer still leaves.
        event_base_once(
            base_, -1, EV_TIMEOUT,
            [](int, short, void* self) {
                static_cast<Craned*>(self)->begin_stop("asked to on the control socket");
            },
            this, &kStopDelay);
        return done;
    }
    if (command == "transfer" || command == "signal") {
        const bool transfer = command == "transfer";
        const char* key = transfer ? "to" : "signal";
        if (!request.contains(key) || !request[key].is_number_unsigned()) {
            return {{"error", command + " needs \"" + key + "\": a number"}};
        }
        const std::string error =
            transfer ? replica_->transfer(request[key]) : replica_->signal_server(request[key]);
        if (!error.empty()) return {{"error", error}};
        return done;
    }
    if (command == "member") {
        const std::string error = change_membership(request);
        if (!error.empty()) return {{"error", error}};
        return done;
    }
    if (command == "log-level") {
        const std::string level = request.value("level", "");
        const auto known = spdlog::level::from_str(level);
        if (known == spdlog::level::off) {
            return {{"error", "log-level needs \"level\": trace, debug, info, warning or error"}};
        }
        spdlog::set_level(known);
        return done;
    }
    return {{"error", "no command \"" + command +
                          "\"; there are status, stop, transfer, member, signal and log-level"}};
}

}  // namespace crane::proxy
