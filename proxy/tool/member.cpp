// crane member: who the replicas are. A change is proposed by the primary, and done when it is decided.
#include <unistd.h>

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
constexpr useconds_t kPauseUs = 50'000;

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

/// Who is asked may end before it has told the answer: it is the one that was removed.
json ask_for_change(const Contact& contact, const json& order) {
    const bool of_itself = order["do"] == "remove" && order["id"] == contact.status["replica"];
    try {
        const json answer = ask_primary(contact, order);
        return of_itself && answer.value("unanswered", false) ? json{{"ok", true}} : answer;
    } catch (const std::runtime_error&) {
        if (!of_itself) throw;
        return {{"ok", true}};
    }
}

/// Asks until it is decided. What is only in the way for a moment is waited for.
json change(const std::string& state_dir, const std::string& what, uint32_t id, const std::string& address) {
    const uint64_t until_ns = monotonic_ns() + kPatienceNs;
    json last;  // status of whom was asked
    for (bool asked = false;; usleep(kPauseUs)) {
        const std::optional<Contact> contact = find_contact(state_dir);
        const bool late = monotonic_ns() > until_ns;
        if (!contact) {
            // The last one here was the one removed: its craned ends when that is decided.
            if (asked && what == "remove" && last["replica"] == id) return last;
            if (late) throw std::runtime_error("no replica here runs and knows a primary (crane status)");
            continue;
        }
        if (asked && done(contact->status, what, id)) return contact->status;
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
            const bool passing = error.find("try again") != std::string::npos ||
                                 error.find("under way") != std::string::npos ||
                                 error.find("is not primary") != std::string::npos;
            if (!asked && (!passing || late)) throw std::runtime_error(error);
        }
        if (late) throw std::runtime_error("it was proposed, and is not decided yet: see crane member list");
    }
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
    if (request.what == "replace") {
        const Contact primary = need_contact(state_dir, monotonic_ns() + kPatienceNs);
        const json* newcomer = find_member(primary.status, request.by);
        if (newcomer == nullptr || find_member(primary.status, id) == nullptr)
            throw std::runtime_error("both have to be members: add replica " + std::to_string(request.by) +
                                     " and start it first (crane member add)");
        if ((*newcomer)["voter"])
            throw std::runtime_error("replica " + std::to_string(request.by) +
                                     " votes already, so it can take nobody's place: to take replica " +
                                     std::to_string(id) + " away say crane member remove");
        for (const json& peer : primary.status["peers"])
            if (peer["replica"] == request.by && !peer["connected"])
                throw std::runtime_error("replica " + std::to_string(request.by) +
                                         " is not connected: start it first");
        change(state_dir, "remove", id, "");
        json status;
        try {
            status = change(state_dir, "promote", request.by, "");
        } catch (const std::runtime_error& error) {
            throw std::runtime_error(name + " is removed, and replica " + std::to_string(request.by) +
                                     " does not vote yet: " + error.what());
        }
        return finish(status, "replica " + std::to_string(request.by) + " votes in the place of " + name,
                      request.by, as_json);
    }
    const json status = change(state_dir, request.what, id, "");
    return finish(status, name + (request.what == "promote" ? " votes" : " is removed"), id, as_json);
}

}  // namespace crane::proxy
