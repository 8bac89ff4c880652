#include "proxy/craned.hpp"

#include <event2/event.h>
#include <signal.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/clock.hpp"
#include "paxos/core/storage.hpp"
#include "paxos/link/tls.hpp"
#include "proxy/checkpoints.hpp"
#include "proxy/daemon_log.hpp"
#include "proxy/loop_boost.hpp"
#include "proxy/replica.hpp"
#include "proxy/witness.hpp"
#include "proxy/worker.hpp"

namespace crane::proxy {

namespace {

constexpr uint64_t kSecondNs = 1'000'000'000;
constexpr uint64_t kMaxPauseNs = 300 * kSecondNs;
constexpr uint64_t kHealthyNs = 120 * kSecondNs;  ///< a domain that lived so long was well
constexpr size_t kTellAfter = 5;
/// Who asks from afar, and may do nothing but ask, is not to hold up the loop by asking often.
constexpr uint64_t kRecentNs = 100'000'000;
constexpr timeval kRestartPoll{0, 10'000};
constexpr uint64_t kEndPatienceNs = 20 * kSecondNs;  ///< with a domain that does not end
constexpr timeval kStopLimit{5, 0};

event_base* make_base() {
    event_config* options = event_config_new();
    event_config_set_flag(options, EVENT_BASE_FLAG_PRECISE_TIMER);  // bubbles wait for microseconds
    event_base* base = event_base_new_with_config(options);
    event_config_free(options);
    if (!base) throw std::runtime_error("no event loop: libevent found no usable method (epoll)");
    return base;
}

}  // namespace

uint64_t restart_pause_ns(size_t restarts_in_a_row) {
    if (restarts_in_a_row == 0) return 0;
    return std::min(kMaxPauseNs, (kSecondNs / 4) << std::min<size_t>(restarts_in_a_row, 16));
}

Craned::Craned(Config config)
    : config_(std::move(config)),
      base_(make_base()),
      timekeeper_(config_.replica_id, config_.clock),
      service_(std::make_unique<ServiceManager>(base_, [this] { return doing(); })),
      readings_(std::make_unique<Readings>(base_, config_.state_dir)) {
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
    events_.push_back(evsignal_new(
        base_, SIGHUP, [](int, short, void* self) { static_cast<Craned*>(self)->reopen_logs(); }, this));
    event_add(events_.back(), nullptr);
    restart_timer_ = event_new(
        base_, -1, EV_PERSIST, [](int, short, void* self) { static_cast<Craned*>(self)->try_restart(); },
        this);
    stop_timer_ = evtimer_new(
        base_, [](int, short, void* self) { static_cast<Craned*>(self)->done_ = true; }, this);
    control_ = std::make_unique<ControlServer>(
        base_, config_.control_path(), [this](const nlohmann::json& request) { return handle(request); });
    // One for all: operators are shown what peers are, and a server that is lost is made anew, whatever has
    // become of the files meanwhile.
    const paxos::Identity self{config_.cluster_id, config_.replica_id};
    if (config_.tls.configured() && (config_.mode == Mode::kFull || !config_.admin_listen.empty()))
        config_.tls.context = std::make_shared<paxos::TlsContext>(config_.tls, self);
    if (!config_.admin_listen.empty())
        admin_ = std::make_unique<AdminServer>(
            base_, config_.admin_listen, config_.tls.context, self, [this](const nlohmann::json& request) {
                const bool status = request["cmd"] == "status" && is_own(request);
                return status ? recent_status() : handle(request);
            });
    if (!config_.metrics_listen.empty())
        observation_ =
            std::make_unique<Observation>(base_, config_.metrics_listen, [this] { return look(); });
    Checkpoints::try_refused_again(config_);
    make_replica();
    service_->ready();
}

Craned::~Craned() {
    observation_.reset();
    admin_.reset();
    readings_.reset();
    replica_.reset();
    control_.reset();
    service_.reset();
    for (event* one : events_) event_free(one);
    event_free(restart_timer_);
    event_free(stop_timer_);
    event_base_free(base_);
}

void Craned::make_replica() {
    Participant::Events events{
        [this] { on_lost(); },
        [this](const std::string& reason) { fatal(reason); },
        [this](uint64_t index) {
            begin_stop("removed from the cluster by log entry " + std::to_string(index));
        },
        [this](const nlohmann::json& request, Readings::Reply reply) { asked(request, std::move(reply)); },
        [this](uint64_t view, uint32_t leader) { tenure_.observe(view, leader, time(nullptr)); },
        [this] { service_->working(); }};
    if (config_.witness) {
        replica_ = std::make_unique<Witness>(base_, config_, timekeeper_, sums_, std::move(events));
    } else {
        replica_ = std::make_unique<Replica>(base_, config_, timekeeper_, repairs_, losses_, difference_,
                                             sums_, std::move(events));
    }
    replica_->start();
}

int Craned::run() {
    prefer_this_thread();
    const LoopBoost boost;
    while (!done_) {
        const bool may_sleep = replica_->turn();
        if (!done_) event_base_loop(base_, EVLOOP_ONCE | (may_sleep ? 0 : EVLOOP_NONBLOCK));
        if (!done_) replica_->awake();
    }
    return exit_status_;
}

void Craned::fatal(const std::string& reason) {
    spdlog::critical("{}", reason);
    exit_status_ = replica_ && replica_->disowned() ? kExitDisowned : 1;
    done_ = true;
    event_base_loopbreak(base_);  // whatever else is to be done now may find no replica
}

void Craned::begin_stop(const std::string& why) {
    if (stopping_) return;
    stopping_ = true;
    spdlog::info("stopping: {}", why);
    service_->stopping(why);
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
    if (lost_ns_ - last_restart_ns_ > kHealthyNs) restarts_in_a_row_ = 0;
    const uint64_t pause = restart_pause_ns(restarts_in_a_row_);
    restart_at_ns_ = lost_ns_ + pause;
    if (restarts_in_a_row_ >= kTellAfter) {
        given_up_ = "the server's processes were lost " + std::to_string(restarts_in_a_row_ + 1) +
                    " times in a row; it is tried again every few minutes at most (now after " +
                    std::to_string(pause / kSecondNs) + " s): see " + config_.state_dir +
                    "/stderr (stderr.1, once it is tried again) and craned.log";
        spdlog::error("{}", given_up_);
    }
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
    ++restarts_;
    ++restarts_in_a_row_;
    last_restart_ns_ = now;
    lost_ns_ = 0;
    given_up_.clear();
    spdlog::info("making the server anew from the log");
    replica_.reset();
    try {
        make_replica();
    } catch (const paxos::DisownedStore& error) {
        fatal(error.what());
        exit_status_ = kExitDisowned;
    } catch (const paxos::DamagedStore& error) {
        fatal(error.what());
        exit_status_ = kExitDamaged;
    } catch (const std::exception& error) {
        fatal(error.what());
    }
}

void Craned::reopen_logs() {
    reopen_daemon_log();
    replica_->reopen_logs();
    spdlog::info("the logs are reopened (SIGHUP)");
}

std::string Craned::doing() const {
    if (!given_up_.empty()) return given_up_;
    if (!replica_) return "making the server anew";
    const std::string self =
        "replica " + std::to_string(config_.replica_id) + " of cluster " + config_.cluster_id;
    if (replica_->leads()) return self + ", primary";
    const uint32_t primary = replica_->leader();
    return self + (primary == 0 ? ", no primary is known" : ", backup of replica " + std::to_string(primary));
}

nlohmann::json Craned::status() {
    // Who asks may read the output log next: what is told of is also there.
    replica_->flush_log();
    return look();
}

nlohmann::json Craned::recent_status() {
    const uint64_t now_ns = monotonic_ns();
    if (looked_.is_null() || now_ns - looked_ns_ >= kRecentNs) {
        looked_ = status();
        looked_ns_ = now_ns;
    }
    return looked_;
}

bool Craned::is_own(const nlohmann::json& request) const {
    const auto whose = request.find("replica");
    return whose == request.end() || *whose == config_.replica_id;
}

nlohmann::json Craned::look() {
    nlohmann::json status = replica_->status();
    status["version"] = CRANE_VERSION;
    status["started_s"] = started_s_;
    status["leader_since_s"] = tenure_.since_s();
    status["stopping"] = stopping_;
    const paxos::TlsStanding tls = replica_->tls_standing();
    status["certificate_ends_s"] = tls.ends_s;
    status["authority_ends_s"] = tls.authority_ends_s;
    status["certificate_problem"] = tls.problem;
    status["audit"] = audit_.json();
    status["counters"]["domain_restarts"] = restarts_;
    status["counters"]["repairs"] = repairs_.count();
    if (!given_up_.empty()) {
        status["message"] = given_up_;
        status["server"] = "refused";
        status["restarts_in_vain"] = given_up_;
    }
    return status;
}

}  // namespace crane::proxy
