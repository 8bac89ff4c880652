#include "proxy/tool/cluster_health.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "proxy/metrics/conditions.hpp"

namespace crane::proxy {

using nlohmann::json;

namespace {

/// In log entries: seconds of a replay.
constexpr uint64_t kMuchBehind = 5000;

bool is_alive(const json& row) {
    return row.value("alive", false);
}

std::string name(uint32_t replica) {
    return "replica " + std::to_string(replica);
}

const json& list_in(const json& row, const char* key) {
    static const json nothing = json::array();
    const auto found = row.find(key);
    return found != row.end() && found->is_array() ? *found : nothing;
}

/// The row whose view is the newest of those that know a leader: what it says of the cluster is most recent.
const json* newest(const json& rows) {
    const json* best = nullptr;
    for (const json& row : rows) {
        if (!is_alive(row) || row.value("leader", 0u) == 0) continue;
        if (!best || row.value("view", uint64_t{0}) > best->value("view", uint64_t{0})) best = &row;
    }
    return best;
}

const json& members_of(const json& row) {
    static const json nothing = json::array();
    const auto found = row.find("membership");
    return found != row.end() ? list_in(*found, "members") : nothing;
}

/// The primary's row, if it is here.
const json* primary_of(const json& rows, const json& best) {
    for (const json& row : rows)
        if (is_alive(row) && row.value("replica", 0u) == best.value("leader", 0u) &&
            row.value("view", uint64_t{0}) == best.value("view", uint64_t{0}))
            return &row;
    return nullptr;
}

/// Voters that look as if they could take another's place. Only the primary knows them.
void judge_voters(const json& primary, ClusterHealth& out) {
    for (const json& peer : list_in(primary, "peers"))
        if (const std::string why = why_useless(peer); peer.value("voter", false) && !why.empty())
            out.problems.push_back(name(peer.value("replica", 0u)) + " " + why +
                                   ": stop no other replica before");
}

void judge_quorum(const json& rows, const json* primary, ClusterHealth& out) {
    VotersInReach most;
    for (const json& row : rows) {
        if (!is_alive(row) || (primary && &row != primary)) continue;
        VotersInReach here = voters_in_reach(row);
        if (here.reached >= most.reached) most = std::move(here);
    }
    if (!most.quorum()) out.problems.push_back(describe_no_quorum(most));
}

void judge_leadership(const json& rows, ClusterHealth& out) {
    const json* best = newest(rows);
    const json* primary = best ? primary_of(rows, *best) : nullptr;
    if (best) {
        out.primary = best->value("leader", 0u);
        // The primary's own word counts: others may have come later.
        out.primary_since_s = (primary ? primary : best)->value("leader_since_s", int64_t{0});
        out.primary_says_so = primary != nullptr;
        for (const json& member : members_of(*best))
            if (member.value("replica", 0u) == out.primary) out.primary_address = member.value("address", "");
    } else {
        out.problems.push_back("no primary: nobody is known here to lead");
    }
    judge_quorum(rows, primary, out);
    if (primary) judge_voters(*primary, out);
}

/// Members that do not run here and that nobody here is connected to.
void judge_missing(const json& rows, ClusterHealth& out) {
    std::set<uint32_t> members, present;
    bool any_members = false;
    for (const json& row : rows) {
        if (!is_alive(row)) continue;
        present.insert(row.value("replica", 0u));
        for (const json& member : members_of(row)) members.insert(member.value("replica", 0u));
        any_members |= !members_of(row).empty();
        for (const json& peer : list_in(row, "peers"))
            if (peer.value("connected", false)) present.insert(peer.value("replica", 0u));
    }
    std::set<uint32_t> said;
    for (const json& row : rows) {
        const uint32_t replica = row.value("replica", 0u);
        // The folder of one that was removed from the cluster stays behind.
        if (is_alive(row) || (any_members && members.count(replica) == 0)) continue;
        out.problems.push_back((replica ? name(replica) : "the replica") +
                               " is down: " + row.value("error", ""));
        said.insert(replica);
    }
    for (const uint32_t replica : members)
        if (!present.count(replica) && !said.count(replica))
            out.problems.push_back(name(replica) + " is not connected to any replica here");
}

/// Left alone a witness decides what nobody executes.
void judge_servers(const json& rows, ClusterHealth& out) {
    std::set<uint32_t> members, witnesses;
    for (const json& row : rows) {
        if (!is_alive(row)) continue;
        for (const json& member : members_of(row)) members.insert(member.value("replica", 0u));
        if (row.value("witness", false)) witnesses.insert(row.value("replica", 0u));
    }
    if (!members.empty() && std::ranges::includes(witnesses, members))
        out.problems.push_back(
            "no member has a server, so nobody is served: stop the witness, give it a configuration with a "
            "server and without witness = true, and start it");
}

void judge_divergence(const json& row, ClusterHealth& out) {
    const auto found = row.find("divergence");
    if (found == row.end()) return;
    for (const json& one : list_in(*found, "diverged")) {
        const uint32_t odd = one.value("replica", 0u);
        const std::string where = " at log index " + std::to_string(one.value("index", uint64_t{0}));
        std::string text =
            odd == 0 ? "DIVERGENCE" + where +
                           ": replicas differ and no majority agrees, so nobody knows which is right"
                     : "DIVERGENCE: " + name(odd) + " differs from the majority" + where;
        const std::string next =
            odd == 0 ? "bring back who is missing; or see crane diff --anew, and say whose state is to "
                       "count: crane base REPLICA"
                     : "see: crane diff";
        out.problems.push_back(text + ", says " + name(row.value("replica", 0u)) + "; " + next);
    }
    if (const auto differ = found->value("settings_differ", 0); differ > 0) {
        out.problems.push_back(std::to_string(differ) + " replica(s) have other settings than " +
                               name(row.value("replica", 0u)) + ": see its craned.log");
    }
    for (const json& one : list_in(*found, "schedule_differs"))
        out.warnings.push_back("the schedule of " + name(one.value("replica", 0u)) +
                               " differs from that of " + name(row.value("replica", 0u)) +
                               ", seen at log index " + std::to_string(one.value("index", uint64_t{0})) +
                               ", while their output is the same: they may diverge later; see: crane diff, "
                               "docs/debugging.md");
}

void judge_replica(const json& row, ClusterHealth& out) {
    const std::string who = name(row.value("replica", 0u));
    const std::string server = row.value("server", "");
    const std::string message = row.value("message", "");
    const std::string tail = message.empty() ? "" : ": " + message;
    const bool witness = row.value("witness", false);
    if (!witness && server != "listening" && server != "running")
        out.problems.push_back(who + ": its server is " + (server.empty() ? "not known" : server) + tail);
    for (const json& port : list_in(row, "listen"))
        if (!port.value("open", true) || port.contains("error"))
            out.problems.push_back(who + " cannot serve clients at " + port.value("client", "?") + ": " +
                                   port.value("error", message));
    for (const json& alarm : list_in(row, "alarms"))
        if (alarm.is_string()) out.problems.push_back(who + ": " + alarm.get<std::string>());
    if (row.value("role", "") == "primary" && !row.value("ready", true))
        out.problems.push_back(who + " leads, but has not taken over yet");
    if (const uint64_t lag = row.value("lag", uint64_t{0}); lag > kMuchBehind)
        out.warnings.push_back(who + " is " + std::to_string(lag) +
                               " log entries behind: should it have to lead, it serves nobody before it has "
                               "done them");
    judge_divergence(row, out);
}

/// What assess_cluster() does not look at.
bool is_further(AlarmKind kind) {
    return kind == AlarmKind::kServerRestarts || kind == AlarmKind::kCertificate ||
           kind == AlarmKind::kConfinementLost || kind == AlarmKind::kAuditDiffers;
}

}  // namespace

void add_word_of_primary(const json& primary, ClusterHealth& health) {
    judge_voters(primary, health);
    judge_divergence(primary, health);
}

std::vector<std::string> further_alarms(const json& rows, int64_t now_s) {
    std::vector<std::string> out;
    for (const json& row : rows) {
        if (!is_alive(row)) continue;
        for (const Alarm& alarm : alarms_in(row, now_s))
            if (is_further(alarm.kind))
                out.push_back(name(row.value("replica", 0u)) + ": " + alarm.text + " (alarm " +
                              std::string(alarm_name(alarm.kind)) + ")");
    }
    return out;
}

bool was_removed(const json& rows, const json& row) {
    if (is_alive(row)) return false;
    const uint32_t replica = row.value("replica", 0u);
    bool was_one = false;
    for (const json& other : rows) {
        if (!is_alive(other)) continue;
        for (const json& member : members_of(other))
            if (member.value("replica", 0u) == replica) return false;
        // One that has been given a number and is still to come has a higher one.
        was_one |= !members_of(other).empty() &&
                   other.value(json::json_pointer("/membership/highest_id"), 0u) >= replica;
    }
    return was_one;
}

ClusterHealth assess_cluster(const json& rows) {
    ClusterHealth out;
    if (std::none_of(rows.begin(), rows.end(), is_alive)) {
        out.problems.push_back("no replica runs");
        return out;
    }
    judge_leadership(rows, out);
    judge_missing(rows, out);
    judge_servers(rows, out);
    for (const json& row : rows)
        if (is_alive(row)) judge_replica(row, out);
    return out;
}

}  // namespace crane::proxy
