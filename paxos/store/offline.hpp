// What an operator does to the log of a replica that is not running: check it, or make a cluster of one out
// of what is left when a majority is lost for good.
//
// Both open the database as its replica would: recovery cuts a torn or unsynced tail of the write-ahead log.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "paxos/core/storage.hpp"
#include "paxos/store/file_system.hpp"

namespace crane::paxos {

struct StoreReport {
    std::string cluster_id;
    ReplicaId replica = kNoReplica;
    StoredState state;
    uint64_t entries = 0;               ///< read, each with its checksum, its place and its hash chain
    uint64_t bytes = 0;                 ///< of values
    uint64_t views = 0;                 ///< that entries were proposed in
    std::vector<std::string> problems;  ///< empty: everything holds
    std::string recovery;  ///< what opening has dropped: a write that was cut short; empty: nothing
};

/// Reads the whole log and checks what must hold within it, then every page of the database file. Throws
/// StorageError when there is no database, it is in use, or it is another program's.
StoreReport verify_store(const std::string& directory, FileSystem* files = nullptr);

/// Why no cluster can be made of what is in this database; empty: one can.
std::string why_not_forced(ReplicaId replica, const StoredState& state);

/// Makes the replica of this database the only member of its cluster, by an entry at the end of its log. What
/// other replicas have decided and this one does not have is lost; what it has and was not decided becomes
/// decided. Cannot be undone, and must not be done while replicas that have a majority may still come back.
/// Returns the state before and the entry. Throws StorageError.
struct ForcedCluster {
    StoredState before;
    Entry entry;
};
ForcedCluster force_new_cluster(const std::string& directory);

}  // namespace crane::paxos
