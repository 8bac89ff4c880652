// crane log: the decided sequence, for people and programs. The database of a replica that runs is its
// craned's alone (its environment is private memory, and has no other way in), so craned is asked for the
// log, a bounded piece after the other. Of one that does not run it is read where it lies.
#include <filesystem>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>

#include "paxos/store/store.hpp"
#include "proxy/log_words.hpp"
#include "proxy/tool/tools.hpp"

namespace crane::proxy {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

using Visit = std::function<void(json entry)>;

/// Indexes of the first and the last entry that a replica holds.
struct Held {
    uint64_t first = 1;
    uint64_t last = 0;
};

void print_entry(const json& entry) {
    std::cout << "#" << entry["index"] << " view " << entry["view"].get<std::string>() << " "
              << entry["kind"].get<std::string>();
    if (entry.contains("time")) {
        std::cout << " " << entry["time"].get<std::string>() << " grant " << entry["grant_clocks"];
    }
    if (entry.contains("detail")) std::cout << " " << entry["detail"].get<std::string>();
    std::cout << "\n";
    for (const json& call : entry.value("calls", json::array())) {
        std::cout << "    " << call["call"].get<std::string>();
        if (call.contains("connection")) std::cout << " " << call["connection"].get<std::string>();
        std::cout << " " << call["detail"].get<std::string>() << "\n";
    }
    if (entry.contains("calls_left_out")) std::cout << "    and " << entry["calls_left_out"] << " more\n";
}

/// Calls that had no room in the piece. A craned that knows no "first_call" would say the same again.
void complete(const ReplicaDir& replica, json& entry) {
    while (entry.contains("calls_left_out")) {
        const size_t known = entry["calls"].size();
        json piece = ask_replica(
            replica,
            {{"cmd", "log"}, {"from", entry["index"]}, {"to", entry["index"]}, {"first_call", known}});
        if (piece.value("first_call", size_t{0}) != known || piece["entries"].size() != 1) return;
        json& more = piece["entries"][0];
        if (more["calls"].empty()) return;
        for (json& call : more["calls"]) entry["calls"].push_back(std::move(call));
        entry.erase("calls_left_out");
        if (more.contains("calls_left_out")) entry["calls_left_out"] = more["calls_left_out"];
    }
}

/// Of a replica that runs, a piece of its log after the other.
Held ask_for_log(const ReplicaDir& replica, const LogRequest& request, const Visit& visit) {
    const json status = ask_replica(replica, {{"cmd", "status"}});
    if (status.contains("error")) throw std::runtime_error(status["error"].get<std::string>());
    const Held held{status.value("first_log_index", uint64_t{1}), status.value("decided", uint64_t{0})};
    for (uint64_t from = request.from; from <= request.to;) {
        json piece = ask_replica(replica, {{"cmd", "log"}, {"from", from}, {"to", request.to}});
        if (piece.contains("error")) throw std::runtime_error(piece["error"].get<std::string>());
        if (piece["entries"].empty()) break;
        from = piece["entries"].back()["index"].get<uint64_t>() + 1;
        for (json& entry : piece["entries"]) {
            complete(replica, entry);
            visit(std::move(entry));
        }
    }
    return held;
}

Held read_log(const std::string& db, const LogRequest& request, const Visit& visit) {
    const paxos::OfflineLog log = paxos::read_offline(db, request.from, [&](const paxos::Entry& entry) {
        if (entry.index > request.to) return false;
        visit(entry_json(entry));
        return true;
    });
    return {log.state.start.index + 1, log.state.end.index};
}

/// What of the request the log does not hold, and why; empty if all of it was there.
std::string missing(const LogRequest& request, const Held& held) {
    if (request.from < held.first)
        return "the log begins at #" + std::to_string(held.first) +
               ": what is before is in a checkpoint, and was cut";
    if (request.from > held.last && request.from > 1) return "the log ends at #" + std::to_string(held.last);
    return "";
}

bool runs(const std::string& path) {
    try {
        ask_craned(path, {{"cmd", "status"}});
        return true;
    } catch (const std::runtime_error&) {
        return false;
    }
}

/// The one that is asked for, or else the first that has a log here.
ReplicaDir choose(const std::string& state_dir, uint32_t wanted) {
    if (wanted != 0) return chosen_replicas(state_dir, wanted).front();
    for (const ReplicaDir& one : find_replicas(state_dir))
        if (!one.elsewhere && (is_remote(state_dir) || fs::exists(one.path + "/db"))) return one;
    throw std::runtime_error(state_dir + " holds no such replica with a log");
}

}  // namespace

int tool_log(const std::string& state_dir, const LogRequest& request, bool as_json) {
    const ReplicaDir replica = choose(state_dir, request.replica);
    json entries = json::array();
    bool any = false;
    const Visit visit = [&](json entry) {
        any = true;
        if (as_json)
            entries.push_back(std::move(entry));
        else
            print_entry(entry);
    };
    const Held held = is_remote(state_dir) || runs(replica.path)
                          ? ask_for_log(replica, request, visit)
                          : read_log(replica.path + "/db", request, visit);
    if (as_json)
        std::cout << json{{"replica", replica.id},
                          {"first", held.first},
                          {"last", held.last},
                          {"entries", entries}}
                         .dump(1)
                  << "\n";
    const std::string lacks = missing(request, held);
    if (!lacks.empty() && !as_json) std::cerr << "crane log: replica " << replica.id << ": " << lacks << "\n";
    return lacks.empty() || any ? kExitOk : kExitNo;
}

}  // namespace crane::proxy
