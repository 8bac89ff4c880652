// What is wrong with a replica, from what it says of itself: the alarms that it has raised, and those that
// its status shows. And whether clients should come here. Pure.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "proxy/metrics/alarm.hpp"

namespace crane::proxy {

/// `status` is craned's answer to "status".
Alarms alarms_in(const nlohmann::json& status, int64_t now_s);

/// Why this replica should be given no clients; empty if it should.
std::string why_unhealthy(const nlohmann::json& status);
/// The same of one that is to be the primary, too: for what must run beside it.
std::string why_not_primary(const nlohmann::json& status);

/// Voters that this replica has a link to, and has heard lately if it leads; itself included. And how many
/// there are. Of those in reach some may be of no help yet, which the primary alone knows: they are not
/// counted.
struct VotersInReach {
    size_t reached = 0;
    size_t all = 0;
    std::vector<uint32_t> useless;
    bool quorum() const { return all == 0 || reached >= all / 2 + 1; }
};
VotersInReach voters_in_reach(const nlohmann::json& status);
std::string describe_no_quorum(const VotersInReach& voters);
/// Why a voter, one of `peers` in the primary's status, acknowledges nothing although it may be there; empty:
/// it does. It "lacks…", or "has lost…".
std::string why_useless(const nlohmann::json& peer);

}  // namespace crane::proxy
