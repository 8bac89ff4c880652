// crane log verify, crane recover: the log of replicas that do not run.
#include <time.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <tuple>

#include "paxos/core/describe.hpp"
#include "paxos/store/offline.hpp"
#include "paxos/store/store.hpp"
#include "proxy/log_durability.hpp"
#include "proxy/tool/tools.hpp"

namespace crane::proxy {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

paxos::StoreReport verify_unused(const ReplicaDir& replica) {
    try {
        return paxos::verify_store(replica.path + "/db");
    } catch (const paxos::StoreInUse&) {
        throw std::runtime_error("database " + replica.path +
                                 "/db is in use, so its replica runs, and nothing was done: end it first (" +
                                 how_to_stop(replica.path) + ")");
    }
}

// What keeps one database from being opened is told as its report: the others are looked at all the same.
paxos::StoreReport verify_any(const ReplicaDir& replica) {
    try {
        return verify_unused(replica);
    } catch (const paxos::StorageError& error) {
        paxos::StoreReport report;
        report.replica = replica.id;
        report.problems = {error.what()};
        return report;
    }
}

std::vector<ReplicaDir> with_databases(const std::string& state_dir, uint32_t only) {
    std::vector<ReplicaDir> out;
    for (const ReplicaDir& replica : chosen_replicas(state_dir, only))
        if (fs::exists(replica.path + "/db")) out.push_back(replica);
    if (out.empty()) throw std::runtime_error(state_dir + " holds no such replica with a database");
    return out;
}

json report_json(const ReplicaDir& replica, const paxos::StoreReport& report) {
    return {{"replica", report.replica},
            {"database", replica.path + "/db"},
            {"cluster", report.cluster_id},
            {"sound", report.problems.empty()},
            {"first", report.state.start.index + 1},
            {"last", report.state.end.index},
            {"entries", report.entries},
            {"bytes", report.bytes},
            {"view", paxos::view_name(report.state.view)},
            {"rejoining", report.state.rejoining},
            {"recovery", report.recovery},
            {"lost_with_memory", is_lost_with_memory(replica.path)},
            {"problems", report.problems}};
}

void print_report(const json& report) {
    std::cout << report["database"].get<std::string>() << ": " << (report["sound"] ? "sound" : "NOT SOUND")
              << ", replica " << report["replica"] << ", " << report["entries"] << " entries "
              << report["first"] << " to " << report["last"] << ", " << report["bytes"] << " bytes, view "
              << report["view"].get<std::string>() << (report["rejoining"] ? ", rejoining" : "") << "\n";
    if (report["lost_with_memory"])
        std::cout << "    it was in memory when its host last stopped (durability = \"memory\"): what was "
                     "acknowledged last may be missing\n";
    if (report["recovery"] != "") std::cout << "    " << report["recovery"].get<std::string>() << "\n";
    for (const json& problem : report["problems"]) std::cout << "    " << problem.get<std::string>() << "\n";
}

void print_passed_over(const json& report) {
    std::cout << report["database"].get<std::string>() << " is passed over:\n";
    for (const json& problem : report["problems"]) std::cout << "    " << problem.get<std::string>() << "\n";
}

paxos::ForcedCluster force(const std::string& replica_dir, const std::string& mark) {
    try {
        return paxos::force_new_cluster(replica_dir + "/db");
    } catch (const paxos::StorageError& error) {
        throw std::runtime_error(std::string(error.what()) + ". " + mark +
                                 " stays: say crane recover again, or remove it if crane log verify shows "
                                 "that the log ends where it did");
    }
}

std::string to_serve_there(const std::string& replica_dir) {
    const std::string config = config_file(replica_dir);
    return "give its configuration (" + (config.empty() ? "which is not in " + replica_dir : config) +
           ") what one with a server says of it, without witness = true; then the server begins at its "
           "checkpoint, or anew, and runs through what the log has.";
}

// So that whoever reads craned's log later sees why it goes on as another cluster.
void note_in_log(const std::string& replica_dir, const std::string& text) {
    const std::string path = replica_dir + "/craned.log";
    std::ofstream log(path, std::ios::app);
    const time_t now = time(nullptr);
    tm parts{};
    char stamp[32];
    strftime(stamp, sizeof(stamp), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &parts));
    log << stamp << " crane recover: " << text << "\n";
    if (!log.flush())
        std::cerr << "crane: it is done, but " << path << " could not be written: keep this output instead\n";
}

}  // namespace

