// What craned says of itself on its control socket.
#include <nlohmann/json.hpp>

#include "base/clock.hpp"
#include "proxy/members.hpp"
#include "proxy/process_tree.hpp"
#include "proxy/replica.hpp"
#include "proxy/trapped_calls.hpp"

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

nlohmann::json divergence_json(const DivergenceCheck& check, const FirstDifference& first, bool leads,
                               size_t settings_differ) {
    nlohmann::json diverged = nlohmann::json::array();
    for (const auto& [replica, finding] : check.diverged()) {
        diverged.push_back({{"replica", replica}, {"index", finding.index}, {"exact", finding.exact}});
    }
    nlohmann::json other_schedules = nlohmann::json::array();
    for (const auto& [replica, index] : check.schedule_differs())
        other_schedules.push_back({{"replica", replica}, {"index", index}});
    // Only the primary compares; what it did not compare is never called equal.
    return {{"checking", leads},
            {"compared", check.compared()},
            {"unchecked", check.unchecked()},
            {"last_compared_index", check.last_compared_index()},
            {"schedule_differences", check.schedule_differences()},
            {"schedule_differs", other_schedules},
            {"settings_differ", settings_differ},
            {"diverged", diverged},
            {"first_difference", first.json()}};
}

}  // namespace

const char* Replica::server_state() const {
    switch (domain_.state()) {
        case DomainState::kStarting:
            return "starting";
        case DomainState::kRefused:
            return "refused";
        case DomainState::kExited:
            return restarts_.wanted() || kept_unstarted() ? "restarting" : "exited";
        case DomainState::kLost:
            return "starting";  // it is started anew
        case DomainState::kAttached:
            break;
    }
    for (const auto& port : listeners_.states()) {
        if (port.open) return "listening";
    }
    // Where a server's past is replayed, that it does not listen yet does not say that it never does.
    return native_ || !config_.bubbles || catching_up_.done() ? "running" : "starting";
}

nlohmann::json Replica::listen_json() const {
    nlohmann::json listen = nlohmann::json::array();
    for (const auto& port : listeners_.states()) {
        nlohmann::json one = {
            {"port", port.port},
            {"protocol", port.protocol == 0 ? "tcp" : "udp"},
            {"client", listeners_.address() + ":" + std::to_string(port.client_port)},
            {"open", port.open},
        };
        if (!port.error.empty()) one["error"] = port.error;
        listen.push_back(std::move(one));
    }
    return listen;
}

/// What is most worth knowing, first of all why there is no server or why it serves nobody.
std::string Replica::message() const {
    std::string port_error;
    for (const auto& port : listeners_.states())
        if (port_error.empty()) port_error = port.error;
    const std::string frozen = frozen_.frozen() ? kFrozenMessage : "";
    for (const std::string& one : {domain_.message(), fenced_, disk_.alarm(config_.state_dir), port_error,
                                   log_.error(), frozen, stall_message_, clock_alarm_, server_message_})
        if (!one.empty()) return one;
    return "";
}

/// What is wrong now and wants somebody's hand.
Alarms Replica::alarms() const {
    Alarms out;
    const auto raise = [&](AlarmKind kind, std::string text) {
        if (!text.empty()) out.push_back({kind, std::move(text)});
    };
    if (!fenced_.empty()) raise(AlarmKind::kFenced, "FENCED: " + fenced_);
    if (repairs_.on_trial() && fenced_.empty())
        raise(AlarmKind::kOnTrial, "its output differed from the majority's at log index " +
                                       std::to_string(repairs_.place()) +
                                       ": it was made anew, and serves nobody until it is found equal");
    raise(AlarmKind::kCheckpoint, checkpoints_.error());
    raise(AlarmKind::kCheckpointFetch, shipping_.alarm());
    raise(AlarmKind::kImageFetch, image_shipping_.alarm());
    raise(AlarmKind::kDiskFull, disk_.alarm(config_.state_dir));
    raise(AlarmKind::kOutputLog, log_.error());
    if (frozen_.frozen()) raise(AlarmKind::kServerFrozen, kFrozenMessage);
    raise(AlarmKind::kServerStalled, stall_message_);
    raise(AlarmKind::kClocks, clock_alarm_);
    raise(AlarmKind::kDisowned, sequencer_.stats().disowned);
    if (client_limit_.reached())
        raise(AlarmKind::kClientsRefused,
              "clients are refused: " + std::to_string(client_limit_.max_clients()) +
                  " are all that the limit of open files leaves room for (ulimit -n)");
    if (account_.full() && ingress_.held_back() > 0)
        raise(AlarmKind::kClientsWait,
              "clients wait: the server has " + std::to_string(account_.connections()) +
                  " connections, as many as it may have; others are served when some of these leave");
    return out;
}

nlohmann::json Replica::counters_json() const {
    const timebubble::DomainStatus& domain = domain_.link().status();
    const paxos::NodeStats node = sequencer_.stats();
    return {{"syncs", node.syncs},
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
            {"messages_received", node.messages_received}};
}

