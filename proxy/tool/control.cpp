// crane transfer, signal, and what else goes over the control sockets.
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "base/clock.hpp"
#include "checkpoint/image_store.hpp"
#include "proxy/tool/tools.hpp"

namespace crane::proxy {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

/// What a replica says of a server that had no beginning.
constexpr char kUnstarted[] = "the server could not be started";
constexpr int kAnswerLimitMs = 5000;
constexpr int kRestartLimitMs = 60'000;
constexpr int kCheckpointLimitMs = 120'000;
constexpr int kFetchLimitMs = 600'000;
constexpr unsigned kFetchPollUs = 500'000;

template <typename Condition>
bool wait_until(Condition condition, int limit_ms, unsigned poll_us = 10'000) {
    const uint64_t end = monotonic_ns() + static_cast<uint64_t>(limit_ms) * 1'000'000;
    while (!condition()) {
        if (monotonic_ns() > end) return false;
        usleep(poll_us);
    }
    return true;
}

}  // namespace

std::string default_state_dir() {
    if (geteuid() == 0) return "/var/lib/crane/default";
    const char* home = getenv("HOME");
    return std::string(home ? home : "") + "/.local/state/crane/default";
}

std::vector<ReplicaDir> find_replicas(const std::string& state_dir) {
    std::vector<ReplicaDir> out;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(state_dir, error)) {
        const std::string name = entry.path().filename();
        if (name.size() < 2 || name[0] != 'r') continue;
        if (!std::all_of(name.begin() + 1, name.end(), [](char c) { return c >= '0' && c <= '9'; })) continue;
        if (entry.is_directory())
            out.push_back({static_cast<uint32_t>(atoi(name.c_str() + 1)), entry.path()});
    }
    if (error) throw std::runtime_error(state_dir + ": " + error.message());
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

json ask_all(const std::string& state_dir, int timeout_ms) {
    json rows = json::array();
    for (const ReplicaDir& replica : find_replicas(state_dir)) {
        try {
            json row = ask_craned(replica.path, {{"cmd", "status"}}, timeout_ms);
            row["alive"] = true;
            rows.push_back(std::move(row));
        } catch (const std::exception& error) {
            rows.push_back(
                {{"replica", replica.id}, {"alive", false}, {"role", "down"}, {"error", error.what()}});
        }
    }
    return rows;
}