std::string how_to_start(const std::string& replica_dir, const std::string& folder) {
    const std::string config = config_file(replica_dir, folder);
    if (config == packaged_config(replica_dir, folder))
        return "systemctl start crane@" + packaged_name(replica_dir);
    return "craned --config " + (config.empty() ? "FILE, its configuration" : config);
}

std::string how_to_stop(const std::string& replica_dir, const std::string& folder) {
    return config_file(replica_dir, folder) == packaged_config(replica_dir, folder)
               ? "systemctl stop crane@" + packaged_name(replica_dir)
               : "crane stop";
}

int tool_verify(const std::string& state_dir, uint32_t replica, bool as_json) {
    json reports = json::array();
    bool sound = true;
    for (const ReplicaDir& one : with_databases(state_dir, replica)) {
        reports.push_back(report_json(one, verify_any(one)));
        sound &= reports.back()["sound"].get<bool>();
        if (!as_json) print_report(reports.back());
    }
    if (as_json) std::cout << json{{"sound", sound}, {"databases", reports}}.dump(1) << "\n";
    return sound ? kExitOk : kExitNo;
}

int tool_recover(const std::string& state_dir, const RecoverRequest& request, bool as_json) {
    if (!request.force_new_cluster)
        throw std::runtime_error(
            "recover makes a cluster of one out of one replica's log, and cannot be undone. Use it when a "
            "majority of the replicas is lost for good, make sure that the others cannot start again, and "
            "say --force-new-cluster");
    const ReplicaDir* best = nullptr;
    std::tuple<uint64_t, uint64_t> best_end;
    const std::vector<ReplicaDir> all = with_databases(state_dir, request.replica);
    json passed_over = json::array();
    for (const ReplicaDir& one : all) {
        // One that cannot be opened now may be the best of them: nothing is done until it can, or until
        // --replica names another.
        paxos::StoreReport report = verify_unused(one);
        const std::string why_not = paxos::why_not_forced(report.replica, report.state);
        if (report.problems.empty() && !why_not.empty()) report.problems = {why_not};
        if (!report.problems.empty()) {
            passed_over.push_back(report_json(one, report));
            if (!as_json) print_passed_over(passed_over.back());
            continue;
        }
        const std::tuple end{report.state.end.view, report.state.end.index};
        if (best != nullptr && end <= best_end) continue;
        best = &one;
        best_end = end;
    }
    if (best == nullptr)
        throw std::runtime_error("no database in " + state_dir +
                                 " can be used: they are damaged, do not vote, or had not caught up after a "
                                 "loss");
    // Before anything changes: crane-run would start the replicas that are left out as a cluster beside this
    // one.
    const std::string mark = best->path + "/recovered";
    if (!(std::ofstream(mark) << best->id << "\n").flush())
        throw std::runtime_error("cannot write " + mark + ", by which crane-run knows: nothing was changed");
    const paxos::ForcedCluster forced = force(best->path, mark);
    accept_database(best->path);  // it is what there is, whatever its host has lost
    const std::string text = "replica " + std::to_string(paxos::view_leader(forced.entry.view)) +
                             " is the only member from entry " + paxos::describe(forced.entry.position()) +
                             " on; its log ended at " + paxos::describe(forced.before.end);
    note_in_log(best->path, text);
    const bool witness = is_witness(best->path);
    if (as_json) {
        std::cout << json{{"replica", paxos::view_leader(forced.entry.view)},
                          {"witness", witness},
                          {"database", best->path + "/db"},
                          {"index", forced.entry.index},
                          {"view", paxos::view_name(forced.entry.view)},
                          {"passed_over", passed_over}}
                         .dump(1)
                  << "\n";
    } else {
        std::cout << text << ".\n"
                  << (witness ? "It is a witness, which serves nobody: " + to_serve_there(best->path) + " "
                              : "")
                  << "Start its craned (" << how_to_start(best->path)
                  << "), then add replicas under new ids: crane member add\n";
    }
    return kExitOk;
}

}  // namespace crane::proxy
