// Who the others are, for whoever takes part: ids, what craned says of them, and how long agreeing takes.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <vector>

#include "proxy/sequencer.hpp"

namespace crane::proxy {

std::vector<uint32_t> voter_ids(const paxos::Membership& membership);
/// Voters with a server.
std::vector<uint32_t> server_ids(const paxos::Membership& membership, const std::set<uint32_t>& witnesses);

/// `witnesses`: those that said they are. One whose host stopped has a link for some time, and one that
/// stands still for ever: a primary calls nobody connected who does not answer.
nlohmann::json peers_json(const Sequencer& sequencer, const std::set<uint32_t>& witnesses);
nlohmann::json membership_json(const Sequencer& sequencer);
nlohmann::json latency_json(const Sequencer& sequencer);

}  // namespace crane::proxy
