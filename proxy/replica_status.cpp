// What craned says of itself on its control socket.
#include <sys/resource.h>

#include <nlohmann/json.hpp>

#include "proxy/clock.hpp"
#include "proxy/process_tree.hpp"
#include "proxy/replica.hpp"

namespace crane::proxy {

namespace {

constexpr char kFrozenMessage[] =
    "the server does not run at all, while another replica's goes on: is it stopped or traced, is its cgroup "
    "frozen, does its disk hang?";

std::string hex64(uint64_t value) {
    char text[17];
    snprintf(text, sizeof(text), "%016lx", value);
    return text;
}

double own_cpu_seconds() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    const auto seconds = [](const timeval& t) {
        return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
    };
    return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

nlohmann::json divergence_json(const DivergenceCheck& check, bool leads, size_t settings_differ) {
    nlohmann::json diverged = nlohmann::json::array();
    for (const auto& [replica, finding] : check.diverged()) {
        diverged.push_back({{"replica", replica}, {"index", finding.index}, {"exact", finding.exact}});
    }
    // Only the primary compares; what it did not compare is never called equal.
    return {{"checking", leads},
            {"compared", check.compared()},
            {"unchecked", check.unchecked()},
            {"last_compared_index", check.last_compared_index()},
            {"schedule_differences", check.schedule_differences()},
            {"settings_differ", settings_differ},
            {"diverged", diverged}};
}

}  // namespace

const char* Replica::server_state() const {
    switch (domain_.state()) {
        case DomainState::kStarting:
            return "starting";
        case DomainState::kRefused:
            return "refused";
        case DomainState::kExited:
            return "exited";
        case DomainState::kLost:
            return "starting";  // it is started anew
        case DomainState::kAttached:
            break;
    }
    for (const auto& port : listeners_.states()) {
        if (port.open) return "listening";
    }
    return "running";
}

nlohmann::json Replica::status() const {
    const timebubble::DomainStatus& domain = domain_.link().status();
    const paxos::NodeStats node = sequencer_.stats();
    const uint64_t admitted = history_.last() ? history_.last()->index : 0;
    const uint64_t decided = sequencer_.decided_index();
    const bool level = sequencer_.delivered_index() >= decided && pending_.empty() &&
                       (native_ || domain_.link().unadmitted() == 0);
    nlohmann::json listen = nlohmann::json::array();
    std::string message = domain_.message();
    for (const auto& port : listeners_.states()) {
        nlohmann::json one = {
            {"port", port.port},
            {"client", listeners_.address() + ":" + std::to_string(port.client_port)},
            {"open", port.open},
        };
        if (!port.error.empty()) {
            one["error"] = port.error;
            if (message.empty()) message = port.error;
        }
        listen.push_back(std::move(one));
    }
    if (message.empty()) message = log_.error();
    if (message.empty() && frozen_.frozen()) message = kFrozenMessage;
    if (message.empty()) message = stall_message_;
    if (message.empty()) message = clock_alarm_;
    if (message.empty()) message = server_message_;
    nlohmann::json peers = nlohmann::json::array();
    for (const auto& peer : sequencer_.peers()) {
        peers.push_back({{"replica", peer.id},
                         {"voter", peer.voter},
                         {"rejoining", peer.rejoining},
                         {"needs_checkpoint", peer.needs_checkpoint},
                         {"connected", peer.connected},
                         {"matched", peer.matched},
                         {"heard_ms_ago", peer.heard_ms_ago}});
    }
    nlohmann::json members = nlohmann::json::array();
    for (const auto& member : sequencer_.membership().members) {
        members.push_back({{"replica", member.id}, {"voter", member.voter}, {"address", member.address}});
    }
    return {
        {"replica", config_.replica_id},
        {"cluster", config_.cluster_id},
        {"role", sequencer_.role_name()},
        {"view", sequencer_.view_counter()},
        {"leader", sequencer_.leader()},
        {"ready", sequencer_.ready()},
        {"decided", decided},
        {"admitted", admitted},
        {"clock", domain.clock.load()},
        {"quiescent", domain.quiescent.load() != 0},
        {"connections", clients_.size()},
        {"open_connections", account_.connections()},
        {"memory",
         {{"input_bytes", account_.input_bytes()},
          {"output_bytes", ingress_.output_bytes()},
          {"lingering_bytes", pool_.lingering_bytes()},
          {"held_back_clients", ingress_.held_back()},
          {"undecided_input_bytes", clients_.held_bytes()}}},
        {"clients_elsewhere", ingress_.elsewhere()},
        {"waiting_clients", clients_.waiting()},
        {"output_hash", log_.chain().hex()},
        {"output_hash_at_admitted", history_.last() ? history_.last()->output.hex() : Hash128{}.hex()},
        {"schedule_hash", hex64(domain.schedule_hash.load())},
        {"lag", level ? 0 : decided - std::min(decided, admitted)},
        {"server", server_state()},
        {"listen", listen},
        {"pid", getpid()},
        {"server_pid", domain.server_pid.load()},
        {"init_pid", domain_.init_pid()},
        {"threads", domain.threads.load()},
        {"processes", domain.processes.load()},
        {"message", message},
        {"confinement_lost", domain_.weaknesses()},
        {"divergence", divergence_json(divergence_, sequencer_.leads(), settings_differ_.size())},
        {"clock_skew", clock_json()},
        {"peers", peers},
        {"membership",
         {{"index", sequencer_.membership_index()},
          {"decided", sequencer_.membership_index() <= decided},
          {"highest_id", sequencer_.membership().highest_id},
          {"members", members}}},
        {"counters",
         {{"syncs", node.syncs},
          {"batches", sequencer_.batches_seen()},
          {"batches_proposed", batches_proposed_},
          {"bubbles", domain.bubbles.load()},
          {"bubbles_proposed", bubbles_.bubbles()},
          {"calls", calls_proposed_},
          {"handovers", domain.handovers.load()},
          {"wakeups", domain.wakeups.load()},
          {"doorbells", domain.doorbells.load()},
          {"input_wakeups", domain_.link().wakeups()},
          {"output_records", log_.records()},
          {"output_bytes", log_.bytes()},
          {"client_bytes_in", pool_.bytes_in()},
          {"client_bytes_out", pool_.bytes_out()},
          {"view_changes", node.view_changes},
          {"messages_sent", node.messages_sent},
          {"messages_received", node.messages_received}}},
        {"loop",
         {{"longest_ms", lag_.longest().ns / 1'000'000},
          {"longest_held_up_by", lag_.longest().held_up_by},
          {"longest_s_ago",
           lag_.longest().ns == 0 ? 0 : (monotonic_ns() - lag_.longest().at_ns) / 1'000'000'000},
          {"last_ms", lag_.last().ns / 1'000'000},
          {"waited_for_cpu_ms", lag_.waited_for_cpu_ns() / 1'000'000}}},
        {"cpu_seconds", {{"craned", own_cpu_seconds()}, {"domain", tree_cpu_seconds(domain_.init_pid())}}},
    };
}

}  // namespace crane::proxy
