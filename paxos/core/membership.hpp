// Who the replicas of a cluster are, and how that changes: one replica at a time, by a decided entry.
//
// Rules kept here:
//   - a change adds a learner, promotes one or removes a replica. Two memberships that follow each other
//     differ in at most one voter, so any majority of the one meets any of the other;
//   - the id of a removed replica is never used again: votes and acknowledgements that it gave may still be
//     under way, and must not be taken for those of a newcomer;
//   - addresses are for the transport, and a replica's own configuration comes before them: the protocol
//     itself reads ids and who votes.
// A membership counts from the moment it is in a replica's log, decided or not (Core keeps the one before it
// until then); the leader proposes one only when the one before is decided, and its own view's first entry.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "paxos/core/types.hpp"

namespace crane::paxos {

constexpr size_t kMaxVoters = 7;
constexpr size_t kMaxMembers = 14;  ///< learners included
constexpr size_t kMaxAddressBytes = 256;

struct Member {
    ReplicaId id = kNoReplica;
    bool voter = true;    ///< false: a learner, which is sent the log and counts for nothing
    std::string address;  ///< "host:port", for whoever's configuration does not name this replica
    bool operator==(const Member&) const = default;
};

struct Membership {
    std::vector<Member> members;        ///< by id, ascending
    ReplicaId highest_id = kNoReplica;  ///< of all that ever were members

    const Member* find(ReplicaId id) const;
    bool voter(ReplicaId id) const;
    size_t voters() const;
    size_t quorum() const;
    bool removed(ReplicaId id) const { return find(id) == nullptr && id <= highest_id; }
    void add(Member member);  ///< keeps the order
    bool operator==(const Membership&) const = default;
};

enum class ChangeKind : uint8_t { kAdd = 1, kPromote = 2, kRemove = 3 };

struct MembershipChange {
    ChangeKind kind = ChangeKind::kAdd;
    ReplicaId id = kNoReplica;
    std::string address;  ///< Add
};

/// Applies `change`, or says why it makes no sense; `membership` is then as before.
std::string apply(const MembershipChange& change, Membership& membership);

/// Format: count u8 | highest id u32 | per member: id u32, voter u8, address (u32 length, bytes).
void encode(const Membership& membership, std::string& out);  ///< appends
/// False when the bytes are not exactly one well-formed membership with at least one voter.
bool decode(std::string_view bytes, Membership& membership);
std::string describe(const Membership& membership);  ///< 1, 2, 3, learner 4

/// A membership and the entry that brought it; index 0: the one that the cluster began with.
struct MembershipAt {
    uint64_t index = 0;
    Membership membership;
};

constexpr size_t kMaxStoredMemberships = 2;  ///< of which the first is decided
constexpr size_t kMaxMembershipBytes = 8192;

/// The value of a Return entry: whose, and in which run of it.
struct Comeback {
    ReplicaId replica = kNoReplica;
    uint64_t run = 0;
    bool operator==(const Comeback&) const = default;
};
std::string encode_comeback(const Comeback& comeback);
bool decode_comeback(std::string_view bytes, Comeback& comeback);
/// Whether the value is one that an entry of this kind may have.
bool well_formed(EntryKind kind, std::string_view value);

}  // namespace crane::paxos
