// The words of the protocol: views, entries, roles. No behaviour beyond trivial arithmetic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace crane::paxos {

constexpr size_t kMaxValueBytes = 16u << 20;  ///< of one proposed value
constexpr size_t kMaxReportBytes = 4096;      ///< of what a replica attaches to an acknowledgement
constexpr size_t kMaxAppMessageBytes = 16u << 20;
constexpr size_t kMaxAppQueueBytes = 32u << 20;  ///< per peer

using ReplicaId = uint32_t;
constexpr ReplicaId kNoReplica = 0;          ///< replica ids start at 1
constexpr ReplicaId kMaxReplicaId = 0xffff;  ///< a view number carries its leader's id in 16 bits

/// A view is a pair <counter, leader>, ordered by counter first ("Paxos Made Practical"). Packed in one
/// integer, so that comparing two views is comparing two numbers, and no view ever has two leaders.
using View = uint64_t;
constexpr View make_view(uint64_t counter, ReplicaId leader) {
    return counter << 16 | leader;
}
constexpr uint64_t kMaxViewCounter = UINT64_MAX >> 16;
constexpr uint64_t view_counter(View view) {
    return view >> 16;
}
constexpr ReplicaId view_leader(View view) {
    return static_cast<ReplicaId>(view & 0xffff);
}
/// "7.2": the seventh view, led by replica 2.
std::string view_name(View view);

enum class EntryKind : uint8_t {
    kValue = 1,       ///< proposed by the user of the log
    kNewView = 2,     ///< first entry of every view; its leader is view_leader(entry.view); value is empty
    kReturn = 3,      ///< who lost its database may vote again once it has this; value: see membership.hpp
    kMembership = 4,  ///< who the replicas are from here on; value: see membership.hpp
    kStart = 5,       ///< who has started since, and from which database; value: see incarnation.hpp
    // 6 is kept for checkpoint marks.
};
constexpr bool known_entry_kind(uint8_t kind) {
    return kind >= 1 && kind <= 5;
}

/// An entry's place in the log and the hash of all up to it.
struct LogPosition {
    uint64_t index = 0;
    View view = 0;
    uint64_t chain = 0;
    bool operator==(const LogPosition&) const = default;
};

/// One decided (or yet undecided) place in the log. (view, index) is its viewstamp.
struct Entry {
    uint64_t index = 0;  ///< the first entry has index 1
    View view = 0;       ///< in which it was first proposed; kept when a later leader carries it on
    EntryKind kind = EntryKind::kValue;
    uint64_t chain = 0;                        ///< running hash over this entry and all before it
    std::shared_ptr<const std::string> value;  ///< never null in an entry handed out

    ReplicaId leader() const { return view_leader(view); }
    LogPosition position() const { return {index, view, chain}; }
    size_t size_bytes() const { return value ? value->size() : 0; }
};

/// What `chain` must be for an entry that follows one with chain `previous`.
uint64_t chain_hash(uint64_t previous, const Entry& entry);

enum class Role : uint8_t {
    kFollower,
    kPreCandidate,  ///< asks whether a view change would succeed; no view has been used up yet
    kCandidate,     ///< view change under way
    kLeader,
};
const char* role_name(Role role);

}  // namespace crane::paxos
