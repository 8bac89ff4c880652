// crane checkpoint list|verify|take|restore: what replicas have as checkpoints on their disks, whether they
// run or not.
#include <sys/stat.h>
#include <time.h>

#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "checkpoint/arriving_checkpoint.hpp"
#include "checkpoint/checkpoint_store.hpp"
#include "proxy/tool/progress.hpp"
#include "proxy/tool/tools.hpp"

namespace crane::proxy {

namespace fs = std::filesystem;
using checkpoint::CheckpointStore;
using checkpoint::StoredCheckpoint;
using nlohmann::json;

namespace {

std::string age_text(int64_t seconds) {
    if (seconds < 120) return std::to_string(std::max<int64_t>(seconds, 0)) + " s";
    if (seconds < 2 * 3600) return std::to_string(seconds / 60) + " min";
    if (seconds < 2 * 86'400) return std::to_string(seconds / 3600) + " h";
    return std::to_string(seconds / 86'400) + " d";
}

/// The directory of one replica, given as such, does not say which.
std::string who(const json& row) {
    const uint32_t replica = row["replica"];
    return replica == 0 ? "entry " : "replica " + std::to_string(replica) + "  entry ";
}

struct Held {
    ReplicaDir replica;
    CheckpointStore store;
};

std::vector<Held> stores(const std::string& state_dir, uint32_t only) {
    std::vector<Held> out;
    for (const ReplicaDir& one : chosen_replicas(state_dir, only))
        out.push_back({one, CheckpointStore(one.path + "/checkpoints")});
    return out;
}

json checkpoint_json(const ReplicaDir& replica, const StoredCheckpoint& one) {
    json files = json::array();
    for (const checkpoint::CheckpointFile& file : one.manifest.files)
        files.push_back({{"name", file.name}, {"bytes", file.bytes}, {"xxh128", file.xxh128}});
    return {{"replica", replica.id},
            {"index", one.index},
            {"id", one.id},
            {"path", one.path},
            {"bytes", one.manifest.bytes()},
            {"since", one.since},
            {"age_s", one.since == 0 ? 0 : std::max<int64_t>(time(nullptr) - one.since, 0)},
            {"files", std::move(files)},
            {"complete", one.error.empty()},
            {"error", one.error}};
}

/// What has come so far of one that is, or was, fetched from another replica.
json arriving_json(const Held& held, const checkpoint::CheckpointName& name) {
    json out = {{"replica", held.replica.id},
                {"index", name.index},
                {"id", name.id},
                {"path", checkpoint::arriving_path(held.store, name)},
                {"bytes", 0},
                {"total", nullptr}};
    const auto arriving = checkpoint::ArrivingCheckpoint::resume(held.store, name);
    if (!arriving) return out;
    uint64_t bytes = 0;
    for (const checkpoint::CheckpointFile& file : arriving->manifest().files) {
        std::error_code missing;
        const uint64_t have = fs::file_size(out["path"].get<std::string>() + "/" + file.name, missing);
        if (!missing) bytes += have;
    }
    out["bytes"] = bytes;
    out["total"] = arriving->manifest().bytes();
    return out;
}

void print_checkpoint(const json& row) {
    std::cout << who(row) << row["index"];
    if (!row["complete"].get<bool>()) {
        std::cout << "  DAMAGED: " << row["error"].get<std::string>() << "\n";
        return;
    }
    std::cout << "  " << size_text(row["bytes"]) << "  " << age_text(row["age_s"]) << " ago  "
              << row["id"].get<std::string>().substr(0, 16);
    for (const json& file : row["files"])
        std::cout << "  " << file["name"].get<std::string>() << " " << size_text(file["bytes"]);
    std::cout << "\n";
}

void print_arriving(const json& row) {
    std::cout << who(row) << row["index"] << "  arriving";
    if (row["total"].is_number())
        std::cout << ": " << size_text(row["bytes"]) << " of " << size_text(row["total"]);
    std::cout << "\n";
}

void print_aside(const json& row) {
    std::cout << who(row) << row["index"] << "  set aside, "
              << (row["damaged"].get<bool>()  ? "since it is damaged: "
                  : row["unread"].get<bool>() ? "since it could not be read, until the next start: "
                                              : "since no server could be restored from it: ")
              << row["path"].get<std::string>() << "\n";
}

int list(const std::string& state_dir, uint32_t replica, bool as_json) {
    json checkpoints = json::array(), arriving = json::array(), aside = json::array();
    for (const Held& held : stores(state_dir, replica)) {
        for (const StoredCheckpoint& one : held.store.survey())
            checkpoints.push_back(checkpoint_json(held.replica, one));
        for (const checkpoint::CheckpointName& one : checkpoint::list_arriving(held.store))
            arriving.push_back(arriving_json(held, one));
        for (const checkpoint::SetAside& one : held.store.set_aside())
            aside.push_back({{"replica", held.replica.id},
                             {"index", one.index},
                             {"damaged", one.damaged},
                             {"unread", one.unread},
                             {"path", one.path}});
    }
    if (as_json) {
        std::cout << json{{"checkpoints", checkpoints}, {"arriving", arriving}, {"set_aside", aside}}.dump(1)
                  << "\n";
        return kExitOk;
    }
    for (const json& row : checkpoints) print_checkpoint(row);
    for (const json& row : arriving) print_arriving(row);
    for (const json& row : aside) print_aside(row);
    if (checkpoints.empty() && arriving.empty()) std::cout << "there are no checkpoints\n";
    return kExitOk;
}

std::string verified(const Held& held, const StoredCheckpoint& one) {
    Progress progress("verifying entry " + std::to_string(one.index), one.manifest.bytes());
    return held.store.verify(one.index, progress.counting());
}

int verify(const std::string& state_dir, uint32_t replica, bool as_json) {
    json rows = json::array();
    bool sound = true;
    for (const Held& held : stores(state_dir, replica)) {
        for (const StoredCheckpoint& one : held.store.survey()) {
            const std::string error = verified(held, one);
            // A replica that runs takes new ones and removes old ones.
            if (!error.empty() && !fs::exists(one.path)) continue;
            sound &= error.empty();
            rows.push_back({{"replica", held.replica.id},
                            {"index", one.index},
                            {"path", one.path},
                            {"bytes", one.manifest.bytes()},
                            {"sound", error.empty()},
                            {"error", error}});
            if (as_json) continue;
            std::cout << who(rows.back()) << one.index << "  " << size_text(one.manifest.bytes()) << "  "
                      << (error.empty() ? "sound" : "NOT SOUND: " + error) << std::endl;
        }
    }
    if (as_json) std::cout << json{{"sound", sound}, {"checkpoints", rows}}.dump(1) << "\n";
    if (!as_json && rows.empty()) std::cout << "there are no checkpoints\n";
    return sound ? kExitOk : kExitNo;
}

}  // namespace

int tool_checkpoint(const std::string& state_dir, const CheckpointRequest& request, bool json) {
    if (request.what == "take") return take_checkpoint(state_dir, json);
    if (request.what == "restore") return remake_server(state_dir, request.replica, json);
    return request.what == "verify" ? verify(state_dir, request.replica, json)
                                    : list(state_dir, request.replica, json);
}

}  // namespace crane::proxy
