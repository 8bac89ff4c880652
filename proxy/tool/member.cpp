// crane member: who the replicas are. A change is proposed by the primary, and done when it is decided.
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <vector>

#include "base/clock.hpp"
#include "proxy/tool/tools.hpp"

namespace crane::proxy {

using nlohmann::json;

namespace {

constexpr uint64_t kPatienceNs = 10'000'000'000;
constexpr useconds_t kPauseUs = 50'000, kLevelPauseUs = 200'000;
/// Of a learner that is level. The primary lets nobody vote who is further behind than its pipeline is long,
/// twice this.
constexpr uint64_t kLevelEntries = 512;
constexpr uint64_t kSilentMs = 500;
constexpr char kNotConnected[] = "is not connected";

Contact need_contact(const std::string& state_dir, uint64_t until_ns) {
    for (;;) {
        if (auto contact = find_contact(state_dir)) return *contact;
        if (monotonic_ns() > until_ns)
            throw std::runtime_error("no replica here runs and knows a primary (crane status)");
        usleep(kPauseUs);
    }
}

const json* find_member(const json& status, uint32_t id) {
    for (const json& member : status["membership"]["members"])
        if (member["replica"] == id) return &member;
    return nullptr;
}

bool done(const json& status, const std::string& what, uint32_t id) {
    if (!status["membership"]["decided"]) return false;
    const json* member = find_member(status, id);
    if (what == "add") return member != nullptr;
    if (what == "promote") return member != nullptr && (*member)["voter"];
    return member == nullptr;
}

/// Somebody else has to lead before the primary can be removed. Whoever of them takes it: he who asks is
/// heard first, and the answer may be that another one leads meanwhile.
void move_primary_away(const Contact& contact, uint32_t id) {
    std::vector<uint32_t> others;
    if (contact.status["replica"] != id) others.push_back(contact.status["replica"].get<uint32_t>());
    for (const json& peer : contact.status["peers"])
        if (peer["replica"] != id && peer["voter"] && !peer["rejoining"] && peer["connected"])
            others.push_back(peer["replica"].get<uint32_t>());
    for (const uint32_t to : others)
        if (!ask_primary(contact, {{"cmd", "transfer"}, {"to", to}}).contains("error")) return;
}

int finish(const json& status, const std::string& text, uint32_t id, bool as_json) {
    if (as_json)
        std::cout << json{{"replica", id}, {"membership", status["membership"]}}.dump(1) << "\n";
    else
        std::cout << text << "\n";
    return kExitOk;
}

/// Whoever is asked may end, or no longer lead, before it has told the answer.
json ask_for_change(const Contact& contact, const json& order) {
    try {
        return ask_primary(contact, order);
    } catch (const std::runtime_error& error) {
        return {{"unanswered", true}, {"error", error.what()}};
    }
}

/// What is only in the way for a moment.
bool is_passing(const std::string& error) {
    for (const char* words : {"try again", "under way", "is not primary"})
        if (error.find(words) != std::string::npos) return true;
    return false;
}

/// Asks until it is decided. What is only in the way for a moment is waited for. Where no answer came, it may
/// be decided all the same: that is looked at before it is asked for again, and what is refused then may be
/// refused since it is done already, which who is asked here has still to learn.
json change(const std::string& state_dir, const std::string& what, uint32_t id, const std::string& address) {
    uint64_t until_ns = monotonic_ns() + kPatienceNs;
    json last;  // status of whom was asked
    for (bool asked = false, maybe = false;; usleep(kPauseUs)) {
        const std::optional<Contact> contact = find_contact(state_dir);
        const bool late = monotonic_ns() > until_ns;
        if (!contact) {
            // The last one here was the one removed: its craned ends when that is decided.
            if ((asked || maybe) && what == "remove" && last["replica"] == id) return last;
            if (late) throw std::runtime_error("no replica here runs and knows a primary (crane status)");
            continue;
        }
        if ((asked || maybe) && done(contact->status, what, id)) return contact->status;
        last = contact->status;
        if (!asked && what == "remove" && last["leader"] == id) {
            if (late)
                throw std::runtime_error("replica " + std::to_string(id) + " leads, and nobody else could");
            move_primary_away(*contact, id);
        } else if (!asked) {
            const json answer =
                ask_for_change(*contact, {{"cmd", "member"}, {"do", what}, {"id", id}, {"address", address}});
            asked = !answer.contains("error");
            const std::string error = answer.value("error", "");
            if (answer.value("unanswered", false) && !maybe) {
                maybe = true;
                until_ns = monotonic_ns() + kPatienceNs;
            } else if (!asked && (late || !(maybe || is_passing(error)))) {
                throw std::runtime_error(error);
            }
            if (!asked) continue;
        }
        if (late) throw std::runtime_error("it was proposed, and is not decided yet: see crane member list");
    }
}

/// What the primary says, wherever it is: how far the others are it alone knows.
json primary_status(const std::string& state_dir) {
    for (const uint64_t until_ns = monotonic_ns() + kPatienceNs;; usleep(kPauseUs)) {
        const Contact contact = need_contact(state_dir, until_ns);
        if (contact.status["role"] == "primary") return contact.status;
        json status;
        try {
            const uint32_t leader = contact.status["leader"];
            status = ask_replica({leader, contact.dir.path, true}, {{"cmd", "status"}});
        } catch (const std::runtime_error& error) {
            status = {{"error", error.what()}};
        }
        if (status.value("role", "") == "primary") return status;
        if (monotonic_ns() > until_ns)
            throw std::runtime_error("the primary does not say how far the others are: " +
                                     status.value("error", "another one leads by now; try again"));
    }
}

std::string name_of(uint32_t id) {
    return "replica " + std::to_string(id);
}

/// One line for whoever waits: on a terminal how it gets on, else that it is waited.
class Waiting {
  public:
    ~Waiting() {
        if (said_ && terminal_) std::cerr << kClearLine << std::flush;
    }
    void say(const std::string& text) {
        if (terminal_) std::cerr << kClearLine << text << std::flush;
        if (!terminal_ && !said_) std::cerr << text << "\n";
        said_ = true;
    }

