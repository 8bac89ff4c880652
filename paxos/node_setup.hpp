// What a configuration means for the store and the core, and which are refused.
#pragma once

#include "paxos/core/core.hpp"
#include "paxos/node.hpp"
#include "paxos/store/store.hpp"

namespace crane::paxos {

/// Returns it. Throws std::runtime_error, for the operator.
NodeConfig validated(NodeConfig config);
StoreOptions store_options(const NodeConfig& config);
CoreConfig core_config(const NodeConfig& config);

}  // namespace crane::paxos
