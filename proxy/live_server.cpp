#include "proxy/live_server.hpp"

#include <string.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "proxy/impossible_output.hpp"
#include "timebubble/limits.hpp"

namespace crane::proxy {

using nlohmann::json;
using timebubble::ListenRecord;
using timebubble::OutputKind;

namespace {

bool same_socket(const ListenRecord& a, const ListenRecord& b) {
    return a.protocol == b.protocol && a.family == b.family && a.port == b.port &&
           memcmp(a.address, b.address, sizeof(a.address)) == 0;
}

json listener_json(const ListenRecord& one) {
    return {{"family", one.family},
            {"port", one.port},
            {"defer_accept_s", one.defer_accept_s},
            {"places", one.places},
            {"protocol", one.protocol},
            {"address", std::vector<uint8_t>(one.address, one.address + sizeof(one.address))}};
}

ListenRecord listener_from(const json& in) {
    ListenRecord one{};
    one.family = in.at("family").get<uint16_t>();
    one.port = in.at("port").get<uint16_t>();
    one.defer_accept_s = in.at("defer_accept_s").get<uint16_t>();
    one.places = in.at("places").get<uint32_t>();
    one.protocol = in.value("protocol", 0U);  // an earlier version knew TCP alone
    const auto address = in.at("address").get<std::vector<uint8_t>>();
    if (address.size() != sizeof(one.address))
        throw json::other_error::create(501, "no address of a listener", &in);
    std::copy(address.begin(), address.end(), one.address);
    return one;
}

json words_json(const DomainWords& words) {
    return {words.transport_version, words.server_pid,     words.processes,  words.admitted_index,
            words.grant_end,         words.files_since_ns, words.input_rings};
}

DomainWords words_from(const json& in) {
    return {in.at(0).get<uint32_t>(),
            in.at(1).get<uint32_t>(),
            in.at(2).get<uint32_t>(),
            in.at(3).get<uint64_t>(),
            in.at(4).get<uint64_t>(),
            in.at(5).get<uint64_t>(),
            in.size() > 6 ? in[6].get<uint32_t>() : DomainWords::kUnknownRings};
}

/// In order, so that equal servers have equal texts.
json open_json(const ConnectionTable::Map& open) {
    const std::map<uint64_t, ConnectionState> sorted(open.begin(), open.end());
    json out = json::array();
    for (const auto& [id, one] : sorted)
        out.push_back({id, one.input, one.sent, one.window_end, one.input_ended, one.output_ended});
    return out;
}

ConnectionTable::Map open_from(const json& in) {
    ConnectionTable::Map out;
    for (const json& one : in)
        out[one.at(0).get<uint64_t>()] = {one.at(1).get<uint64_t>(), one.at(2).get<uint64_t>(),
                                          one.at(3).get<uint64_t>(), one.at(4).get<bool>(),
                                          one.size() > 5 && one[5].get<bool>()};  // an earlier version's
    return out;
}

json account_json(const DomainAccount::Kept& kept) {
    json connections = json::array(), places = json::array();
    for (const DomainAccount::KeptConnection& one : kept.connections)
        connections.push_back({one.id, one.port, one.accepted, one.reset, one.received, one.consumed});
    for (const auto& [port, count] : kept.places) places.push_back({port, count});
    return {{"connections", connections}, {"places", places}};
}

DomainAccount::Kept account_from(const json& in) {
    DomainAccount::Kept out;
    for (const json& one : in.at("connections"))
        out.connections.push_back({one.at(0).get<uint64_t>(), one.at(1).get<uint16_t>(),
                                   one.at(2).get<bool>(), one.at(3).get<bool>(), one.at(4).get<uint64_t>(),
                                   one.at(5).get<uint64_t>()});
    for (const json& one : in.at("places")) out.places[one.at(0).get<uint16_t>()] = one.at(1).get<uint32_t>();
    return out;
}

json egress_json(const EgressKept& kept) {
    json asked = json::array();
    for (const EgressAsked& one : kept.asked)
        asked.push_back({one.id, one.is_name, one.to.family, one.to.port,
                         std::vector<uint8_t>(one.to.address, one.to.address + sizeof(one.to.address)),
                         one.name});
    return {{"seen", kept.seen}, {"asked", asked}};
}

EgressKept egress_from(const json& in) {
    EgressKept out;
    out.seen = in.at("seen").get<uint64_t>();
    for (const json& one : in.at("asked")) {
        EgressAsked asked{one.at(0).get<uint64_t>(), one.at(1).get<bool>(), {}, one.at(5).get<std::string>()};
        asked.to.family = one.at(2).get<uint16_t>();
        asked.to.port = one.at(3).get<uint16_t>();
        const auto address = one.at(4).get<std::vector<uint8_t>>();
        if (address.size() != sizeof(asked.to.address))
            throw json::other_error::create(501, "no address to connect to", &one);
        std::copy(address.begin(), address.end(), asked.to.address);
        out.asked.push_back(std::move(asked));
    }
    return out;
}

}  // namespace

void ServerPorts::on_output(const timebubble::OutputHeader& header, std::string_view payload) {
    ListenRecord record;
    const bool ends = header.kind == OutputKind::kUnlisten || header.kind == OutputKind::kDatagramPortEnd;
    if (!ends && header.kind != OutputKind::kListen && header.kind != OutputKind::kDatagramPort) return;
    if (payload.size() != sizeof(record)) return;
    memcpy(&record, payload.data(), sizeof(record));
    record.protocol = timebubble::protocol_of(header.kind);  // whatever the server says
    const auto found = std::find_if(records_.begin(), records_.end(),
                                    [&](const ListenRecord& one) { return same_socket(one, record); });
    if (ends) {
        if (found != records_.end()) records_.erase(found);
    } else if (!(header.flags & timebubble::kListenChanged)) {
        const auto kin = std::count_if(records_.begin(), records_.end(), [&](const ListenRecord& one) {
            return (one.protocol == 0) == (record.protocol == 0);
        });
        const uint32_t most =
            record.protocol == 0 ? timebubble::kMaxListeners : timebubble::kMaxDatagramSockets;
        if (static_cast<uint32_t>(kin) >= most)
            throw ImpossibleOutput("it listens on more sockets than it can have");
        records_.push_back(record);
    } else if (found != records_.end()) {
        *found = record;
    }
    // There is one number of places for a port, of all its listeners.
    for (ListenRecord& one : records_)
        if (one.protocol == 0 && record.protocol == 0 && one.port == record.port) one.places = record.places;
}

json to_json(const LiveServer& server) {
    json listeners = json::array();
    for (const ListenRecord& one : server.listeners) listeners.push_back(listener_json(one));
    return {{"timestamp_ns", server.timestamp_ns},
            {"words", words_json(server.words)},
            {"listeners", listeners},
            {"open", open_json(server.open)},
            {"account", account_json(server.account)},
            {"egress", egress_json(server.egress)}};
}

LiveServer live_server_from(const json& in) {
    LiveServer out;
    out.timestamp_ns = in.at("timestamp_ns").get<uint64_t>();
    out.words = words_from(in.at("words"));
    for (const json& one : in.at("listeners")) out.listeners.push_back(listener_from(one));
    out.open = open_from(in.at("open"));
    out.account = account_from(in.at("account"));
    if (in.contains("egress")) out.egress = egress_from(in.at("egress"));  // an earlier version had none
    return out;
}

}  // namespace crane::proxy
