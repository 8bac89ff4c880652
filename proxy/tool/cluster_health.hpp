// What is wrong with a cluster, from what its replicas here say of themselves. Pure.
//
// Rules kept here: what is wrong is named, each thing once; what cannot be known from here (a replica of
// another host that nobody here has a link to is "not connected") is never called well. A replica knows who
// leads and whom it is connected to, so that one of several hosts can tell of all.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace crane::proxy {

struct ClusterHealth {
    uint32_t primary = 0;               ///< 0: nobody leads, as far as is known here
    std::string primary_address;        ///< where its peers reach it
    int64_t primary_since_s = 0;        ///< it leads; since 1970, 0: not known
    bool primary_says_so = false;       ///< itself; else it is what others have learned, maybe later
    std::vector<std::string> problems;  ///< each a sentence; none: all is well
    std::vector<std::string> warnings;  ///< to be looked at, while all are served
};

/// `rows` is an array: the answer to "status" with "alive" = true, or {"replica", "alive" = false, "error"}.
ClusterHealth assess_cluster(const nlohmann::json& rows);

/// Whom the primary, which is on another host, has found to differ, or to be of no help: it alone knows.
/// `primary`: its status.
void add_word_of_primary(const nlohmann::json& primary, ClusterHealth& health);

/// The alarms that replicas have raised and that none of the problems and warnings above tells of: nobody is
/// kept from being served by them, and somebody has to act all the same.
std::vector<std::string> further_alarms(const nlohmann::json& rows, int64_t now_s);

/// Whether a replica that does not run is none of the cluster's any more, as far as `rows` know the members.
bool was_removed(const nlohmann::json& rows, const nlohmann::json& row);

}  // namespace crane::proxy
