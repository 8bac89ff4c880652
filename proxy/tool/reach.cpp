// Which craneds there are, and the way to each: those of this host by their control sockets, others by way of
// one of these.
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "paxos/store/store.hpp"
#include "proxy/config.hpp"
#include "proxy/tool/cluster_health.hpp"
#include "proxy/tool/tools.hpp"

namespace crane::proxy {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

constexpr int kAnswerLimitMs = 5000;
constexpr unsigned kAnswerPollUs = 5'000;

}  // namespace

std::string default_state_dir() {
    if (geteuid() == 0) return "/var/lib/crane/default";
    const char* home = getenv("HOME");
    return std::string(home ? home : "") + "/.local/state/crane/default";
}

std::string packaged_name(const std::string& state_dir) {
    const fs::path path = fs::absolute(state_dir).lexically_normal();
    return (path.has_filename() ? path : path.parent_path()).filename().string();
}

std::string packaged_config(const std::string& state_dir, const std::string& folder) {
    return folder + "/" + packaged_name(state_dir) + ".toml";
}

std::string config_file(const std::string& replica_dir, const std::string& folder) {
    std::error_code error;
    for (const std::string& path : {replica_dir + "/craned.toml", packaged_config(replica_dir, folder)})
        if (fs::exists(path, error)) return path;
    return "";
}

bool is_witness(const std::string& replica_dir) {
    try {
        return load_config(config_file(replica_dir)).witness;
    } catch (const std::exception&) {
        return false;
    }
}

namespace {

/// Who names no directory may mean the replica of a unit crane@NAME.
std::string others_beside(const std::string& state_dir) {
    std::string out;
    std::error_code error;
    for (fs::directory_iterator it(fs::path(state_dir).parent_path(), error), end; !error && it != end;
         it.increment(error))
        for (const char* sign : {"/run.json", "/control.sock", "/db"}) {
            if (!fs::exists(it->path().string() + sign, error)) continue;
            out += (out.empty() ? "" : ", ") + it->path().string();
            break;
        }
    return out.empty() ? "; give the cluster's directory with --state-dir"
                       : "; say which with --state-dir: there is " + out;
}

}  // namespace

std::vector<ReplicaDir> find_replicas(const std::string& state_dir) {
    if (is_remote(state_dir)) return whole_cluster(state_dir);
    std::vector<ReplicaDir> out;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(state_dir, error)) {
        const std::string name = entry.path().filename();
        if (name.size() < 2 || name[0] != 'r') continue;
        if (!std::all_of(name.begin() + 1, name.end(), [](char c) { return c >= '0' && c <= '9'; })) continue;
        if (entry.is_directory())
            out.push_back({static_cast<uint32_t>(atoi(name.c_str() + 1)), entry.path()});
    }
    if (error) throw std::runtime_error(state_dir + ": " + error.message() + others_beside(state_dir));
    for (const char* name :
         {"/craned.toml", "/control.sock", "/output.log", "/db"}) {  // one replica of several hosts
        if (out.empty() && fs::exists(state_dir + name, error)) out.push_back({0, state_dir});
    }
    if (out.empty()) {
        throw std::runtime_error(state_dir +
                                 " holds no replica; give the cluster's directory with --state-dir");
    }
    std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
    return out;
}

namespace {

/// Whose a directory is that is one replica's alone, as its craned says, or else its database; 0: neither
/// can.
uint32_t holder(const std::string& path, const json& status) {
    if (const uint32_t replica = status.value("replica", 0u); replica != 0) return replica;
    try {
        return paxos::read_offline(path + "/db", 1, [](const paxos::Entry&) { return false; }).replica;
    } catch (const std::exception&) {
        return 0;
    }
}

/// On whose host to say it, or that there is none.
std::string where_it_is(const json& status, uint32_t replica) {
    const std::string name = "replica " + std::to_string(replica);
    if (!status.contains("membership")) return ": say this on the host of " + name;
    for (const json& member : status["membership"]["members"]) {
        const std::string address = member.value("address", "");
        if (member.value("replica", 0u) == replica)
            return ": say this on the host of " + name +
                   (address.empty() ? "" : ", which its peers reach at " + address);
    }
    return ", and the cluster has no " + name + " (crane member list)";
}

}  // namespace

