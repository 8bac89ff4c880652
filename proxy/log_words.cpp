#include "proxy/log_words.hpp"

#include <string.h>

#include <algorithm>
#include <ctime>
#include <map>
#include <nlohmann/json.hpp>

#include "paxos/core/describe.hpp"
#include "proxy/client_connection.hpp"
#include "proxy/output_words.hpp"
#include "timebubble/batch.hpp"

namespace crane::proxy {

using nlohmann::json;
using timebubble::Call;
using timebubble::CallKind;

namespace {

constexpr size_t kExcerptBytes = 60;

const char* call_name(CallKind kind) {
    switch (kind) {
        case CallKind::kGenesis:
            return "genesis";
        case CallKind::kConnect:
            return "connect";
        case CallKind::kSend:
            return "send";
        case CallKind::kShutdown:
            return "shutdown";
        case CallKind::kReset:
            return "reset";
        case CallKind::kWindow:
            return "window";
        case CallKind::kSignal:
            return "signal";
        case CallKind::kStart:
            return "start";
        case CallKind::kStop:
            return "stop";
        case CallKind::kProgram:
            return "program";
        case CallKind::kDatagram:
            return "datagram";
        case CallKind::kBase:
            return "base";
        case CallKind::kConnected:
            return "connected";
        case CallKind::kResolved:
            return "resolved";
    }
    return "unknown";
}

uint64_t number_in(std::string_view payload) {
    uint64_t out = 0;
    memcpy(&out, payload.data(), std::min(payload.size(), sizeof(out)));
    return out;
}

std::string excerpt(std::string_view bytes) {
    return std::to_string(bytes.size()) + " bytes: \"" + printable(bytes.substr(0, kExcerptBytes)) +
           (bytes.size() > kExcerptBytes ? "…\"" : "\"");
}

/// How the server before has ended, where that was decided.
std::string start_detail(std::string_view payload) {
    timebubble::StartPayload start{};
    memcpy(&start, payload.data(), std::min(payload.size(), sizeof(start)));
    std::string number = "server " + std::to_string(start.generation);
    if (start.end_clock != 0)
        return number + "; the one before is ended at clock " + std::to_string(start.end_clock);
    if (start.end_steps == timebubble::kUnstartedSteps)
        return number + "; the one before could not be started, and is given up";
    return number;
}

/// What the call carries, in words. The genesis is a secret and is not shown.
std::string call_detail(const Call& call) {
    if (call.kind == CallKind::kConnect && call.payload.size() == sizeof(timebubble::ConnectPayload)) {
        timebubble::ConnectPayload from;
        memcpy(&from, call.payload.data(), sizeof(from));
        return "from " + address_text(from.family, from.peer, from.peer_port) + " to port " +
               std::to_string(from.listen_port);
    }
    if (call.kind == CallKind::kSend) return excerpt(call.payload);
    if (call.kind == CallKind::kDatagram && call.payload.size() >= sizeof(timebubble::DatagramPayload)) {
        timebubble::DatagramPayload from;
        memcpy(&from, call.payload.data(), sizeof(from));
        return "from " + address_text(from.family, from.peer, from.peer_port) + " to port " +
               std::to_string(from.port) + ", " + excerpt(call.payload.substr(sizeof(from)));
    }
    if (call.kind == CallKind::kConnected && call.payload.size() == sizeof(timebubble::ConnectedPayload)) {
        timebubble::ConnectedPayload made;
        memcpy(&made, call.payload.data(), sizeof(made));
        if (made.error != 0) return std::string("to the outside: ") + strerror(made.error);
        return "to the outside, from " + address_text(made.family, made.local, made.local_port);
    }
    if (call.kind == CallKind::kStart) return start_detail(call.payload);
    if (call.kind == CallKind::kBase) return "is replica " + std::to_string(number_in(call.payload));
    if (call.kind == CallKind::kWindow) return "up to byte " + std::to_string(number_in(call.payload));
    if (call.kind == CallKind::kProgram)
        return "of server " + std::to_string(number_in(call.payload)) + ": " +
               std::to_string(std::count(call.payload.begin(), call.payload.end(), '\n')) + " files";
    if (call.kind == CallKind::kSignal) return std::to_string(number_in(call.payload));
    return "";
}

std::string time_text(uint64_t ns) {
    const time_t seconds = static_cast<time_t>(ns / 1'000'000'000);
    tm parts{};
    gmtime_r(&seconds, &parts);
    char text[64];
    const size_t end = strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &parts);
    snprintf(text + end, sizeof(text) - end, ".%09luZ", ns % 1'000'000'000);
    return text;
}

}  // namespace

json entry_json(const paxos::Entry& entry, size_t max_calls, size_t first_call) {
    json out = {{"index", entry.index}, {"view", paxos::view_name(entry.view)}};
    if (entry.kind != paxos::EntryKind::kValue) {
        const std::map<paxos::EntryKind, const char*> names = {{paxos::EntryKind::kNewView, "new-view"},
                                                               {paxos::EntryKind::kReturn, "return"},
                                                               {paxos::EntryKind::kMembership, "members"},
                                                               {paxos::EntryKind::kStart, "start"}};
        out["kind"] = names.at(entry.kind);
        if (entry.kind != paxos::EntryKind::kNewView) out["detail"] = paxos::describe_value(entry);
        return out;
    }
    timebubble::BatchDecoder batch;
    if (!batch.open(reinterpret_cast<const uint8_t*>(entry.value->data()), entry.value->size())) {
        out["kind"] = "damaged";
        return out;
    }
    out["kind"] = batch.header().calls == 0 ? "bubble" : "batch";
    out["time"] = time_text(batch.header().timestamp_ns);
    out["timestamp_ns"] = batch.header().timestamp_ns;
    out["grant_clocks"] = batch.header().grant_clocks;
    out["calls"] = json::array();
    size_t passed = 0;
    for (Call call; batch.next(call);) {
        if (passed++ < first_call) continue;
        if (out["calls"].size() >= max_calls) {
            out["calls_left_out"] = batch.header().calls - first_call - max_calls;
            break;
        }
        json one = {
            {"call", call_name(call.kind)}, {"bytes", call.payload.size()}, {"detail", call_detail(call)}};
        if (call.connection != 0) {
            char id[20];
            snprintf(id, sizeof(id), "%lx", call.connection);
            one["connection"] = id;
        }
        out["calls"].push_back(std::move(one));
    }
    return out;
}

}  // namespace crane::proxy
