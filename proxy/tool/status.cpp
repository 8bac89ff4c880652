// crane status and crane health: how the cluster is, for people, programs and load balancers.
#include <ctime>
#include <iostream>
#include <nlohmann/json.hpp>

#include "proxy/metrics/conditions.hpp"
#include "proxy/tool/cluster_health.hpp"
#include "proxy/tool/time_words.hpp"
#include "proxy/tool/tools.hpp"

namespace crane::proxy {

using nlohmann::json;

namespace {

constexpr int kElsewhereTimeoutMs = 2000;
constexpr int kHealthTimeoutMs = 2000;  // a load balancer asks often, and takes no answer for an answer

void print_row(const json& row) {
    if (!row["alive"]) {
        printf("%-8u %-10s %s\n", row["replica"].get<uint32_t>(), "down",
               row["error"].get<std::string>().c_str());
        return;
    }
    std::string clients;
    for (const json& one : row["listen"])
        clients += (clients.empty() ? "" : ",") + one["client"].get<std::string>() +
                   (one.value("protocol", "tcp") == "udp" ? "/udp" : "");
    printf("%-8u %-10s %-10s %-22s %6lu %10lu %10lu %12lu %6lu %6lu  %s\n", row["replica"].get<uint32_t>(),
           row["role"].get<std::string>().c_str(), row["server"].get<std::string>().c_str(), clients.c_str(),
           row["view"].get<uint64_t>(), row["decided"].get<uint64_t>(), row["admitted"].get<uint64_t>(),
           row["clock"].get<uint64_t>(), row["lag"].get<uint64_t>(), row["connections"].get<uint64_t>(),
           row["output_hash"].get<std::string>().substr(0, 16).c_str());
}

void print_primary(const ClusterHealth& health) {
    if (health.primary == 0) return;
    const std::string where = health.primary_address.empty() ? "" : ", at " + health.primary_address;
    const std::string since = health.primary_since_s == 0
                                  ? ""
                                  : (health.primary_says_so ? ", since " : ", known here since ") +
                                        utc_text(health.primary_since_s) + " (for " +
                                        span_text(time(nullptr) - health.primary_since_s) + ")";
    printf("the primary is replica %u%s%s\n", health.primary, where.c_str(), since.c_str());
}

/// Where it is not what everybody expects.
void print_durability(const json& rows) {
    for (const json& row : rows) {
        if (!row["alive"] || row.value("durability", "disk") != "memory") continue;
        printf(
            "durability: memory. What is acknowledged outlives the end of any process and the loss of a "
            "minority "
            "of the hosts, not a loss of power on most of them at once\n");
        return;
    }
}

std::string side_text(const json& side) {
    if (side["call"].is_null()) return "nothing more";
    std::string out = side["call"].get<std::string>();
    if (side["connection"].is_string()) out += " on connection " + side["connection"].get<std::string>();
    if (!side.contains("excerpt")) return out;
    const uint64_t from = side["excerpt_from"];
    return out + " at its byte " + std::to_string(side["offset"].get<uint64_t>()) + ", " +
           std::to_string(side["bytes"].get<uint64_t>()) + " bytes" +
           (from == 0 ? "" : ", from " + std::to_string(from) + " on") + ": \"" +
           side["excerpt"].get<std::string>() + "\"";
}

/// As one of those here knows it. What clients may see of it is shown while it is of account.
void print_difference(const json& rows) {
    const json::json_pointer diverged("/divergence/diverged"), where("/divergence/first_difference");
    const json* first = nullptr;
    const json* found = nullptr;
    bool differ = false;
    for (const json& row : rows) {
        differ |= !row.value("fenced", "").empty() || !row.value(diverged, json::array()).empty();
        if (!row.contains(where) || row.at(where).is_null()) continue;
        if (!found || row.at(where)["found_s"] > (*found)["found_s"]) found = &row.at(where);
        if (row.at(where)["record"].is_null()) continue;
        if (!first || row.at(where)["sides"].size() > (*first)["sides"].size()) first = &row.at(where);
    }
    if (!differ && found) {
        const int64_t found_s = (*found)["found_s"];
        printf(
            "replicas were found to differ at log index %lu, %s (%s ago): crane status --json has what each "
            "put out, as first_difference\n",
            (*found)["index"].get<uint64_t>(), utc_text(found_s).c_str(),
            span_text(time(nullptr) - found_s).c_str());
    }
    if (!differ || !first) return;
    printf("what they put out %s, at log index %lu, as record %lu:\n",
           (*first)["exact"].get<bool>() ? "where they first differ" : "where they differ already",
           (*first)["index"].get<uint64_t>(), (*first)["record"].get<uint64_t>());
    for (const json& side : (*first)["sides"])
        printf("    replica %u: %s\n", side["replica"].get<uint32_t>(), side_text(side).c_str());
}

/// The primary of another host is asked, through a replica here, whom it has found to differ. What it does
/// not answer is no problem of its own: that it is in reach has been looked at.
void ask_primary_elsewhere(const std::string& state_dir, const json& rows, ClusterHealth& health) {
    if (health.primary == 0 || is_remote(state_dir)) return;
    for (const json& row : rows)
        if (row["alive"] && row.value("replica", 0u) == health.primary) return;
    for (const ReplicaDir& one : whole_cluster(state_dir)) {
        if (one.id != health.primary || !one.elsewhere) continue;
        try {
            const json answer = ask_replica(one, {{"cmd", "status"}}, kElsewhereTimeoutMs);
            add_word_of_primary(answer, health);
        } catch (const std::runtime_error&) {
        }
    }
}

}  // namespace

int tool_status(const std::string& state_dir, bool as_json) {
    const json rows = ask_all(state_dir);
    ClusterHealth health = assess_cluster(rows);
    ask_primary_elsewhere(state_dir, rows, health);
    for (std::string& one : further_alarms(rows, time(nullptr))) health.warnings.push_back(std::move(one));
    const int code = health.problems.empty() ? kExitOk : kExitNo;
    if (as_json) {
        std::cout << json{{"replicas", rows},
                          {"primary", health.primary},
                          {"primary_since_s", health.primary_since_s},
                          {"healthy", health.problems.empty()},
                          {"problems", health.problems},
                          {"warnings", health.warnings}}
                         .dump(1)
                  << "\n";
        return code;
    }
    printf("%-8s %-10s %-10s %-22s %6s %10s %10s %12s %6s %6s  %s\n", "replica", "role", "server",
           "clients at", "view", "decided", "admitted", "clock", "lag", "conns", "output hash");
    for (const json& row : rows) print_row(row);
    print_primary(health);
    print_durability(rows);
    for (const json& row : rows) {
        const std::string message = row["alive"] ? row.value("message", "") : "";
        if (!message.empty()) printf("replica %u: %s\n", row["replica"].get<uint32_t>(), message.c_str());
    }
    print_difference(rows);
    for (const std::string& one : health.problems) printf("PROBLEM: %s\n", one.c_str());
    for (const std::string& one : health.warnings) printf("warning: %s\n", one.c_str());
    return code;
}

int tool_health(const std::string& state_dir, const HealthRequest& request, bool as_json) {
    const json rows = ask_all(state_dir, kHealthTimeoutMs);
    std::string line;
    bool ok = false;
    for (const json& row : rows) {
        const uint32_t replica = row["replica"];
        if (request.replica != 0 && replica != request.replica) continue;
        std::string why = why_unhealthy(row);
        if (why.empty() && request.primary && row.value("role", "") != "primary")
            why = "the primary is replica " + std::to_string(row.value("leader", 0u));
        const std::string who = "replica " + std::to_string(replica);
        if (why.empty()) {
            ok = true;
            line = "ok: " + who + ", " + row.value("role", "");
            break;
        }
        line += (line.empty() ? "not ok: " : "; ") + who + ": " + why;
    }
    if (line.empty() && request.replica != 0)
        line = "not ok: replica " + std::to_string(request.replica) +
               " is not on this host (crane status names all, and says where the primary is)";
    if (as_json) {
        std::cout << json{{"healthy", ok}, {"detail", line}}.dump() << "\n";
    } else {
        std::cout << line << "\n";
    }
    return ok ? kExitOk : kExitNo;
}

}  // namespace crane::proxy