std::vector<ReplicaDir> chosen_replicas(const std::string& state_dir, uint32_t only) {
    std::vector<ReplicaDir> here = find_replicas(state_dir);
    if (only == 0) return here;
    if (here.size() == 1 && here[0].id == 0) {
        json status = json::object();
        try {
            status = ask_craned(state_dir, {{"cmd", "status"}});
        } catch (const std::runtime_error&) {  // one that does not run has its database
        }
        const uint32_t whose = holder(state_dir, status);
        if (whose != 0 && whose != only)
            throw std::runtime_error(state_dir + " is that of replica " + std::to_string(whose) +
                                     where_it_is(status, only));
        here[0].id = whose;
        return here;
    }
    std::erase_if(here, [only](const ReplicaDir& one) { return one.id != only; });
    if (here.empty())
        throw std::runtime_error((is_remote(state_dir) ? "the cluster has" : state_dir + " holds") +
                                 " no replica " + std::to_string(only));
    return here;
}

json ask_all(const std::string& state_dir, int timeout_ms) {
    json rows = json::array();
    for (const ReplicaDir& replica : find_replicas(state_dir)) {
        try {
            json row = ask_replica(replica, {{"cmd", "status"}}, timeout_ms);
            if (row.contains("error")) throw std::runtime_error(row["error"].get<std::string>());
            row["alive"] = true;
            rows.push_back(std::move(row));
        } catch (const std::exception& error) {
            rows.push_back(
                {{"replica", replica.id}, {"alive", false}, {"role", "down"}, {"error", error.what()}});
        }
    }
    json members = json::array();
    for (const json& row : rows)
        if (!was_removed(rows, row)) members.push_back(row);
    return members;
}

std::optional<Contact> find_contact(const std::string& state_dir) {
    std::optional<Contact> found;
    for (const ReplicaDir& replica : find_replicas(state_dir)) {
        if (replica.elsewhere) continue;  // what it is told is handed on to the primary
        try {
            json status = ask_craned(replica.path, {{"cmd", "status"}});
            const bool leads = status.value("role", "") == "primary";
            if (leads || (!found && status.value("leader", 0u) != 0)) found = {replica, std::move(status)};
            if (leads) break;
        } catch (const std::runtime_error&) {
            continue;
        }
    }
    return found;
}

namespace {

/// The first of the addresses that answers.
std::vector<ReplicaDir> first_that_answers(const std::string& place) {
    std::string why;
    for (const std::string& one : remote_places(place)) {
        try {
            const json status = ask_craned(one, {{"cmd", "status"}});
            if (status.contains("replica")) return {{status["replica"], one}};
            why += (why.empty() ? "" : "; ") + status.value("error", "no replica answers there");
        } catch (const std::runtime_error& error) {
            why += (why.empty() ? "" : "; ") + std::string(error.what());
        }
    }
    throw std::runtime_error(why.empty() ? "--cluster names no HOST:PORT" : why);
}

}  // namespace

std::vector<ReplicaDir> whole_cluster(const std::string& state_dir) {
    std::vector<ReplicaDir> out =
        is_remote(state_dir) ? first_that_answers(state_dir) : find_replicas(state_dir);
    for (const ReplicaDir& one : std::vector(out)) {
        json status;
        try {
            status = ask_craned(one.path, {{"cmd", "status"}});
        } catch (const std::runtime_error&) {
            continue;  // another one here may know them
        }
        if (out.size() == 1) out[0].id = status.value("replica", 0u);  // where its directory does not tell
        for (const json& member : status["membership"]["members"]) {
            const uint32_t id = member.value("replica", 0u);
            const bool here = std::any_of(out.begin(), out.end(), [id](const auto& r) { return r.id == id; });
            if (!here) out.push_back({id, one.path, true});
        }
        break;
    }
    std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
    return out;
}

json ask_replica(const ReplicaDir& replica, json request, int timeout_ms) {
    if (replica.elsewhere) request["replica"] = replica.id;
    json answer = ask_craned(replica.path, request, timeout_ms);
    if (!answer.contains("answer")) return answer;
    const json question = {{"cmd", "answer"}, {"id", answer["answer"]}};
    const bool came = wait_until(
        [&] {
            answer = ask_craned(replica.path, question, timeout_ms);
            return !answer.value("pending", false);
        },
        timeout_ms, kAnswerPollUs);
    if (!came) throw std::runtime_error("it did not answer in time");
    return answer;
}

json ask_primary(const Contact& contact, const json& request) {
    try {
        return ask_replica(contact.dir, request, kAnswerLimitMs);
    } catch (const std::runtime_error& error) {
        if (contact.status.value("role", "") == "primary") throw;
        return {{"unanswered", true},
                {"error", "the primary, replica " + std::to_string(contact.status.value("leader", 0u)) +
                              ", did not answer; try again"}};
    }
}

}  // namespace crane::proxy
