#include "proxy/metrics/families.hpp"

#include <prometheus/text_serializer.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "proxy/metrics/conditions.hpp"

namespace crane::proxy {

using nlohmann::json;
using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

namespace {

using Labels = std::vector<ClientMetric::Label>;

/// What a second has of them. Divided by: a multiplication would leave 0.0001 s as 9.99…e-05.
constexpr double kMs = 1e3, kUs = 1e6;

/// A metric that is one number of the status.
struct Scalar {
    const char* name;
    MetricType type;
    const char* help;
    const char* where;            ///< JSON pointer
    double unit = 1;              ///< it is divided by this
    const char* label = nullptr;  ///< "name=value"; rows of one metric follow each other
};

constexpr MetricType kGauge = MetricType::Gauge;
constexpr MetricType kCounter = MetricType::Counter;

// In the order of a request's way: clients, batches, consensus, admission, the server, its output; then the
// rest.
constexpr Scalar kScalars[] = {
    {"crane_clients", kGauge, "Clients attached to this replica.", "/connections"},
    {"crane_clients_max", kGauge, "Clients that the limit of open files leaves room for.", "/max_clients"},
    {"crane_clients_waiting", kGauge, "Clients of this replica whose connect is not decided yet.",
     "/waiting_clients"},
    {"crane_clients_held_back", kGauge, "Clients that the server has no place for yet (on the primary).",
     "/memory/held_back_clients"},
    {"crane_clients_elsewhere", kGauge, "Clients of other replicas (on the primary).", "/clients_elsewhere"},
    {"crane_server_connections", kGauge, "Connections that the server has, whichever replica they came by.",
     "/open_connections"},
    {"crane_client_received_bytes_total", kCounter, "Bytes that clients of this replica have sent.",
     "/counters/client_bytes_in"},
    {"crane_client_sent_bytes_total", kCounter, "Bytes sent to clients of this replica.",
     "/counters/client_bytes_out"},
    {"crane_datagrams_received_total", kCounter, "Clients' datagrams that came to this replica.",
     "/datagrams/received"},
    {"crane_datagrams_sent_total", kCounter, "Datagrams sent to clients of this replica.", "/datagrams/sent"},
    {"crane_datagrams_dropped_total", kCounter, "Datagrams that found no primary, no room, or no way out.",
     "/datagrams/dropped"},
    {"crane_datagrams_unasked_total", kCounter, "Datagrams of the server for those who had sent none.",
     "/datagrams/unasked"},
    {"crane_egress_open", kGauge, "Connections of the server to the outside that this replica holds.",
     "/egress/open"},
    {"crane_egress_connecting", kGauge, "Connections to the outside on their way.", "/egress/connecting"},
    {"crane_egress_made_total", kCounter, "Connections to the outside that were made.", "/egress/made"},
    {"crane_egress_failed_total", kCounter, "Connections to the outside that failed.", "/egress/failed"},
    {"crane_egress_refused_total", kCounter, "Connections to the outside that [egress] allow does not name.",
     "/egress/refused"},
    {"crane_egress_names_total", kCounter, "Names of hosts that were looked up for the server.",
     "/egress/names"},
    {"crane_calls_proposed_total", kCounter, "Client socket calls that this replica proposed as primary.",
     "/counters/calls"},
    {"crane_batches_proposed_total", kCounter, "Batches that this replica proposed as primary.",
     "/counters/batches_proposed"},
    {"crane_bubbles_proposed_total", kCounter, "Time bubbles that this replica proposed as primary.",
     "/counters/bubbles_proposed"},
    {"crane_batches_total", kCounter, "Decided batches, time bubbles included.", "/counters/batches"},
    {"crane_decided_index", kGauge, "Last log entry known to be decided.", "/decided"},
    {"crane_first_log_index", kGauge, "Oldest log entry that is kept.", "/first_log_index"},
    {"crane_admitted_index", kGauge, "Last log entry that the server was given.", "/admitted"},
    {"crane_admission_lag_entries", kGauge, "Decided log entries that the server was not given yet.", "/lag"},
    {"crane_pace_shut_percent", kGauge,
     "How much of its time the primary does not propose, for others' sake.", "/pace/shut_percent"},
    {"crane_unadmitted_batches", kGauge, "Batches on their way into the server.", "/unadmitted"},
    {"crane_bubbles_total", kCounter, "Batches without a client call that the server was given.",
     "/counters/bubbles"},
    {"crane_logical_clock_ticks_total", kCounter, "Scheduled operations of this server.", "/clock"},
    {"crane_handovers_total", kCounter, "Turns passed from one thread to another.", "/counters/handovers"},
    {"crane_thread_wakeups_total", kCounter, "Hand-overs that woke a sleeping thread.", "/counters/wakeups"},
    {"crane_doorbells_total", kCounter, "System calls of the server's to wake craned.",
     "/counters/doorbells"},
    {"crane_input_wakeups_total", kCounter, "System calls of craned's to wake the server.",
     "/counters/input_wakeups"},
    {"crane_quiescent", kGauge, "1: every thread of the server waits.", "/quiescent"},
    {"crane_server_threads", kGauge, "Threads of the server.", "/threads"},
    {"crane_server_processes", kGauge, "Processes of the server.", "/processes"},
    {"crane_trapped_tsc_reads_total", kCounter, "Reads of the time stamp counter that were trapped.",
     "/tsc/faults"},
    {"crane_trapped_calls_total", kCounter, "System calls past the C library's functions that were trapped.",
     "/trapped_calls/all"},
    {"crane_output_records_total", kCounter, "Records in the output log.", "/counters/output_records"},
    {"crane_output_log_bytes_total", kCounter, "Bytes of server output in the output log.",
     "/counters/output_bytes"},
    {"crane_output_held", kGauge, "1: output waits for the output log's disk.", "/output_held"},
    {"crane_memory_bytes", kGauge, "What is held for clients, beyond what each connection always has.",
     "/memory/input_bytes", 1, "what=input"},
    {"crane_memory_bytes", kGauge, "", "/memory/output_bytes", 1, "what=output"},
    {"crane_memory_bytes", kGauge, "", "/memory/lingering_bytes", 1, "what=lingering"},
    {"crane_memory_bytes", kGauge, "", "/memory/undecided_input_bytes", 1, "what=undecided"},
    {"crane_memory_limit_bytes", kGauge, "How much of that may be held.", "/memory/input_limit_bytes", 1,
     "what=input"},
    {"crane_memory_limit_bytes", kGauge, "", "/memory/output_limit_bytes", 1, "what=output"},
    {"crane_view", kGauge, "Number of the view: each election makes a new one.", "/view"},
    {"crane_view_changes_total", kCounter, "Views entered by this replica.", "/counters/view_changes"},
    {"crane_leader", kGauge, "Replica that leads, as far as this one knows; 0: none is known.", "/leader"},
    {"crane_leader_timestamp_seconds", kGauge,
     "Since when that replica leads, as this one learned it; 0: none is known.", "/leader_since_s"},
    {"crane_ready", kGauge, "1: this replica leads and proposes.", "/ready"},
    {"crane_fit_to_lead", kGauge, "1: nothing keeps this replica from leading.", "/fit_to_lead"},
    {"crane_input_stopped", kGauge, "1: no input is taken, for want of disk.", "/input_stopped"},
    {"crane_messages_sent_total", kCounter, "Messages to other replicas.", "/counters/messages_sent"},
    {"crane_messages_received_total", kCounter, "Messages from other replicas.",
     "/counters/messages_received"},
    {"crane_server_generation", kGauge, "Number of the server: each start by decision is a new one.",
     "/generation"},
    {"crane_server_ends_total", kCounter, "Servers that ended, by themselves or by decision.",
     "/server_ends"},
    {"crane_domain_restarts_total", kCounter, "Servers of this replica alone that were made anew.",
     "/counters/domain_restarts"},
    {"crane_repairs_total", kCounter, "Times this replica was made anew since its output differed.",
     "/counters/repairs"},
    {"crane_divergence_checking", kGauge, "1: this replica compares the others with itself.",
     "/divergence/checking"},
    {"crane_output_comparisons_total", kCounter, "Outputs of other replicas that were compared.",
     "/divergence/compared"},
    {"crane_output_comparisons_missed_total", kCounter, "Outputs that could not be compared.",
     "/divergence/unchecked"},
    {"crane_output_compared_index", kGauge, "Log entry up to which outputs were compared last.",
     "/divergence/last_compared_index"},
    {"crane_schedule_differences_total", kCounter, "Comparisons with equal output and another schedule.",
     "/divergence/schedule_differences"},
    {"crane_settings_differ_replicas", kGauge, "Replicas with other settings than this one.",
     "/divergence/settings_differ"},
    {"crane_checkpoint_index", kGauge, "Log entry of the newest checkpoint here; 0: none.",
     "/checkpoint/index"},
    {"crane_checkpoint_majority_index", kGauge, "Log entry whose checkpoint a majority holds.",
     "/checkpoint/majority_index"},
    {"crane_checkpoint_bytes", kGauge, "Size of the newest checkpoint here.", "/checkpoint/bytes"},
    {"crane_checkpoint_timestamp_seconds", kGauge, "When it came to be here, since 1970; 0: none.",
     "/checkpoint/since_s"},
    {"crane_checkpoint_log_bytes", kGauge, "What was decided since the newest checkpoint.",
     "/checkpoint/log_bytes_since"},
    {"crane_checkpoint_fetched_bytes", kGauge, "Of a checkpoint that is being fetched: what is here.",
     "/checkpoint_fetch/bytes"},
    {"crane_checkpoint_fetch_bytes", kGauge, "Of a checkpoint that is being fetched: its size.",
     "/checkpoint_fetch/total"},
    {"crane_clock_agreed", kGauge, "1: a majority of the hosts' clocks agree.", "/clock_skew/agreed"},
    {"crane_clock_skew_seconds", kGauge, "By how much a clock is ahead of real time.", "/clock_skew/host_s",
     1, "clock=host"},
    {"crane_clock_skew_seconds", kGauge, "", "/clock_skew/cluster_s", 1, "clock=cluster"},
    {"crane_clock_skew_limit_seconds", kGauge, "By how much clocks may differ (max_skew_ms).",
     "/clock_skew/max_s"},
    {"crane_disk_free_bytes", kGauge, "Free where the state directory is.", "/disk/free_bytes"},
    {"crane_disk_free_files", kGauge,
     "How many more files can be made there; absent where nothing bounds it.", "/disk/free_files"},
    {"crane_disk_reserve_bytes", kGauge, "With less free input stops.", "/disk/reserve_bytes"},
    {"crane_certificate_expiry_timestamp_seconds", kGauge,
     "When this replica's certificate ends, or its authority's, if that is earlier.", "/certificate_ends_s"},
    {"crane_audit_equal_records", kGauge, "Output records up to which crane audit found all replicas equal.",
     "/audit/records"},
    {"crane_audit_timestamp_seconds", kGauge, "When crane audit last told what it found.", "/audit/told_s"},
    {"crane_loop_late_seconds", kGauge, "How late craned's loop was.", "/loop/last_ms", kMs, "when=last"},
    {"crane_loop_late_seconds", kGauge, "", "/loop/longest_ms", kMs, "when=longest"},
    {"crane_loop_cpu_wait_seconds_total", kCounter, "How long craned's loop waited for a CPU.",
     "/loop/waited_for_cpu_ms", kMs},
    {"crane_cpu_seconds_total", kCounter, "CPU time used.", "/cpu_seconds/craned", 1, "by=craned"},
    {"crane_cpu_seconds_total", kCounter, "", "/cpu_seconds/domain", 1, "by=server"},
    {"process_start_time_seconds", kGauge, "When craned was started, since 1970.", "/started_s"},
};

/// Nothing: it is not there, or not known.
std::optional<double> number_in(const json& status, const char* where) {
    const json::json_pointer pointer(where);
    if (!status.contains(pointer)) return std::nullopt;
    const json& found = status.at(pointer);
    if (found.is_boolean()) return found.get<bool>() ? 1 : 0;
    if (!found.is_number()) return std::nullopt;
    return found.get<double>();
}

class Families {
  public:
    /// `help` of a metric's first row counts.
    void add(const std::string& name, MetricType type, const std::string& help, double value,
             Labels labels = {}) {
        ClientMetric one;
        one.label = std::move(labels);
        (type == kCounter ? one.counter.value : one.gauge.value) = value;
        family(name, type, help).metric.push_back(std::move(one));
    }
    void add_histogram(const std::string& name, const std::string& help, const json& all) {
        if (!all.is_object()) return;
        ClientMetric one;
        one.histogram.sample_count = all["count"];
        one.histogram.sample_sum = all["sum_us"].get<double>() / kUs;
        uint64_t so_far = 0;
        for (const json& bucket : all["buckets"]) {
            so_far += bucket[1].get<uint64_t>();
            if (bucket[0].is_null()) continue;  // the serializer adds it
            one.histogram.bucket.push_back({so_far, bucket[0].get<double>() / kUs});
        }
        family(name, MetricType::Histogram, help).metric.push_back(std::move(one));
    }
    std::vector<MetricFamily> take() { return std::move(all_); }