nlohmann::json Replica::loop_json() const {
    return {{"longest_ms", lag_.longest().ns / 1'000'000},
            {"longest_held_up_by", lag_.longest().held_up_by},
            {"longest_s_ago",
             lag_.longest().ns == 0 ? 0 : (monotonic_ns() - lag_.longest().at_ns) / 1'000'000'000},
            {"last_ms", lag_.last().ns / 1'000'000},
            {"waited_for_cpu_ms", lag_.waited_for_cpu_ns() / 1'000'000}};
}

namespace {

/// Places in the server's code that read the time stamp counter by faulting, and how often they did.
nlohmann::json tsc_json(const timebubble::TscFaults& tsc) {
    auto sites = nlohmann::json::array();
    for (const timebubble::TscSite& site : tsc.sites) {
        if (site.at.load() == 0) continue;
        sites.push_back({{"address", hex64(site.at.load())},
                         {"faults", site.faults.load()},
                         {"patched", site.patched.load() != 0}});
    }
    return {{"faults", tsc.all.load()}, {"sites", sites}};
}

}  // namespace

nlohmann::json Replica::domain_json() const {
    const timebubble::DomainStatus& domain = domain_.link().status();
    return {
        {"clock", domain.clock.load()},
        {"quiescent", domain.quiescent.load() != 0},
        {"starved", domain_.link().starved()},
        {"schedule_hash", hex64(domain.schedule_hash.load())},
        {"server", server_state()},
        {"server_pid", domain.server_pid.load()},
        {"init_pid", domain_.init_pid()},
        {"base_image", domain_.image().empty() ? nlohmann::json()
                                               : nlohmann::json(checkpoint::kImagePrefix + domain_.image())},
        {"image_store", config_.image_store},
        {"core", cores_ && cores_->core() != Placement::kAnywhere ? nlohmann::json(cores_->core())
                                                                  : nlohmann::json()},
        {"tsc", tsc_json(domain_.link().tsc())},
        {"trapped_calls", config_.backstop ? trapped_calls_json(domain_.link().trapped()) : nlohmann::json()},
        {"threads", domain.threads.load()},
        {"processes", domain.processes.load()},
        {"cpu_seconds", {{"craned", own_cpu_seconds()}, {"domain", tree_cpu_seconds(domain_.init_pid())}}}};
}

nlohmann::json Replica::status() const {
    const uint64_t admitted = history_.last() ? history_.last()->index : 0;
    const uint64_t decided = sequencer_.decided_index();
    const bool level = sequencer_.delivered_index() >= decided && pending_.empty() &&
                       (native_ || domain_.link().unadmitted() == 0);
    const Alarms wrong = alarms();
    nlohmann::json out = {
        {"replica", config_.replica_id},
        {"cluster", config_.cluster_id},
        {"settings", hex64(settings_hash_)},
        {"role", sequencer_.role_name()},
        {"view", sequencer_.view_counter()},
        {"leader", sequencer_.leader()},
        {"rejoining", sequencer_.rejoining()},
        {"lacks_checkpoint", lacking_},
        {"ready", sequencer_.ready()},
        {"primary_takes_clients", sequencer_.leads() ? sequencer_.ready() : carrier_.carries()},
        {"stop_s", config_.stop_s},
        {"durability", config_.durable ? "disk" : "memory"},
        {"decided", decided},
        {"admitted", admitted},
        {"connections", clients_.size()},
        {"open_connections", account_.connections()},
        {"memory",
         {{"input_bytes", account_.input_bytes()},
          {"output_bytes", ingress_.output_bytes()},
          {"input_limit_bytes", config_.input_bytes},
          {"output_limit_bytes", config_.output_bytes},
          {"lingering_bytes", pool_.lingering_bytes()},
          {"held_back_clients", ingress_.held_back()},
          {"undecided_input_bytes", clients_.held_bytes()}}},
        {"clients_elsewhere", ingress_.elsewhere()},
        {"waiting_clients", clients_.waiting()},
        {"max_clients", client_limit_.max_clients()},
        {"output_hash", log_.chain().hex()},
        {"output_hash_at_admitted", history_.last() ? history_.last()->output.hex() : Hash128{}.hex()},
        {"unadmitted", pending_.size() + (native_ ? 0 : domain_.link().unadmitted())},
        {"output_held", output_held_},
        {"lag", level ? 0 : decided - std::min(decided, admitted)},
        {"listen", listen_json()},
        {"generation", generation_.fed},
        {"server_ends", server_ends_},
        {"last_end", last_end_},
        {"pid", getpid()},
        {"message", message()},
        {"fenced", fenced_},
        {"fit_to_lead", fit_to_lead_},
        {"input_stopped", disk_.low() && (sequencer_.leads() || disk_.critical())},
        {"alarms", alarm_texts(wrong)},
        {"alarm_names", alarm_names(wrong)},
        {"confinement_lost", domain_.weaknesses()},
        {"clock_skew", clock_json()},
        {"base", {{"index", decided_base_.index}, {"replica", decided_base_.replica}}},
        {"divergence",
         divergence_json(divergence_, difference_, sequencer_.leads(), settings_differ_.size())},
        {"checkpoint",
         checkpoints_.json(sequencer_.common_checkpoint(), image_rounds_.wanted() || is_at_image())},
        {"checkpoint_fetch", shipping_.status()},
        {"image_fetch", image_shipping_.status()},
        {"first_log_index", sequencer_.first_log_index()},
        {"peers", peers_json(sequencer_, witnesses_)},
        {"membership", membership_json(sequencer_)},
        {"datagrams", datagrams_.json()},
        {"egress", egress_.json()},
        {"counters", counters_json()},
        {"loop", loop_json()},
        {"pace",
         {{"shut_percent", pace_.shut_percent()},
          {"waits_for", pace_.waits_for()},
          {"behind_ms", pace_.behind_ns() / 1'000'000}}},
        {"latency", latency_json(sequencer_)},
        {"disk", disk_json(disk_, config_.disk_reserve_bytes)},
    };
    out.update(domain_json());
    return out;
}

}  // namespace crane::proxy
