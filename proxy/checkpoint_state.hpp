// What craned keeps of itself in a checkpoint, beside the server's files: all that it would know of the past
// if it had the log from the first entry. Pure.
//
// A checkpoint of files stands at a decided start (batch.hpp, kStart): no server runs there, no connection is
// open, and what begins next begins with the batch of that entry, which is kept, too. One with an image
// stands behind the batch of its entry, and has a server that runs.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "paxos/core/incarnation.hpp"
#include "paxos/core/membership.hpp"
#include "proxy/connection_table.hpp"
#include "proxy/divergence.hpp"
#include "proxy/live_server.hpp"
#include "proxy/output_format.hpp"

namespace crane::proxy {

struct CheckpointState {
    std::string cluster;      ///< its id
    uint64_t generation = 0;  ///< of the server that begins or runs there
    std::string start_batch;  ///< the entry's value, where a server begins
    paxos::LogPosition position;
    paxos::MembershipAt membership;  ///< that holds there
    paxos::Incarnations starts;
    OutputPosition output;
    Admission admission;  ///< the last one before
    ConnectionTable::LastNumbers last_numbers;
    uint64_t server_ends = 0;
    std::string last_end;
    std::optional<LiveServer> live;  ///< there is an image of it
    std::string program;  ///< what that one is made of (checkpoint/inventory.hpp); "": nobody knows
};

nlohmann::json to_json(const CheckpointState& state);
/// Empty, or what is wrong with it.
std::string from_json(const nlohmann::json& json, CheckpointState& state);

}  // namespace crane::proxy