  private:
    MetricFamily& family(const std::string& name, MetricType type, const std::string& help) {
        if (all_.empty() || all_.back().name != name) all_.push_back({name, help, type, {}});
        return all_.back();
    }
    std::vector<MetricFamily> all_;
};

void add_scalars(const json& status, Families& out) {
    for (const Scalar& one : kScalars) {
        const auto value = number_in(status, one.where);
        if (!value) continue;
        Labels labels;
        if (one.label) {
            const std::string_view text = one.label;
            const size_t at = text.find('=');
            labels.push_back({std::string(text.substr(0, at)), std::string(text.substr(at + 1))});
        }
        out.add(one.name, one.type, one.help, *value / one.unit, std::move(labels));
    }
}

/// One row for each state that there is, so that a change leaves none behind.
void add_states(const char* name, const char* help, const char* label, const std::string& now,
                std::initializer_list<const char*> states, Families& out) {
    for (const char* state : states) out.add(name, kGauge, help, now == state, {{label, state}});
}

std::string replica_of(const json& row) {
    return std::to_string(row.value("replica", 0u));
}

const json& rows_in(const json& status, const char* where) {
    static const json nothing = json::array();
    const json::json_pointer pointer(where);
    return status.contains(pointer) && status.at(pointer).is_array() ? status.at(pointer) : nothing;
}

void add_who(const json& status, Families& out) {
    out.add("crane_replica_info", kGauge, "Who this replica is; always 1.", 1,
            {{"cluster_id", status.value("cluster", "")},
             {"replica", replica_of(status)},
             {"version", status.value("version", "")},
             {"durability", status.value("durability", "")},
             {"witness", status.value("witness", false) ? "true" : "false"}});
    add_states("crane_role", "1: this is the replica's role.", "role", status.value("role", ""),
               {"primary", "backup", "candidate", "learner", "removed"}, out);
    add_states("crane_server_state", "1: this is the server's state.", "state", status.value("server", ""),
               {"starting", "running", "listening", "restarting", "exited", "refused", "witness"}, out);
    out.add("crane_serving", kGauge, "1: clients are served here (/health/serving).",
            why_unhealthy(status).empty());
    for (const json& port : rows_in(status, "/listen"))
        out.add("crane_port_open", kGauge, "1: clients are let in.", port.value("open", false),
                {{"port", std::to_string(port.value("port", 0u))}, {"client", port.value("client", "")}});
}

void add_members(const json& status, Families& out) {
    const VotersInReach voters = voters_in_reach(status);
    out.add("crane_voters", kGauge, "Replicas that vote.", static_cast<double>(voters.all));
    out.add("crane_voters_in_reach", kGauge,
            "Of them, those that this replica has a link to, with itself; the primary leaves out whoever "
            "acknowledges nothing before it has got the log.",
            static_cast<double>(voters.reached));
    const json& peers = rows_in(status, "/peers");
    for (const json& peer : peers)
        out.add("crane_peer_connected", kGauge,
                "1: there is a link to that replica; to the primary it answers, too.",
                peer.value("connected", false), {{"replica", replica_of(peer)}});
    if (status.value("role", "") != "primary") return;  // only the primary hears of them
    for (const json& peer : peers)
        out.add("crane_peer_matched_index", kGauge, "Last log entry that the replica is known to have.",
                peer.value("matched", 0.0), {{"replica", replica_of(peer)}});
    for (const json& peer : peers)
        out.add("crane_peer_silence_seconds", kGauge, "How long nothing was heard of the replica.",
                peer.value("heard_ms_ago", 0.0) / kMs, {{"replica", replica_of(peer)}});
    for (const json& peer : peers)
        out.add("crane_peer_needs_checkpoint", kGauge, "1: what the replica lacks is cut from the log.",
                peer.value("needs_checkpoint", false), {{"replica", replica_of(peer)}});
    for (const json& other : rows_in(status, "/clock_skew/others"))
        out.add("crane_peer_clock_skew_seconds", kGauge, "By how much the replica's host is ahead.",
                other.value("host_s", 0.0), {{"replica", replica_of(other)}});
}

void add_divergence(const json& status, Families& out) {
    const json& diverged = rows_in(status, "/divergence/diverged");
    out.add("crane_diverged_replicas", kGauge, "Replicas whose output differs, as far as this one knows.",
            static_cast<double>(diverged.size()));
    for (const json& one : diverged)
        out.add("crane_diverged_index", kGauge,
                "Log entry at which it was first seen; replica 0: no majority.", one.value("index", 0.0),
                {{"replica", replica_of(one)}});
    out.add("crane_schedule_differs_replicas", kGauge,
            "Replicas that run differently from this one now, with equal output.",
            static_cast<double>(rows_in(status, "/divergence/schedule_differs").size()));
    out.add("crane_fenced", kGauge, "1: this replica differs and serves nobody.",
            !status.value("fenced", "").empty());
}

/// All of them, whether raised or not: what is 0 was looked at.
void add_alarms(const json& status, int64_t now_s, Families& out) {
    const Alarms raised = alarms_in(status, now_s);
    for (const std::string_view name : kAlarmNames) {
        bool is_raised = false;
        for (const Alarm& one : raised) is_raised |= alarm_name(one.kind) == name;
        out.add("crane_alarm", kGauge, "1: the alarm of this name is raised; see docs/alarms.md.", is_raised,
                {{"alarm", std::string(name)}});
    }
}

}  // namespace

std::vector<MetricFamily> metric_families(const json& status, int64_t now_s) {
    Families out;
    add_who(status, out);
    add_scalars(status, out);
    const json latency = status.value("latency", json::object());
    out.add_histogram("crane_consensus_latency_seconds",
                      "From a batch's proposal by this primary to its being decided.",
                      latency.value("consensus", json()));
    out.add_histogram("crane_log_sync_duration_seconds",
                      "How long it took to make log entries durable (with durability memory: to write them).",
                      latency.value("sync", json()));
    add_members(status, out);
    add_divergence(status, out);
    add_alarms(status, now_s, out);
    return out.take();
}

std::string metrics_text(const json& status, int64_t now_s) {
    return prometheus::TextSerializer().Serialize(metric_families(status, now_s));
}

}  // namespace crane::proxy
