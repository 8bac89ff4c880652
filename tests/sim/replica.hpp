// One machine of a life: its disk, and while it runs the process on it: the store, the core, what is under
// way.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>

#include "disk_registry.hpp"
#include "paxos/core/core.hpp"
#include "paxos/shell.hpp"
#include "paxos/store/store.hpp"
#include "shadow.hpp"

namespace crane::sim {

constexpr uint64_t kNever = UINT64_MAX;

/// What its shell stands on: ground.hpp.
struct ReplicaGround {
    virtual ~ReplicaGround() = default;
};

struct Replica {
    paxos::ReplicaId id = paxos::kNoReplica;
    bool founder = true;
    std::unique_ptr<Disk> disk;
    std::unique_ptr<Mount> mount;

    /// What is on the platter; what may be there instead, when a write was under way; what was there before
    /// the disk was lost, until the replica has made up for it.
    Shadow shadow;
    std::optional<Shadow> otherwise;
    std::optional<Shadow> lost;

    /// A copy of its disk from before some start, with what the process that was started from it would say.
    struct OldDisk {
        std::unique_ptr<Disk> image;
        Shadow shadow;
        std::optional<Shadow> otherwise;
        paxos::Origin origin;
    };
    std::optional<OldDisk> old;
    bool old_copy = false;   ///< it was put back, and nobody has noticed yet
    size_t copy_starts = 0;  ///< since then
    paxos::Origin origin;    ///< of the newest process

    /// The process.
    std::unique_ptr<paxos::BdbStore> store;
    std::unique_ptr<paxos::Core> core;
    std::unique_ptr<ReplicaGround> ground;
    std::unique_ptr<paxos::Shell> shell;
    uint64_t busy_until_us = 0;  ///< with its disk: nothing else happens until then
    uint64_t paused_until_us = 0;
    uint64_t slow_until_us = 0;  ///< its syncs are slow until then
    uint64_t delivery_paused_until_us = 0;
    uint64_t barred_until_us = 0;
    uint64_t no_room_until_us = 0;
    std::deque<paxos::Message> inbox;
    std::deque<paxos::ReplicaId> links_up;
    uint64_t wake_us = kNever;

    /// Between processes.
    uint64_t restart_at_us = kNever;
    bool rejoins = false;   ///< its database was lost
    bool restores = false;  ///< the next start begins with a checkpoint
    bool rotten = false;    ///< its disk has lost what the store needs, noticed or not
    bool retired = false;   ///< removed for good
    bool held = false;      ///< stays down
    uint64_t disk_faults_until_us = 0;
    bool disk_suspect = false;  ///< it had faults during this run

    /// What the checks remember.
    paxos::View highest_view = 0;
    paxos::View led = 0;
    paxos::Role role = paxos::Role::kFollower;
    uint64_t delivered = 0;
    uint64_t runs = 0;
    uint64_t checkpoint = 0;  ///< the newest that it ever held

    bool up() const { return shell != nullptr; }
    bool busy() const { return shell != nullptr && shell->busy(); }
};

}  // namespace crane::sim
