// What replicas say to each other, and its encoding.
//
// The decoder is strict: every length is bounded and checked before it is used, unknown kinds and flags,
// fields out of range and trailing bytes are refused. Integers are little-endian and of fixed width.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "paxos/core/incarnation.hpp"
#include "paxos/core/types.hpp"

namespace crane::paxos {

constexpr size_t kMaxBatchEntries = 4096;  ///< in one Prepare

enum class MessageType : uint8_t {
    /// View change, before step 0: would you accept `view`? Nobody's state changes.
    kPreVote = 1,
    kPreVoteReply = 2,
    /// Step 1: I want to lead `view`; my log ends at (index, index_view). Step 2: the promise to accept no
    /// lower view.
    kViewChange = 3,
    kViewChangeReply = 4,
    /// Step 3 is the Prepare that carries the NewView entry. Prepare: after (index, index_view, chain) come
    /// `entries`.
    kPrepare = 5,
    /// How far the log is decided; as heartbeat (wants_ack) when there is nothing else to say.
    kCommit = 6,
    /// ok: my log is the leader's up to `index`, on disk, and ends at `hint`. Not ok: it does not match at
    /// `index`; go back to `hint`.
    kAck = 7,
    /// Leadership transfer: change the view now, without asking around, if your log ends where mine does.
    /// From a follower, the answer of one that may not lead: ask another.
    kTakeOver = 8,
    /// What you say counts for nothing here, for your database is no current one. `hint` names the run that
    /// is meant, `index` says why (Copy).
    kDisown = 9,
};

struct Message {
    MessageType type = MessageType::kCommit;
    ReplicaId from = kNoReplica;
    ReplicaId to = kNoReplica;
    bool ok = false;         ///< replies
    bool forced = false;     ///< PreVote, ViewChange: ordered by the leader, so its lease is no obstacle
    bool wants_ack = false;  ///< Commit
    View view = 0;           ///< asked for (PreVote, ViewChange and their replies), else the sender's
    uint64_t index = 0;
    View index_view = 0;
    uint64_t chain = 0;
    uint64_t commit = 0;
    View promised = 0;  ///< replies: no lower view will be accepted by the sender
    uint64_t hint = 0;
    /// Ack: not 0 while the sender has yet to make up for a lost database; names its present run. Such an
    /// acknowledgement moves the log on and decides nothing.
    uint64_t rejoining = 0;
    /// Ack: the newest checkpoint that the sender holds. Prepare, Commit: the newest that a majority holds.
    uint64_t checkpoint = 0;
    Origin origin;       ///< which start of which database speaks, and what was on its disk then
    std::string report;  ///< Ack: the sender's report, opaque
    std::vector<Entry> entries;
};

const char* message_name(MessageType type);

void encode(const Message& message, std::string& out);  ///< appends
/// False when the bytes are not exactly one well-formed message; `message` is then unspecified.
bool decode(std::string_view bytes, Message& message);

}  // namespace crane::paxos
