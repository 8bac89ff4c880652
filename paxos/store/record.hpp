// Format of what the store writes, version 4 (3 had no flags but 1, and no Start entries). All integers
// little-endian, except keys.
//
//   key     8 bytes, an entry's index, big-endian, so that the tree's order is the log's; 0: the state
//   entry   checksum u64 | view u64 | chain u64 | kind u8 | value...
//           checksum = XXH64 over everything behind it, seeded with the index (a record in the wrong place is
//           bad). Entries are in the write-ahead log, in segments: segment.hpp
//   state   checksum u64 | magic u32 | version u32 | replica id u32 | cluster id (u32 length, bytes)
//           | flags u32 (1: rejoining, 2: database and starts, u64 each, and
//           the newest runs, count u8, u64 each, at the end, 4: replaces a lost one, 16: disowned,
//           8: starts behind those: index u64 | length u32, bytes (incarnation.hpp))
//           | view u64 | commit u64 | start: index u64, view u64, chain u64 | count u8 (0 to 2) of
//           memberships, each: index u64 | length u32, bytes (membership.hpp)
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "paxos/core/storage.hpp"

namespace crane::paxos {

constexpr uint32_t kRecordMagic = 0x58505243;  ///< "CRPX"
constexpr uint32_t kRecordVersion = 4;
constexpr uint32_t kOldestRecordVersion = 3;  ///< that is read
constexpr size_t kMaxClusterIdBytes = 256;
constexpr size_t kMaxStoredRuns = kMaxPreviousRuns + 1;  ///< with that of the newest start

using RecordKey = std::array<char, 8>;
RecordKey make_key(uint64_t index);
uint64_t key_index(const RecordKey& key);

void encode_entry(const Entry& entry, std::string& out);
void append_entry(const Entry& entry, std::string& out);  ///< behind what is there
bool decode_entry(uint64_t index, std::string_view bytes, Entry& entry);

struct StateRecord {
    uint32_t version = kRecordVersion;
    ReplicaId replica = kNoReplica;
    std::string cluster_id;
    View view = 0;
    uint64_t commit = 0;
    LogPosition start;
    bool rejoining = false;
    uint64_t database = 0, starts = 0;  ///< see StoredState
    bool replaces = false;
    bool disowned = false;       ///< see Storage
    std::vector<uint64_t> runs;  ///< of this database's starts, the newest first
    StartsAt known_starts;
    std::vector<MembershipAt> memberships;  ///< see StoredState
};

void encode_state(const StateRecord& state, std::string& out);
/// False when damaged. A record of another version decodes as far as `version`, and the rest is left empty.
bool decode_state(std::string_view bytes, StateRecord& state);

}  // namespace crane::paxos
