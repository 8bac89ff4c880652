// What kind of life a seed leads: how many replicas, what its network is like, which faults it knows and how
// often.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "network.hpp"
#include "paxos/core/core.hpp"
#include "paxos/store/store.hpp"

namespace crane::sim {

enum class FaultKind : uint8_t {
    kPowerCut,
    kKill,
    kCrashInDiskCall,
    kShutDown,
    kLoseDisk,
    kPause,
    kPartition,
    kReconnect,
    kClog,
    kBreakLink,
    kFailingDisk,
    kFullDisk,
    kSlowDisk,
    kWriteBack,
    kLookAtPlatter,
    kTransfer,
    kStepDown,
    kLinkRestored,
    kCountOfKinds
};
constexpr size_t kFaultKinds = static_cast<size_t>(FaultKind::kCountOfKinds);

struct Profile {
    unsigned replicas = 3;
    NetworkFaults network;
    uint64_t fault_interval_us = 20'000;
    uint64_t operation_interval_us = 20'000;
    uint64_t proposal_interval_us = 3'000;
    bool large_values = false;
    bool membership_changes = false;
    bool truncations = false;
    uint64_t sync_min_us = 50, sync_max_us = 400;
    std::array<uint32_t, kFaultKinds> weights{};
    paxos::DatabaseSizes sizes;
    paxos::CoreConfig core;  ///< all but who

    static Profile of(Random& random);
    FaultKind pick(Random& random) const;
    std::string text() const;
};

/// Faults that chance decides in a stream of its own, so that a seed that knows none of them leads the life
/// that it led before there were any.
struct AddedFaults {
    uint64_t interval_us = 0;  ///< between those that come by themselves; 0: never
    bool peer_gone = false;
    bool pause_delivery = false;
    bool bar = false;         ///< from leading
    bool no_room = false;     ///< for entries
    double rot = 0;           ///< of a disk, at each start
    double verification = 0;  ///< by the operator, at each start
    double old_disk = 0;      ///< is kept or put back, at each start

    static AddedFaults of(Random& random);
};

}  // namespace crane::sim
