// crane transfer, signal, and what else goes over the control sockets.
#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "checkpoint/image_store.hpp"
#include "proxy/tool/signal_name.hpp"
#include "proxy/tool/tools.hpp"

namespace crane::proxy {

using nlohmann::json;

namespace {

/// What a replica says of a server that had no beginning.
constexpr char kUnstarted[] = "the server could not be started";
constexpr int kLeadLimitMs = 5000;
constexpr int kRestartLimitMs = 60'000;  ///< behind the server's end
constexpr int kCheckpointLimitMs = 120'000;
constexpr int kCheckpointTries = 3;
/// A bound, no more: the primary gives up whoever takes one for an hour.
constexpr int kCheckpointRoundMs = 12 * 60 * 60'000;
constexpr int kFetchLimitMs = 600'000;
constexpr unsigned kFetchPollUs = 500'000;
/// For a server that is being begun, before another is ordered.
constexpr uint64_t kBegunLimitNs = 60'000'000'000;

/// Asks whoever leads; while another begins to, again: of what a replica refuses since it does not lead
/// nothing is done.
json ask_leader(const std::string& state_dir, const json& request, std::optional<Contact>& contact) {
    json answer;
    wait_until(
        [&] {
            contact = find_contact(state_dir);
            if (contact) answer = ask_primary(*contact, request);
            return contact && answer.value("error", "").find("is not primary") == std::string::npos;
        },
        kLeadLimitMs);
    if (contact) return answer;
    return {{"error", "no replica here runs and knows a primary; try again (crane status)"}};
}

/// The one thing that the command says: `text` for people.
int finish(bool done, const std::string& text, bool as_json) {
    if (as_json)
        std::cout << (done ? json{{"ok", true}} : json{{"error", text}}).dump() << "\n";
    else
        std::cout << text << "\n";
    return done ? kExitOk : kExitNo;
}

/// Orders the primary, whichever it is and wherever; `before`: as it was just before it was asked. Says why
/// where it is refused, and else nothing: what comes of it is to be seen yet.
int order(const std::string& state_dir, const json& request, bool as_json,
          std::optional<Contact>* before = nullptr) {
    std::optional<Contact> contact;
    json answer;
    const uint64_t begun_by_ns = monotonic_ns() + kBegunLimitNs;
    wait_until(
        [&] {
            answer = ask_leader(state_dir, request, contact);
            const bool begins = answer.value("beginning", false) && monotonic_ns() < begun_by_ns;
            return !answer.value("fetching", false) && !begins;
        },
        kFetchLimitMs, kFetchPollUs);
    if (!contact) throw std::runtime_error(answer["error"]);
    if (before) *before = contact;
    if (!answer.contains("error")) return kExitOk;
    if (as_json)
        std::cout << answer.dump() << "\n";
    else
        std::cerr << "crane: " << answer["error"].get<std::string>() << "\n";
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
        kLeadLimitMs);
    return finish(done, done ? "replica " + std::to_string(to) + " is primary" : "it did not take over",
                  as_json);
}

int tool_restart(const std::string& state_dir, const RestartRequest& wanted, bool as_json) {
    const std::string& image = wanted.image;
    std::optional<Contact> before = find_contact(state_dir);
    json request = {{"cmd", "restart"}};
    if (is_remote(state_dir) && !image.empty() && !checkpoint::image_sum_in(image))
        throw std::runtime_error("--image " + image +
                                 ": from elsewhere an image is named (sha256:…); put the file into "
                                 "the store of a replica's host first (crane image add)");
    if (before && !image.empty())
        request["image"] =
            checkpoint::image_sum_in(image)
                ? image
                : checkpoint::kImagePrefix + add_image(image, before->status.value("image_store", ""));
    if (wanted.within_s) request["within_s"] = *wanted.within_s;
    const uint32_t within_s = wanted.within_s.value_or(before ? before->status.value("stop_s", 10u) : 10);
    const int asked = order(state_dir, request, as_json, &before);
    if (asked != kExitOk) return asked;
    const uint64_t generation = before->status.value("generation", uint64_t{0});
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
            // What was there before is tried again until the order comes.
            const bool ordered =
                !request.contains("image") || now->status.value("base_image", json()) == request["image"];
            if (ended && ordered && last_end.rfind(kUnstarted, 0) == 0) unstarted = last_end;
            return state == "listening" || !unstarted.empty();
        },
        kRestartLimitMs + static_cast<int>(within_s) * 1000);
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
    return finish(done, done ? "another server serves" : "no other server serves yet: see crane status",
                  as_json);
}

