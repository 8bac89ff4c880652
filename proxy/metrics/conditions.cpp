#include "proxy/metrics/conditions.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace crane::proxy {

using nlohmann::json;

namespace {

/// As craned.log warns of it (paxos/link/tls.hpp).
constexpr int64_t kRenewalDays = 30;
constexpr int64_t kDaySeconds = 86400;

const json& list_in(const json& row, const char* key) {
    static const json nothing = json::array();
    const auto found = row.find(key);
    return found != row.end() && found->is_array() ? *found : nothing;
}

const json& table_in(const json& row, const char* key) {
    static const json nothing = json::object();
    const auto found = row.find(key);
    return found != row.end() && found->is_object() ? *found : nothing;
}

bool is_connected(const json& status, uint32_t replica) {
    const json& peers = list_in(status, "peers");
    return std::any_of(peers.begin(), peers.end(), [&](const json& peer) {
        return peer.value("replica", 0u) == replica && peer.value("connected", false);
    });
}

/// "replica 3 from this one, seen at log index 77"
std::string other_schedules(const json& divergence) {
    std::string out;
    for (const json& one : list_in(divergence, "schedule_differs"))
        out += (out.empty() ? "replica " : "; replica ") + std::to_string(one.value("replica", 0u)) +
               " from this one, seen at log index " + std::to_string(one.value("index", uint64_t{0}));
    return out;
}

/// Those that the replica has raised, as it names them.
void add_raised(const json& status, Alarms& out) {
    const json& texts = list_in(status, "alarms");
    const json& names = list_in(status, "alarm_names");
    for (size_t i = 0; i < std::min(texts.size(), names.size()); ++i) {
        const auto found = std::find(kAlarmNames.begin(), kAlarmNames.end(), names[i].get<std::string>());
        if (found == kAlarmNames.end()) continue;
        out.push_back({static_cast<AlarmKind>(found - kAlarmNames.begin()), texts[i].get<std::string>()});
    }
}

void add_cluster(const json& status, Alarms& out) {
    if (status.value("leader", 0u) == 0)
        out.push_back({AlarmKind::kNoPrimary, "no primary: nobody is known here to lead"});
    const VotersInReach voters = voters_in_reach(status);
    if (!voters.quorum()) out.push_back({AlarmKind::kNoQuorum, describe_no_quorum(voters)});
    std::string gone;
    for (const json& peer : list_in(status, "peers"))
        if (!peer.value("connected", false))
            gone += (gone.empty() ? "" : ", ") + std::to_string(peer.value("replica", 0u));
    if (!gone.empty()) out.push_back({AlarmKind::kPeerDown, "not connected here: replica " + gone});
}

void add_server(const json& status, Alarms& out) {
    const std::string server = status.value("server", "");
    if (!status.value("witness", false) && server != "listening" && server != "running")
        out.push_back({AlarmKind::kServerDown, "its server is " + server + ": " +
                                                   status.value("message", std::string("no reason known"))});
    if (std::string lost = status.value("restarts_in_vain", ""); !lost.empty())
        out.push_back({AlarmKind::kServerRestarts, std::move(lost)});
    std::string ports;
    for (const json& port : list_in(status, "listen"))
        if (port.contains("error"))
            ports += (ports.empty() ? "" : "; ") + port.value("client", "?") + ": " + port.value("error", "");
    if (!ports.empty()) out.push_back({AlarmKind::kPortNotServed, "clients cannot be served at " + ports});
    std::string lost;
    for (const json& one : list_in(status, "confinement_lost"))
        lost += (lost.empty() ? "" : "; ") + one.get<std::string>();
    if (!lost.empty())
        out.push_back({AlarmKind::kConfinementLost, "the server is not confined as it should be: " + lost});
}

void add_divergence(const json& status, Alarms& out) {
    const json& divergence = table_in(status, "divergence");
    std::string odd;
    for (const json& one : list_in(divergence, "diverged")) {
        const uint32_t replica = one.value("replica", 0u);
        odd += (odd.empty() ? "" : "; ") +
               (replica == 0 ? "replicas differ and no majority agrees"
                             : "replica " + std::to_string(replica) + " differs from the majority") +
               " at log index " + std::to_string(one.value("index", uint64_t{0}));
    }
    if (!odd.empty()) out.push_back({AlarmKind::kDiverged, odd});
    if (std::string other = other_schedules(divergence); !other.empty())
        out.push_back({AlarmKind::kScheduleDiffers,
                       "the schedule differs while the output is the same: " + std::move(other)});
    if (const auto count = divergence.value("settings_differ", uint64_t{0}); count > 0)
        out.push_back({AlarmKind::kSettingsDiffer,
                       std::to_string(count) + " replica(s) have other settings than this one"});
}

/// Of the one in use. Empty: it ends later.
std::string certificate_end(const json& status, int64_t now_s) {
    const int64_t ends_s = status.value("certificate_ends_s", int64_t{0});
    if (ends_s == 0 || ends_s - now_s >= kRenewalDays * kDaySeconds) return "";
    const int64_t days = (ends_s - now_s) / kDaySeconds;
    // One that ends with its authority is renewed for nothing.
    const std::string whose = status.value("authority_ends_s", int64_t{0}) == ends_s
                                  ? "the certificate of this replica's authority"
                                  : "this replica's certificate";
    return ends_s <= now_s ? whose + " has expired: its peers take no new links"
                           : whose + " expires in " + std::to_string(days) + " days";
}

void add_certificate(const json& status, int64_t now_s, Alarms& out) {
    std::string text = certificate_end(status, now_s);
    // The one in use stays so until they are right again, or craned ends.
    if (const std::string problem = status.value("certificate_problem", ""); !problem.empty())
        text += (text.empty() ? "" : "; ") +
                ("the certificate files are not used, and craned does not start with them: " + problem);
    if (!text.empty()) out.push_back({AlarmKind::kCertificate, std::move(text)});
}

void add_audit(const json& status, Alarms& out) {
    if (std::string differs = table_in(status, "audit").value("difference", ""); !differs.empty())
        out.push_back({AlarmKind::kAuditDiffers, "crane audit: " + std::move(differs)});
}

}  // namespace

