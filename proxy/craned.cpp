#include "proxy/craned.hpp"

#include <event2/event.h>
#include <signal.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/clock.hpp"
#include "paxos/core/storage.hpp"
#include "proxy/daemon_log.hpp"
#include "proxy/replica.hpp"
#include "proxy/witness.hpp"
#include "proxy/worker.hpp"

namespace crane::proxy {

namespace {

constexpr uint64_t kSecondNs = 1'000'000'000;
constexpr uint64_t kMaxPauseNs = 300 * kSecondNs;
constexpr uint64_t kHealthyNs = 120 * kSecondNs;  ///< a domain that lived so long was well
constexpr size_t kTellAfter = 5;
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
      certificate_(config_.tls.certificate) {
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
    if (!config_.metrics_listen.empty())
        observation_ =
            std::make_unique<Observation>(base_, config_.metrics_listen, [this] { return look(); });
    make_replica();
    service_->ready();
}

Craned::~Craned() {
    observation_.reset();
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
        [this] { on_lost(); }, [this](const std::string& reason) { fatal(reason); },
        [this](uint64_t index) {
            begin_stop("removed from the cluster by log entry " + std::to_string(index));
        },
        [this](const nlohmann::json& request) { return order(request); }};
    if (config_.witness) {
        replica_ = std::make_unique<Witness>(base_, config_, timekeeper_, std::move(events));
    } else {
        replica_ =
            std::make_unique<Replica>(base_, config_, timekeeper_, repairs_, losses_, std::move(events));
    }
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
    exit_status_ = replica_ && replica_->disowned() ? kExitDisowned : 1;
    done_ = true;
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
                    "/stderr and craned.log";
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
    } catch (const std::exception& error) {
        fatal(error.what());
    }
}

std::string Craned::change_membership(const nlohmann::json& request) {
    const std::map<std::string, paxos::ChangeKind> kinds = {{"add", paxos::ChangeKind::kAdd},
                                                            {"promote", paxos::ChangeKind::kPromote},
                                                            {"remove", paxos::ChangeKind::kRemove}};
    const auto kind = kinds.find(request.value("do", ""));
    if (kind == kinds.end()) return "member needs \"do\": add, promote or remove";
    if (!request.contains("id") || !request["id"].is_number_unsigned() || request["id"] > kMaxReplicaId)
        return "member needs \"id\": a number up to " + std::to_string(kMaxReplicaId);
    return replica_->change_membership({kind->second, request["id"], request.value("address", "")});
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

nlohmann::json Craned::look() {
    nlohmann::json status = replica_->status();
    status["version"] = CRANE_VERSION;
    status["started_s"] = started_s_;
    status["stopping"] = stopping_;
    status["certificate_ends_s"] = certificate_.seconds();
    status["counters"]["domain_restarts"] = restarts_;
    status["counters"]["repairs"] = repairs_.count();
    if (!given_up_.empty()) {
        status["message"] = given_up_;
        status["server"] = "refused";
        status["restarts_in_vain"] = given_up_;
    }
    return status;
}

/// What only the primary can do; a backup hands it on and says where the answer will be.
nlohmann::json Craned::order(const nlohmann::json& request) {
    const std::string command = request.value("cmd", "");
    std::string error;
    if (command == "member") {
        error = change_membership(request);
    } else if (command == "restart") {
        const std::string name = request.value("image", "");
        const auto image = checkpoint::image_sum_in(name);
        error = !name.empty() && !image ? "\"" + name + "\" is no base image's name (sha256:…)"
                                        : replica_->restart_server(image);
    } else if (command == "checkpoint") {
        error = replica_->take_checkpoint();
    } else {
        const bool transfer = command == "transfer";
        const char* key = transfer ? "to" : "signal";
        if (!request.contains(key) || !request[key].is_number_unsigned()) {
            return {{"error", command + " needs \"" + key + "\": a number"}};
        }
        error = transfer ? replica_->transfer(request[key]) : replica_->signal_server(request[key]);
    }
    if (error.empty()) return {{"ok", true}};
    return {{"error", error}, {"fetching", command == "restart" && replica_->fetches_image()}};
}

nlohmann::json Craned::hand_on(const nlohmann::json& request) {
    const uint32_t primary = replica_->leader();
    const uint64_t number = primary != 0 ? replica_->mail().ask(primary, request) : 0;
    if (number == 0) {
        return {{"error", primary == 0 ? std::string("there is no primary now; try again")
                                       : "the primary, replica " + std::to_string(primary) +
                                             ", is not connected; try again"}};
    }
    return {{"ok", true}, {"forwarded", primary}, {"answer", number}};
}

nlohmann::json Craned::answer(const nlohmann::json& request) const {
    if (!request.contains("id") || !request["id"].is_number_unsigned())
        return {{"error", "answer needs \"id\": a number"}};
    const std::string reply = replica_->mail().answer(request["id"]);
    if (reply.empty()) return {{"pending", true}};
    const nlohmann::json parsed = nlohmann::json::parse(reply, nullptr, false);
    return parsed.is_object() ? parsed : nlohmann::json{{"error", "the primary's answer cannot be read"}};
}

nlohmann::json Craned::set_level(const nlohmann::json& request) {
    const std::string level = request.value("level", "");
    const auto known = spdlog::level::from_str(level);
    if (known == spdlog::level::off) {
        return {{"error", "log-level needs \"level\": trace, debug, info, warning or error"}};
    }
    spdlog::set_level(known);
    return {{"ok", true}};
}

nlohmann::json Craned::handle(const nlohmann::json& request) {
    const std::string command = request["cmd"];
    if (command == "status") return status();
    if (command == "answer") return answer(request);
    if (command == "log-level") return set_level(request);
    if (command == "transfer" || command == "signal" || command == "restart" || command == "checkpoint" ||
        command == "member")
        return replica_->leads() ? order(request) : hand_on(request);
    if (command == "remake") {
        const std::string error =
            stopping_ || lost_ns_ != 0 ? "its server is being started" : replica_->remake_server();
        return error.empty() ? nlohmann::json{{"ok", true}} : nlohmann::json{{"error", error}};
    }
    if (command == "stop") {
        // A moment later, so that the answer still leaves.
        event_base_once(
            base_, -1, EV_TIMEOUT,
            [](int, short, void* self) {
                static_cast<Craned*>(self)->begin_stop("asked to on the control socket");
            },
            this, &kStopDelay);
        return {{"ok", true}};
    }
    return {
        {"error", "no command \"" + command +
                      "\"; there are status, stop, transfer, member, signal, restart, checkpoint, remake, "
                      "answer and log-level"}};
}

}  // namespace crane::proxy
