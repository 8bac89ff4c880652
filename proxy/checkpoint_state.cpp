#include "proxy/checkpoint_state.hpp"

#include <nlohmann/json.hpp>

namespace crane::proxy {

using nlohmann::json;

namespace {

constexpr char kDigits[] = "0123456789abcdef";

std::string to_hex(std::string_view bytes) {
    std::string out;
    out.reserve(2 * bytes.size());
    for (const char byte : bytes) {
        out += kDigits[static_cast<uint8_t>(byte) >> 4];
        out += kDigits[static_cast<uint8_t>(byte) & 15];
    }
    return out;
}

/// Throws json::exception as the library's own readers do.
std::string from_hex(const json& value) {
    const auto& text = value.get_ref<const std::string&>();
    const auto digit = [](char c) -> int {
        if (c >= '0' && c <= '9') return c - '0';
        return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    };
    std::string out;
    out.reserve(text.size() / 2);
    for (size_t i = 0; i < text.size(); i += 2) {
        const int high = digit(text[i]), low = i + 1 < text.size() ? digit(text[i + 1]) : -1;
        if (high < 0 || low < 0) throw json::other_error::create(501, "not in hexadecimal", &value);
        out += static_cast<char>(high << 4 | low);
    }
    return out;
}

template <typename Value>
std::string encoded(const Value& value) {
    std::string bytes;
    encode(value, bytes);
    return to_hex(bytes);
}

json hash_json(const Hash128& hash) {
    return {hash.low, hash.high};
}

Hash128 hash_from(const json& value) {
    return {value.at(0).get<uint64_t>(), value.at(1).get<uint64_t>()};
}

void read(const json& in, CheckpointState& out) {
    out.cluster = in.at("cluster").get<std::string>();
    out.generation = in.at("generation").get<uint64_t>();
    out.start_batch = from_hex(in.at("start_batch"));
    const json& position = in.at("position");
    out.position = {position.at("index").get<uint64_t>(), position.at("view").get<uint64_t>(),
                    position.at("chain").get<uint64_t>()};
    out.membership.index = in.at("membership").at("index").get<uint64_t>();
    if (!decode(from_hex(in.at("membership").at("members")), out.membership.membership))
        throw json::other_error::create(501, "the members cannot be read", &in);
    // None are known where a new cluster begins.
    const std::string starts = from_hex(in.at("starts"));
    out.starts = {};
    if (!starts.empty() && !decode(starts, out.starts))
        throw json::other_error::create(501, "the starts of databases cannot be read", &in);
    const json& output = in.at("output");
    out.output = {output.at("records").get<uint64_t>(), output.at("admitted_index").get<uint64_t>(),
                  hash_from(output.at("chain"))};
    const json& admission = in.at("admission");
    out.admission = {admission.at("index").get<uint64_t>(), hash_from(admission.at("output")),
                     admission.at("schedule_hash").get<uint64_t>()};
    out.last_numbers.clear();
    for (const json& one : in.at("last_connections"))
        out.last_numbers[{one.at("replica").get<uint32_t>(), one.at("port").get<uint16_t>()}] =
            one.at("number").get<uint64_t>();
    out.server_ends = in.at("server_ends").get<uint64_t>();
    out.last_end = in.at("last_end").get<std::string>();
    out.program = in.value("program", "");
    out.live.reset();
    if (in.contains("live")) out.live = live_server_from(in.at("live"));
    const bool begins = out.generation >= 2 && !out.start_batch.empty();
    const bool runs = out.generation >= 1 && out.live.has_value();
    if (out.position.index == 0 || !(begins || runs))
        throw json::other_error::create(501, "no place of a log", &in);
}

}  // namespace

json to_json(const CheckpointState& state) {
    json last = json::array();
    for (const auto& [from, number] : state.last_numbers)
        last.push_back({{"replica", from.first}, {"port", from.second}, {"number", number}});
    json out = {
        {"cluster", state.cluster},
        {"generation", state.generation},
        {"start_batch", to_hex(state.start_batch)},
        {"position",
         {{"index", state.position.index}, {"view", state.position.view}, {"chain", state.position.chain}}},
        {"membership",
         {{"index", state.membership.index}, {"members", encoded(state.membership.membership)}}},
        {"starts", state.starts.empty() ? "" : encoded(state.starts)},
        {"output",
         {{"records", state.output.records},
          {"admitted_index", state.output.admitted_index},
          {"chain", hash_json(state.output.chain)}}},
        {"admission",
         {{"index", state.admission.index},
          {"output", hash_json(state.admission.output)},
          {"schedule_hash", state.admission.schedule_hash}}},
        {"last_connections", last},
        {"server_ends", state.server_ends},
        {"last_end", state.last_end}};
    if (state.live) out["live"] = to_json(*state.live);
    if (!state.program.empty()) out["program"] = state.program;
    return out;
}

std::string from_json(const json& in, CheckpointState& state) {
    try {
        CheckpointState read_state;
        read(in, read_state);
        state = std::move(read_state);
        return "";
    } catch (const json::exception& error) {
        return error.what();
    }
}

}  // namespace crane::proxy
