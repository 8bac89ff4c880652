// The replica's clocks: reads this host's for the timekeeper and carries its words.
#include <spdlog/spdlog.h>
#include <string.h>

#include <nlohmann/json.hpp>

#include "proxy/replica.hpp"

namespace crane::proxy {

namespace {

constexpr uint64_t kTellEveryNs = 1'000'000'000;
constexpr uint64_t kAlarmEveryNs = 60ULL * 1'000'000'000;
constexpr uint64_t kHandOverPauseNs = 30ULL * 1'000'000'000;

double seconds(int64_t ns) {
    return static_cast<double>(ns) / 1e9;
}

nlohmann::json seconds_or_null(const std::optional<int64_t>& ns) {
    return ns ? nlohmann::json(seconds(*ns)) : nlohmann::json();
}

}  // namespace

/// A new leader's first timestamp waits for this; the others then know the time, too.
void Replica::begin_time() {
    if (timekeeper_.begun() || !sequencer_.ready()) return;
    if (timekeeper_.begin(host_time(), sequencer_.batches_seen() == 0)) tell_time();
}

void Replica::tell_time() {
    told_time_ns_ = monotonic_ns();
    const LeaderTime time = timekeeper_.leader_time(host_time());
    std::string message = "T";
    message.append(reinterpret_cast<const char*>(&time), sizeof(time));
    for (const uint32_t peer : peers_up_) sequencer_.send(peer, message);
}

void Replica::on_leader_time(std::string_view said) {
    LeaderTime time{};
    if (said.size() != sizeof(time)) return;
    memcpy(&time, said.data(), sizeof(time));
    timekeeper_.follow(time, host_time());
}

void Replica::watch_clocks(uint64_t now_ns) {
    const HostTime now = host_time();
    timekeeper_.tick(now);
    if (timekeeper_.begun() && now_ns - told_time_ns_ >= kTellEveryNs) tell_time();
    std::string alarm = timekeeper_.alarm(now);
    if (alarm.empty() != clock_alarm_.empty() ||
        (!alarm.empty() && now_ns - clock_alarm_ns_ >= kAlarmEveryNs)) {
        clock_alarm_ns_ = now_ns;
        if (alarm.empty()) {
            spdlog::info("the clocks agree again");
        } else {
            spdlog::warn("{}", alarm);
        }
    }
    clock_alarm_ = std::move(alarm);
    hand_over_for_clock(now_ns);
}

/// To one whose clock is right: a majority's is, else this one's would not be wrong.
void Replica::hand_over_for_clock(uint64_t now_ns) {
    const HostTime now = host_time();
    if (!sequencer_.leads() || !timekeeper_.unfit_to_lead(now) ||
        now_ns - last_clock_hand_over_ns_ < kHandOverPauseNs)
        return;
    uint32_t best = 0;
    uint64_t matched = 0;
    for (const paxos::PeerStatus& peer : sequencer_.peers()) {
        const bool fit = peer.voter && peer.connected && !peer.rejoining && !peer.needs_checkpoint;
        if (!fit || !timekeeper_.fit_to_lead(peer.id, now) || (best != 0 && peer.matched <= matched))
            continue;
        best = peer.id;
        matched = peer.matched;
    }
    if (best == 0) return;
    last_clock_hand_over_ns_ = now_ns;
    spdlog::warn("this host's clock is wrong: replica {} is to lead", best);
    sequencer_.transfer(best);
}

nlohmann::json Replica::clock_json() const {
    const Timekeeper::Skew found = timekeeper_.skew(host_time());
    nlohmann::json others = nlohmann::json::array();
    for (const auto& [replica, by_ns] : found.others_ns)
        others.push_back({{"replica", replica}, {"host_s", seconds(by_ns)}});
    return {{"agreed", found.agreed},
            {"host_s", seconds_or_null(found.host_ns)},
            {"cluster_s", seconds_or_null(found.cluster_ns)},
            {"max_s", seconds(static_cast<int64_t>(config_.clock.max_skew_ns))},
            {"others", others},
            {"alarm", clock_alarm_}};
}

}  // namespace crane::proxy
