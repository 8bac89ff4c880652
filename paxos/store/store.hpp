// The log and the view on disk: a Berkeley DB environment with transactions and its own write-ahead log.
// The entries are in the write-ahead log itself (segment.hpp); a tree says where, and holds the state.
//
// Rules kept here:
//   - persist() is one transaction and one fdatasync; it returns when the change is on disk, or throws;
//   - every record has a checksum, verified whenever it is read; a record that does not hold is never served;
//   - opening believes nothing that a system shows of writes it may have dropped: it is read from the disk
//     again;
//   - opening runs recovery (a torn or unsynced tail of the write-ahead log is cut off there), then verifies
//     the newest entries and their chain;
//   - a database is bound to one cluster and one replica, and to one process at a time (lock file);
//   - errors name the directory, what happened, and what to do.
// maintain() writes dirty pages back (a Berkeley DB checkpoint) and removes files of the write-ahead log of
// which truncate_front() has left nothing. In a node a thread of its own calls it (store_maintenance.hpp), so
// that no persist() pays for it.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "paxos/core/storage.hpp"
#include "paxos/store/file_system.hpp"

namespace crane::paxos {

struct DatabaseSizes {
    uint32_t cache_bytes = 16u << 20;
    uint32_t log_buffer_bytes = 2u << 20;
    uint32_t log_file_bytes = 32u << 20;  ///< the largest value has to fit
    /// Of a new database. No more than what a disk writes as a whole: Berkeley DB has no second copy of a
    /// page that a power cut has torn.
    uint32_t page_bytes = 512;
    uint32_t checkpoint_kbytes = 32768;  ///< of log, after which maintain() writes pages back
};

struct StoreOptions {
    std::string directory;  ///< created when missing
    std::string cluster_id;
    ReplicaId replica = kNoReplica;
    bool durable = true;    ///< false: a commit does not wait for the disk
    bool rejoin = false;    ///< a database created now replaces a lost one: see StoredState::rejoining
    uint64_t database = 0;  ///< the number of a database created now; 0: a random one
    DatabaseSizes sizes = {};
    FileSystem* files = nullptr;  ///< where the database is; null: the host's. Must outlive the store
};

class BdbStore : public Storage {
  public:
    explicit BdbStore(const StoreOptions& options);
    ~BdbStore() override;
    BdbStore(const BdbStore&) = delete;
    BdbStore& operator=(const BdbStore&) = delete;

    StoredState load() override;
    void persist(const PersistBatch& batch) override;
    bool truncate_front(const LogPosition& start) override;
    void read(uint64_t first, uint64_t last, size_t max_bytes, std::vector<Entry>& out) const override;
    void restart_at(const LogPosition& start, const MembershipAt& membership,
                    const Incarnations& starts) override;
    void begin_run(uint64_t run) override;
    void disown() override;
    /// Whatever it is a copy of is given up for this one.
    void own();
    uint64_t syncs() const override;
    /// What opening has dropped of an unfinished write, for people; empty: nothing.
    const std::string& recovery() const;

    /// Writes dirty pages back if enough was written since the last time, or if log files can go; else does
    /// nothing. Call now and then, from any thread. Errors show up again in the next persist(), which reports
    /// them.
    void maintain();

    /// Closes with everything written back; errors are swallowed (the log is safe without it). Implied by
    /// destruction.
    void close(uint64_t commit) override;

  private:
    class Impl;
    std::unique_ptr<Impl> impl_;
    friend struct OfflineLog read_offline(const std::string& directory, uint64_t first,
                                          const std::function<bool(const Entry&)>& visit, FileSystem* files);
};

/// For tools: the log of a replica that is not running.
struct OfflineLog {
    std::string cluster_id;
    ReplicaId replica = kNoReplica;
    StoredState state;
    std::string recovery;  ///< what opening has dropped; see BdbStore
};
/// Opens the database in `directory` (recovering it as its replica would), describes it, and calls `visit`
/// for the entries from `first` on until it returns false. Throws StorageError, also when the replica is
/// running. `files`: see StoreOptions.
OfflineLog read_offline(const std::string& directory, uint64_t first,
                        const std::function<bool(const Entry&)>& visit, FileSystem* files = nullptr);

}  // namespace crane::paxos
