// Which start of which database speaks for a replica, and which of them count.
//
// A database that is put back from an older copy, or runs a second time from a copy, has forgotten what it
// promised and acknowledged. So each database has a number and counts its starts, durably and before it
// speaks; the leader has each start that it hears of decided (EntryKind::kStart, whose value is this table),
// and every replica judges who speaks to it by the newest table in its log.
//
// Rules kept here:
//   - of one database, a lower start is older, one start is one process, and a higher start is a later one of
//     the same disk only if it was preceded by the same run;
//   - another database is that of a replica that lost its own and knows it, and never one that was replaced;
//   - a start that is known existed, whether the entry that names it is decided or not: so a table is never
//     undone, and knows no less after it has learned.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "paxos/core/types.hpp"

namespace crane::paxos {

struct Origin {
    uint64_t database = 0;  ///< a random number; 0: a storage that counts no starts
    uint64_t start = 0;
    uint64_t run = 0;  ///< of the process
    View view = 0;     ///< promised when it was started
    uint64_t index = 0;
    bool replaces = false;  ///< a lost one
    /// The runs of the starts before, the newest first, until all of the sender's log knows this one: a copy
    /// that was started often enough has a high count, but not the runs of those that it pretends to follow.
    std::vector<uint64_t> previous_runs = {};

    bool same_start(const Origin& other) const {
        return database == other.database && start == other.start && run == other.run;
    }
};
constexpr size_t kMaxPreviousRuns = 16;

enum class Copy : uint8_t { kCurrent, kOlder, kSecond, kUnannounced };
/// For the operator of the replica, after "this database" or "its database".
std::string describe(Copy copy);

/// The newest start of a replica's database that is known.
struct Incarnation {
    ReplicaId replica = kNoReplica;
    uint64_t database = 0, start = 0, run = 0;
    std::vector<uint64_t> before;  ///< databases that this one replaces

    Copy judge(const Origin& origin) const;
    bool is(const Origin& origin) const {
        return database == origin.database && start == origin.start && run == origin.run;
    }
    bool operator==(const Incarnation&) const = default;
};

constexpr size_t kMaxDatabasesBefore = 8;  ///< older ones are forgotten
constexpr size_t kMaxIncarnations = 16;    ///< replicas: those of two memberships that follow each other
constexpr size_t kMaxIncarnationsBytes = 2048;

class Incarnations {
  public:
    Copy judge(ReplicaId replica, const Origin& origin) const;
    bool names(ReplicaId replica, const Origin& origin) const;
    /// Whether another database of that replica is the known one.
    bool replaces(ReplicaId replica, const Origin& origin) const;
    /// Whether that is news.
    bool record(ReplicaId replica, const Origin& origin);
    /// What `decided` knows, but nothing less than was known. False: more was known than that.
    bool learn(const Incarnations& decided);
    void keep_only(const std::vector<ReplicaId>& replicas);
    bool empty() const { return known_.empty(); }
    const std::vector<Incarnation>& known() const { return known_; }
    bool operator==(const Incarnations&) const = default;

    /// Format: count u8 | per replica: id u32, database u64, start u64, run u64, count u8 of databases
    /// before, u64 each.
    friend void encode(const Incarnations& table, std::string& out);  ///< appends
    /// False when the bytes are not exactly one well-formed table.
    friend bool decode(std::string_view bytes, Incarnations& table);

    /// Null: it is not known.
    const Incarnation* find(ReplicaId replica) const;

  private:
    Incarnation& place(ReplicaId replica);
    std::vector<Incarnation> known_;  ///< by replica, ascending
};

/// A table, and the entry that has all of it; 0: none does.
struct StartsAt {
    uint64_t index = 0;
    Incarnations table;
};

void encode(const Incarnations& table, std::string& out);
bool decode(std::string_view bytes, Incarnations& table);
std::string describe(const Incarnations& table);

}  // namespace crane::paxos