std::optional<Contact> find_contact(const std::string& state_dir) {
    std::optional<Contact> found;
    for (const ReplicaDir& replica : find_replicas(state_dir)) {
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

json ask_primary(const Contact& contact, const json& request) {
    json answer = ask_craned(contact.dir.path, request);
    if (!answer.contains("forwarded")) return answer;
    const json question = {{"cmd", "answer"}, {"id", answer["answer"]}};
    const bool came = wait_until(
        [&] {
            answer = ask_craned(contact.dir.path, question);
            return !answer.value("pending", false);
        },
        kAnswerLimitMs);
    if (!came)
        return {{"error", "the primary, replica " + std::to_string(contact.status.value("leader", 0u)) +
                              ", did not answer; try again"}};
    return answer;
}

namespace {

/// Orders the primary, whichever it is and wherever.
int order(const std::string& state_dir, const json& request, bool as_json) {
    const std::optional<Contact> contact = find_contact(state_dir);
    if (!contact)
        throw std::runtime_error("no replica here runs and knows a primary; try again (crane status)");
    json answer;
    wait_until(
        [&] {
            answer = ask_primary(*contact, request);
            return !answer.value("fetching", false);
        },
        kFetchLimitMs, kFetchPollUs);
    if (as_json) std::cout << answer.dump() << "\n";
    if (!answer.contains("error")) return kExitOk;
    if (!as_json) std::cerr << "crane: " << answer["error"].get<std::string>() << "\n";
    return kExitNo;
}

}  // namespace

int tool_transfer(const std::string& state_dir, uint32_t to, bool as_json) {
    const int asked = order(state_dir, {{"cmd", "transfer"}, {"to", to}}, as_json);
    if (asked != kExitOk) return asked;
    const bool done = wait_until(
        [&] {
            const std::optional<Contact> now = find_contact(state_dir);
            return now && now->status.value("leader", 0u) == to;
        },
        kAnswerLimitMs);
    if (!as_json)
        std::cout << (done ? "replica " + std::to_string(to) + " is primary" : "it did not take over")
                  << "\n";
    return done ? kExitOk : kExitNo;
}

int tool_restart(const std::string& state_dir, const std::string& image, bool as_json) {
    const std::optional<Contact> before = find_contact(state_dir);
    json request = {{"cmd", "restart"}};
    if (before && !image.empty())
        request["image"] =
            checkpoint::image_sum_in(image)
                ? image
                : checkpoint::kImagePrefix + add_image(image, before->status.value("image_store", ""));
    const uint64_t generation = before ? before->status.value("generation", uint64_t{0}) : 0;
    const int asked = order(state_dir, request, as_json);
    if (asked != kExitOk) return asked;
    std::string unstarted;
    const bool done = wait_until(
        [&] {
            const std::optional<Contact> now = find_contact(state_dir);
            if (!now) return false;
            if (now->status.value("witness", false)) return true;  // it cannot tell
            if (now->status.value("generation", uint64_t{0}) <= generation) return false;
            const std::string last_end = now->status.value("last_end", "");
            const std::string state = now->status.value("server", "");
            const bool ended = state == "restarting" || state == "exited";
            if (ended && last_end.rfind(kUnstarted, 0) == 0) unstarted = last_end;
            return state == "listening" || !unstarted.empty();
        },
        kRestartLimitMs);
    if (!unstarted.empty())
        throw std::runtime_error(
            unstarted +
            "; it is tried again with growing pauses. Put it right, or order another one "
            "(crane restart, with --image if it runs on a base image)");
    const std::optional<Contact> now = find_contact(state_dir);
    if (done && request.contains("image") && now &&
        now->status.value("base_image", json()) != request["image"])
        throw std::runtime_error(
            "another server serves, but on the files that it had: try again (crane status --json)");
    if (!as_json)
        std::cout << (done ? "another server serves" : "no other server serves yet: see crane status")
                  << "\n";
    return done ? kExitOk : kExitNo;
}

std::string have_checkpoint_taken(const std::string& state_dir, uint64_t& decided) {
    const std::optional<Contact> before = find_contact(state_dir);
    if (!before) return "no replica here runs and knows a primary; try again (crane status)";
    decided = before->status.value("decided", uint64_t{0});
    const json answer = ask_primary(*before, {{"cmd", "checkpoint"}});
    if (answer.contains("error")) return answer["error"];
    bool done = false;
    wait_until(
        [&] {
            const std::optional<Contact> now = find_contact(state_dir);
            if (!now || !now->status.contains("checkpoint")) return false;
            const json& checkpoint = now->status["checkpoint"];
            done = checkpoint.value("majority_index", uint64_t{0}) >= decided;
            const bool tried = now->status["role"] == "primary" && !checkpoint.value("being_taken", false);
            return done || tried;
        },
        kCheckpointLimitMs);
    return done ? "" : "no majority holds one yet: see crane status";
}

int take_checkpoint(const std::string& state_dir, bool as_json) {
    uint64_t decided = 0;
    const std::string why_not = have_checkpoint_taken(state_dir, decided);
    if (as_json) {
        std::cout << (why_not.empty() ? json{{"ok", true}} : json{{"error", why_not}}).dump() << "\n";
    } else if (why_not.empty()) {
        std::cout << "a majority holds a checkpoint of the server as it runs\n";
    } else {
        std::cerr << "crane: " << why_not << "\n";
    }
    return why_not.empty() ? kExitOk : kExitNo;
}

int remake_server(const std::string& state_dir, uint32_t replica, bool as_json) {
    std::vector<ReplicaDir> here = find_replicas(state_dir);
    if (replica == 0 && here.size() > 1)
        throw std::runtime_error("checkpoint restore needs --replica: there are several here");
    std::erase_if(
        here, [replica](const ReplicaDir& one) { return replica != 0 && one.id != replica && one.id != 0; });
    if (here.empty()) throw std::runtime_error(state_dir + " holds no replica " + std::to_string(replica));
    const ReplicaDir& which = here.front();
    const json before = ask_craned(which.path, {{"cmd", "status"}});
    const json answer = ask_craned(which.path, {{"cmd", "remake"}});
    if (answer.contains("error")) {
        (as_json ? std::cout << answer.dump() : std::cerr << "crane: " << answer["error"].get<std::string>())
            << "\n";
        return kExitNo;
    }
    json now;
    const json::json_pointer counter("/counters/domain_restarts");
    const bool done = wait_until(
        [&] {
            now = ask_craned(which.path, {{"cmd", "status"}});
            return now.value(counter, 0) > before.value(counter, 0) && now.value("lag", 1) == 0 &&
                   (now.value("server", "") == "listening" || now.value("server", "") == "exited");
        },
        kCheckpointLimitMs);
    if (as_json) {
        std::cout << json{{"ok", done}, {"replica", now["replica"]}}.dump() << "\n";
    } else {
        std::cout << "replica " << now["replica"]
                  << (done ? ": its server was made anew, and has caught up"
                           : ": its server has not caught up yet; see crane status")
                  << "\n";
    }
    return done ? kExitOk : kExitNo;
}

int tool_signal(const std::string& state_dir, uint32_t signal, bool as_json) {
    return order(state_dir, {{"cmd", "signal"}, {"signal", signal}}, as_json);
}

}  // namespace crane::proxy