int tool_base(const std::string& state_dir, uint32_t replica, bool as_json) {
    uint64_t decided = 0;
    for (const json& row : ask_all(state_dir)) decided = std::max(decided, row.value("decided", uint64_t{0}));
    const int asked = order(state_dir, {{"cmd", "base"}, {"from", replica}}, as_json);
    if (asked != kExitOk) return asked;
    const auto level = [decided](const json& row) {
        if (!row.value("alive", false) || row.value("witness", false)) return true;
        const json::json_pointer checkpoint("/checkpoint/index");
        return row.value("fenced", "?").empty() && row.value("server", "") == "listening" &&
               row.value(checkpoint, uint64_t{0}) > decided;
    };
    const bool done = wait_until(
        [&] {
            const json rows = ask_all(state_dir);
            return std::all_of(rows.begin(), rows.end(), level);
        },
        kCheckpointLimitMs, 100'000);
    return finish(done,
                  done ? "all replicas here go on from the state of replica " + std::to_string(replica)
                       : "it is decided, and not all replicas here have begun from that state yet: see "
                         "crane status",
                  as_json);
}

std::string have_checkpoint_taken(const std::string& state_dir, uint64_t& decided) {
    std::optional<Contact> before;
    const json answer = ask_leader(state_dir, {{"cmd", "checkpoint"}}, before);
    if (answer.contains("error")) return answer["error"];
    decided = before->status.value("decided", uint64_t{0});
    bool done = false;
    int tries = kCheckpointTries;
    uint64_t heard_ns = monotonic_ns();
    const auto is_over = [&] {
        const std::optional<Contact> now = find_contact(state_dir);
        const bool known = now && now->status.contains("checkpoint");
        const json& checkpoint = known ? now->status["checkpoint"] : json::object();
        done = checkpoint.value("majority_index", uint64_t{0}) >= decided;
        // A large server's takes minutes.
        const bool primary = known && now->status["role"] == "primary";
        const bool being_taken = checkpoint.value("being_taken", false);
        if (being_taken) heard_ns = monotonic_ns();
        if (done || monotonic_ns() - heard_ns > kCheckpointLimitMs * uint64_t{1'000'000}) return true;
        if (!primary || being_taken) return false;
        // A server under load may not rest in time for one, and does for the next.
        std::optional<Contact> again;
        return --tries == 0 || ask_leader(state_dir, {{"cmd", "checkpoint"}}, again).contains("error");
    };
    wait_until(is_over, kCheckpointRoundMs, 20'000);
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
    const std::vector<ReplicaDir> here = chosen_replicas(state_dir, replica);
    if (here.size() > 1)
        throw std::runtime_error("checkpoint restore needs --replica: there are several here");
    const ReplicaDir& which = here.front();
    const json before = ask_replica(which, {{"cmd", "status"}});
    const json answer = ask_replica(which, {{"cmd", "remake"}});
    if (answer.contains("error")) {
        (as_json ? std::cout << answer.dump() : std::cerr << "crane: " << answer["error"].get<std::string>())
            << "\n";
        return kExitNo;
    }
    json now;
    const json::json_pointer counter("/counters/domain_restarts");
    const bool done = wait_until(
        [&] {
            now = ask_replica(which, {{"cmd", "status"}});
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

int tool_signal(const std::string& state_dir, const std::string& signal, bool as_json) {
    const int asked = order(state_dir, {{"cmd", "signal"}, {"signal", signal_number(signal)}}, as_json);
    if (asked == kExitOk && as_json) std::cout << json{{"ok", true}}.dump() << "\n";
    return asked;
}

}  // namespace crane::proxy
