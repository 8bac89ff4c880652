// What must survive a crash, and the interface through which it does.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "paxos/core/incarnation.hpp"
#include "paxos/core/membership.hpp"
#include "paxos/core/types.hpp"

namespace crane::paxos {

/// Reads entries that are on disk.
class LogReader {
  public:
    virtual ~LogReader() = default;
    /// Appends entries first, first+1, ... up to `last` to `out`, stopping early once max_bytes of values are
    /// read (but never before one entry). Throws StorageError when an entry is missing or its checksum does
    /// not hold.
    virtual void read(uint64_t first, uint64_t last, size_t max_bytes, std::vector<Entry>& out) const = 0;
};

/// One atomic change. Applied in the order of the members.
struct PersistBatch {
    bool has_view = false;
    View view = 0;                          ///< the promise: nothing below this view will be accepted
    uint64_t truncate_from = 0;             ///< 0 = none; entries from here on lost to a newer view
    std::vector<Entry> append;              ///< contiguous, right after what is left
    bool rejoined = false;                  ///< StoredState::rejoining no longer holds
    std::vector<MembershipAt> memberships;  ///< not empty: StoredState::memberships from now on
    bool has_starts = false;
    StartsAt starts;      ///< StoredState::known_starts from now on
    uint64_t commit = 0;  ///< a lower bound of what is decided; kept only when convenient

    bool empty() const {
        return !has_view && truncate_from == 0 && append.empty() && !rejoined && memberships.empty() &&
               !has_starts;
    }
};

struct StoredState {
    View view = 0;
    uint64_t commit = 0;
    LogPosition start;  ///< just before the oldest entry kept
    LogPosition end;    ///< the last entry
    /// This database replaces a lost one, so promises and acknowledgements may have been forgotten with it:
    /// the replica must not vote until it has again all that is decided.
    bool rejoining = false;
    /// Which database this is and how often it was started; 0: not known. `replaces`: a lost one.
    uint64_t database = 0, starts = 0;
    bool replaces = false;
    std::vector<uint64_t> previous_runs;  ///< of the starts before, the newest first: see Origin
    StartsAt known_starts;                ///< of all replicas
    /// The membership that holds at `end`, last; before it the one that holds should it be cut off again.
    /// Empty: nothing was ever stored, the configuration tells.
    std::vector<MembershipAt> memberships;
};

class StorageError : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

/// Another process has it.
class StoreInUse : public StorageError {
  public:
    using StorageError::StorageError;
};

/// What is on disk does not hold: a checksum, the hash chain, a page.
class DamagedStore : public StorageError {
  public:
    using StorageError::StorageError;
};

/// It is an old or a second copy, and must not speak: the replica has to be rebuilt.
class DisownedStore : public StorageError {
  public:
    using StorageError::StorageError;
};

class Storage : public LogReader {
  public:
    virtual StoredState load() = 0;
    /// On return the batch is durable. Throws StorageError; the replica must then stop.
    virtual void persist(const PersistBatch& batch) = 0;
    /// The same, but may return before it is done: false, and whoever called is told when it is.
    virtual bool start_persist(const PersistBatch& batch) {
        persist(batch);
        return true;
    }
    /// Forgets entries up to and including `start`, a bounded number per call; true when some are left to
    /// delete.
    virtual bool truncate_front(const LogPosition& start) = 0;
    /// Before load(): makes the log start after `start`, a decided entry that a checkpoint covers, unless
    /// this log already contains it. `membership` is the one that holds there; empty: leaves what is stored.
    /// `starts`: what is known of them there, or later.
    virtual void restart_at(const LogPosition& start, const MembershipAt& membership,
                            const Incarnations& starts) = 0;
    /// Before load(), once for a process that is going to speak: counts this start, durably. Throws
    /// DisownedStore.
    virtual void begin_run(uint64_t run) { (void)run; }
    /// This database is an old or a second copy: begin_run() throws from now on.
    virtual void disown() {}
    virtual uint64_t syncs() const = 0;
    /// Nothing follows. `commit`: what is known to be decided, a head start for the next run.
    virtual void close(uint64_t commit) { (void)commit; }
};

}  // namespace crane::paxos