  private:
    static constexpr char kClearLine[] = "\r\033[K";
    bool terminal_ = isatty(STDERR_FILENO) == 1;
    bool said_ = false;
};

/// With OLD gone nothing but the vote of the newcomer makes up for it: it has to be ready before.
void wait_until_level(const std::string& state_dir, const MemberRequest& request) {
    const uint64_t until_ns = monotonic_ns() + uint64_t{request.wait_s} * 1'000'000'000;
    Waiting waiting;
    for (bool first = true;; first = false, usleep(kLevelPauseUs)) {
        const json status = primary_status(state_dir);
        const std::string why_not = why_not_level(status, request.by);
        if (why_not.empty()) return;
        const bool absent = first && why_not == kNotConnected;
        if (absent || monotonic_ns() >= until_ns)
            throw std::runtime_error(name_of(request.by) + " " + why_not + ": " + name_of(request.id) +
                                     " was not removed, and nothing has changed. " +
                                     (absent ? "Start it first" : "Say it again when it has caught up") +
                                     " (crane member list)");
        waiting.say(name_of(request.by) + " " + why_not + "; waiting, nothing has changed yet");
    }
}

/// OLD is gone by now: what is in the way of the vote for a moment (a new primary, say) is waited for.
json promote_newcomer(const std::string& state_dir, const MemberRequest& request) {
    for (const uint64_t until_ns = monotonic_ns() + kPatienceNs;; usleep(kPauseUs)) {
        try {
            return change(state_dir, "promote", request.by, "");
        } catch (const std::runtime_error& error) {
            if (monotonic_ns() > until_ns)
                throw std::runtime_error(name_of(request.id) + " is removed, and " + name_of(request.by) +
                                         " does not vote yet: " + error.what() +
                                         ". Say the same again: it goes on from there");
        }
    }
}

int replace(const std::string& state_dir, const MemberRequest& request, bool as_json) {
    const json status = primary_status(state_dir);
    const std::string old = name_of(request.id), newcomer = name_of(request.by);
    const json* taking = find_member(status, request.by);
    const bool there = find_member(status, request.id) != nullptr;
    // One that is gone was removed, most likely by the command that this one repeats.
    const bool removed = !there && request.id <= status["membership"]["highest_id"];
    if (!there && !removed) throw std::runtime_error(old + " has never been a member (crane member list)");
    if (taking == nullptr)
        throw std::runtime_error(newcomer + " is not a member: add and start it first (crane member add)");
    const std::string done_text = newcomer + " votes in the place of " + old;
    if ((*taking)["voter"] && removed) return finish(status, done_text, request.by, as_json);
    if ((*taking)["voter"])
        throw std::runtime_error(newcomer + " votes already, so it can take nobody's place: to take " + old +
                                 " away say crane member remove");
    wait_until_level(state_dir, request);
    if (there) change(state_dir, "remove", request.id, "");
    return finish(promote_newcomer(state_dir, request), done_text, request.by, as_json);
}

int list(const std::string& state_dir, bool as_json) {
    json status;
    for (const ReplicaDir& replica : find_replicas(state_dir)) {
        try {
            json one = ask_replica(replica, {{"cmd", "status"}});
            if (status.is_null() || one["role"] == "primary") status = std::move(one);
        } catch (const std::runtime_error&) {
            continue;
        }
    }
    if (status.is_null()) throw std::runtime_error("no replica runs");
    const json& membership = status["membership"];
    if (as_json) {
        std::cout << membership.dump(1) << "\n";
        return kExitOk;
    }
    printf("%-8s %-8s %-28s %10s  %s\n", "replica", "votes", "peer address", "has", "state");
    for (const json& member : membership["members"]) {
        std::string state = member["replica"] == status["replica"] ? status["role"] : "";
        std::string has;
        for (const json& peer : status["peers"]) {
            if (peer["replica"] != member["replica"]) continue;
            state = peer["connected"] ? "connected" : "not connected";
            if (peer["rejoining"]) state += ", rejoining";
            if (peer["needs_checkpoint"]) state += ", needs a checkpoint";
            if (status["role"] == "primary") has = std::to_string(peer["matched"].get<uint64_t>());
        }
        if (has.empty() && member["replica"] == status["replica"])
            has = std::to_string(status["decided"].get<uint64_t>());
        printf("%-8u %-8s %-28s %10s  %s\n", member["replica"].get<uint32_t>(),
               member["voter"] ? "yes" : "learner", member["address"].get<std::string>().c_str(), has.c_str(),
               state.c_str());
    }
    if (!membership["decided"])
        printf("this is proposed (entry %lu) and not decided yet\n", membership["index"].get<uint64_t>());
    return kExitOk;
}

}  // namespace

std::string why_not_level(const json& primary, uint32_t id) {
    for (const json& peer : primary["peers"]) {
        if (peer["replica"] != id) continue;
        const uint64_t matched = peer["matched"], decided = primary["decided"];
        const uint64_t behind = decided - std::min(matched, decided);
        if (!peer["connected"]) return kNotConnected;
        if (peer["heard_ms_ago"] > kSilentMs) return "does not answer";
        if (peer["rejoining"]) return "has lost its database and has not got all of it again";
        if (peer["needs_checkpoint"]) return "has not got the checkpoint yet that it begins with";
        if (matched == 0) return "has nothing of the log yet";
        if (behind > kLevelEntries) return "is " + std::to_string(behind) + " log entries behind";
        return "";
    }
    return "is not a member";
}

int tool_member(const std::string& state_dir, const MemberRequest& request, bool as_json) {
    if (request.what == "list") return list(state_dir, as_json);
    uint32_t id = request.id;
    const std::string name = "replica " + std::to_string(id);
    if (request.what == "add") {
        const Contact primary = need_contact(state_dir, monotonic_ns() + kPatienceNs);
        if (id == 0) id = primary.status["membership"]["highest_id"].get<uint32_t>() + 1;
        const json status = change(state_dir, "add", id, request.address);
        return finish(
            status,
            "replica " + std::to_string(id) +
                " is a learner. Start its craned with replica_id = " + std::to_string(id) +
                ", join = true under [consensus] and, where the others have [tls], a certificate of "
                "its own (crane ca issue), then: crane member promote " +
                std::to_string(id),
            id, as_json);
    }
    if (request.what == "replace") return replace(state_dir, request, as_json);
    const json status = change(state_dir, request.what, id, "");
    return finish(status, name + (request.what == "promote" ? " votes" : " is removed"), id, as_json);
}

}  // namespace crane::proxy
