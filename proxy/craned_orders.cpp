// What craned is asked: at its control socket, by operators elsewhere, and by other replicas for theirs.
#include <event2/event.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "checkpoint/image_store.hpp"
#include "proxy/craned.hpp"
#include "proxy/log_words.hpp"
#include "proxy/operator_mail.hpp"

namespace crane::proxy {

namespace {

constexpr timeval kStopDelay{0, 20'000};
constexpr uint32_t kMaxStopSeconds = 86'400;
constexpr size_t kLogPieceEntries = 256, kLogPieceBytes = 256 * 1024, kLogPieceCalls = 200;

/// One of 32 bits: a larger one must not be taken for another.
std::optional<uint32_t> number_in(const nlohmann::json& request, const char* key) {
    const auto found = request.find(key);
    if (found == request.end() || !found->is_number_unsigned() || *found > UINT32_MAX) return std::nullopt;
    return found->get<uint32_t>();
}

std::string needs_number(const std::string& command, const char* key) {
    return command + " needs \"" + key + "\": a number up to " + std::to_string(UINT32_MAX);
}

}  // namespace

std::string Craned::change_membership(const nlohmann::json& request) {
    const std::map<std::string, paxos::ChangeKind> kinds = {{"add", paxos::ChangeKind::kAdd},
                                                            {"promote", paxos::ChangeKind::kPromote},
                                                            {"remove", paxos::ChangeKind::kRemove}};
    const auto kind = kinds.find(request.value("do", ""));
    if (kind == kinds.end()) return "member needs \"do\": add, promote or remove";
    if (!request.contains("id") || !request["id"].is_number_unsigned() || request["id"] > kMaxReplicaId)
        return "member needs \"id\": a number up to " + std::to_string(kMaxReplicaId);
    return replica_->change_membership({kind->second, request["id"], request.value("address", "")});
}

/// What only the primary can do; a backup hands it on and says where the answer will be.
nlohmann::json Craned::order(const nlohmann::json& request) {
    const std::string command = request.value("cmd", "");
    looked_ = nullptr;  // who gives an order looks at what has come of it
    std::string error;
    bool fetching = false;
    if (command == "member") {
        error = change_membership(request);
    } else if (command == "restart") {
        const std::string name = request.value("image", "");
        const auto image = checkpoint::image_sum_in(name);
        const auto within_s = number_in(request, "within_s");
        if (!name.empty() && !image) {
            error = "\"" + name + "\" is no base image's name (sha256:…)";
        } else if (request.contains("within_s") &&
                   (!within_s || *within_s == 0 || *within_s > kMaxStopSeconds)) {
            error =
                "restart: \"within_s\" is to be a number of seconds, 1 to " + std::to_string(kMaxStopSeconds);
        } else if (lost_ns_ != 0 || replica_->begins_server()) {
            // It would be for one that perhaps cannot be started, or be forgotten with this try to start it.
            return {
                {"error",
                 "the server is being begun where this replica leads: try again in a moment (crane status)"},
                {"beginning", true}};
        } else {
            error = replica_->restart_server(image, within_s);
            fetching = !error.empty() && replica_->fetches_image();
        }
    } else if (command == "checkpoint") {
        error = replica_->take_checkpoint();
    } else if (command == "base") {
        const auto from = number_in(request, "from");
        error = from ? replica_->choose_base(*from) : needs_number(command, "from");
    } else if (command == "transfer") {
        const auto to = number_in(request, "to");
        error = to ? replica_->transfer(*to) : needs_number(command, "to");
    } else {
        const auto signal = number_in(request, "signal");
        error = signal ? replica_->signal_server(*signal) : needs_number(command, "signal");
    }
    if (error.empty()) return {{"ok", true}};
    return {{"error", error}, {"fetching", fetching}};
}

/// To that replica, or to the primary; says where the answer will be.
nlohmann::json Craned::hand_on(uint32_t replica, const nlohmann::json& request) {
    const uint32_t primary = replica_->leader();
    const uint32_t to = replica != 0 ? replica : primary;
    const uint64_t number = to != 0 ? replica_->mail().ask(to, request) : 0;
    if (number == 0) {
        return {{"error",
                 to == 0 ? std::string("there is no primary now; try again")
                         : (replica == 0 ? "the primary, replica " : "replica ") + std::to_string(to) +
                               (replica == 0
                                    ? ", is not connected; try again"
                                    : " is not connected to replica " + std::to_string(config_.replica_id))}};
    }
    return {{"ok", true}, {"forwarded", to}, {"answer", number}};
}

/// A piece of it: so many entries and bytes that the loop is not held up.
nlohmann::json Craned::read_log(const nlohmann::json& request) {
    const uint64_t from = request.value("from", uint64_t{1}), to = request.value("to", UINT64_MAX);
    nlohmann::json entries = nlohmann::json::array();
    const auto first_call = request.value("first_call", size_t{0});  // of that entry
    size_t bytes = 0;
    for (const paxos::Entry& entry : replica_->read_decided(std::max<uint64_t>(from, 1))) {
        if (entry.index > to || entries.size() == kLogPieceEntries || bytes > kLogPieceBytes) break;
        entries.push_back(entry_json(entry, kLogPieceCalls, entry.index == from ? first_call : 0));
        bytes += entries.back().dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).size();
    }
    return {{"ok", true}, {"first_call", first_call}, {"entries", entries}};
}

/// By another replica, for its operator.
void Craned::asked(const nlohmann::json& request, Readings::Reply reply) {
    const std::string command = request.value("cmd", "");
    if (Readings::knows(command)) {
        replica_->flush_log();
        readings_->ask(request, std::move(reply));
    } else if (command == "status") {
        reply(recent_status());
    } else if (command == "log") {
        reply(read_log(request));
    } else if (command == "audit") {
        reply(note_audit(request));
    } else if (command == "remake") {
        reply(remake());
    } else {
        reply(order(request));
    }
}

nlohmann::json Craned::remake() {
    const std::string error =
        stopping_ || lost_ns_ != 0 ? "its server is being started" : replica_->remake_server();
    return error.empty() ? nlohmann::json{{"ok", true}} : nlohmann::json{{"error", error}};
}

nlohmann::json Craned::note_audit(const nlohmann::json& request) {
    const std::string error = audit_.take(request, time(nullptr));
    return error.empty() ? nlohmann::json{{"ok", true}} : nlohmann::json{{"error", error}};
}

nlohmann::json Craned::answer(const nlohmann::json& request) const {
    if (!request.contains("id") || !request["id"].is_number_unsigned())
        return {{"error", "answer needs \"id\": a number"}};
    const uint64_t number = request["id"];
    const std::string reply =
        number > Readings::kFirstNumber ? readings_->answer(number) : replica_->mail().answer(number);
    if (reply.empty()) return {{"pending", true}};
    const nlohmann::json parsed = nlohmann::json::parse(reply, nullptr, false);
    return parsed.is_object() ? parsed : nlohmann::json{{"error", "its answer cannot be read"}};
}

nlohmann::json Craned::set_level(const nlohmann::json& request) {
    const std::string level = request.value("level", "");
    const auto known = spdlog::level::from_str(level);
    if (known == spdlog::level::off) {
        return {{"error", "log-level needs \"level\": trace, debug, info, warning or error"}};
    }
    spdlog::set_level(known);
    return {{"ok", true}};
}

nlohmann::json Craned::handle(const nlohmann::json& request) {
    const std::string command = request["cmd"];
    if (!is_own(request)) {
        const nlohmann::json& whose = request["replica"];
        if (!whose.is_number_unsigned() || whose == 0 || whose > kMaxReplicaId)
            return {{"error", "\"replica\" is its number"}};
        if (command == "status" || command == "remake" || command == "audit" || command == "log" ||
            Readings::knows(command))
            return hand_on(whose, request);
        return {{"error", "\"" + command + "\" is not handed on to another replica"}};
    }
    if (command == "status") return status();
    if (command == "audit") return note_audit(request);
    if (command == "log") return read_log(request);
    if (Readings::knows(command)) {
        replica_->flush_log();
        return {{"ok", true}, {"answer", readings_->begin(request)}};
    }
    if (command == "answer") return answer(request);
    if (command == "log-level") return set_level(request);
    if (command == "transfer" || command == "signal" || command == "restart" || command == "checkpoint" ||
        command == "member" || command == "base")
        return replica_->leads() ? order(request) : hand_on(0, request);
    if (command == "remake") return remake();
    if (command == "stop") {
        // A moment later, so that the answer still leaves.
        event_base_once(
            base_, -1, EV_TIMEOUT,
            [](int, short, void* self) {
                static_cast<Craned*>(self)->begin_stop("asked to on the control socket");
            },
            this, &kStopDelay);
        return {{"ok", true}};
    }
    return {{"error",
             "no command \"" + command +
                 "\"; there are status, stop, transfer, member, signal, restart, checkpoint, remake, base, "
                 "output, log, audit, answer and log-level"}};
}

}  // namespace crane::proxy