std::string why_useless(const json& peer) {
    if (peer.value("needs_checkpoint", false))
        return "lacks what the others no longer have in their logs, and does not count before it has got a "
               "checkpoint from them";
    if (peer.value("rejoining", false))
        return "has lost its database, and does not count before it has got all of the log again";
    return "";
}

VotersInReach voters_in_reach(const json& status) {
    VotersInReach out;
    const json& peers = list_in(status, "peers");
    for (const json& member : list_in(table_in(status, "membership"), "members")) {
        if (!member.value("voter", false)) continue;
        ++out.all;
        const uint32_t replica = member.value("replica", 0u);
        if (replica != status.value("replica", 0u) && !is_connected(status, replica)) continue;
        const bool helps = std::none_of(peers.begin(), peers.end(), [&](const json& peer) {
            return peer.value("replica", 0u) == replica && !why_useless(peer).empty();
        });
        out.reached += helps;
        if (!helps) out.useless.push_back(replica);
    }
    return out;
}

std::string describe_no_quorum(const VotersInReach& voters) {
    std::string besides;
    for (const uint32_t replica : voters.useless)
        besides += (besides.empty() ? ", replica " : " and replica ") + std::to_string(replica);
    if (!besides.empty()) besides += " not being counted before it has the log";
    return "no quorum: " + std::to_string(voters.reached) + " of " + std::to_string(voters.all) +
           " voting replicas are connected" + besides + ", and nothing can be decided";
}

Alarms alarms_in(const json& status, int64_t now_s) {
    Alarms out;
    add_raised(status, out);
    add_cluster(status, out);
    add_server(status, out);
    add_divergence(status, out);
    add_certificate(status, now_s, out);
    add_audit(status, out);
    return out;
}

std::string why_unhealthy(const json& status) {
    if (!status.value("alive", true)) return status.value("error", "not running");
    if (status.value("stopping", false)) return "it is being stopped";
    std::string fenced = status.value("fenced", "");
    if (!fenced.empty()) return fenced;
    const std::string server = status.value("server", "");
    if (status.value("witness", false)) return "it is a witness: it has no server";
    if (server != "listening" && server != "running") return "its server is " + server;
    for (const json& port : list_in(status, "listen"))
        if (!port.value("open", true) || port.contains("error"))
            return "clients cannot be served at " + port.value("client", "?");
    if (status.value("input_stopped", false)) return "input is stopped: " + status.value("message", "");
    const uint32_t leader = status.value("leader", 0u);
    if (leader == 0) return "there is no primary";
    if (leader == status.value("replica", 0u)) {
        if (!status.value("ready", true)) return "it has not taken over yet";
        const VotersInReach voters = voters_in_reach(status);
        return voters.quorum() ? "" : describe_no_quorum(voters);
    }
    const std::string primary = "the primary, replica " + std::to_string(leader);
    if (!is_connected(status, leader)) return "it is not connected to " + primary;
    return status.value("primary_takes_clients", true) ? "" : primary + ", has not taken over yet";
}

std::string why_not_primary(const json& status) {
    std::string why = why_unhealthy(status);
    const uint32_t leader = status.value("leader", 0u);
    if (why.empty() && leader != status.value("replica", 0u))
        why = "it is a backup; the primary is replica " + std::to_string(leader);
    return why;
}

}  // namespace crane::proxy
