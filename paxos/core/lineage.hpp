// What was heard of each peer since this process began, and whether what it says now contradicts that.
//
// Decided starts (incarnation.hpp) tell a copy that was made before the newest start. This tells one that was
// made later, as long as somebody remembers: each replica keeps of every other the newest start that it heard
// of, and the highest promise and acknowledgement, all of which the sender had on disk.
//
// Rules kept here:
//   - views that were promised never go back; what was acknowledged in a view stays as long as that view is
//     the highest promised. So a start that began with less is one of an older copy;
//   - who is decided is believed, whatever was heard of others; of two processes of one start that are not
//     the one that was heard first;
//   - nothing is concluded from another database: messages may be late, and which of two replaced the other
//     is for the decided table to say;
//   - who is refused counts for nothing, and is told so; what a process that is gone left in the network is
//     refused, too, and nobody minds.
#pragma once

#include <cstdint>
#include <map>

#include "paxos/core/message.hpp"

namespace crane::paxos {

class Lineages {
  public:
    /// Whether the sender is to be believed; remembers what it says if so. `decided`: the table names it.
    Copy hear(const Message& message, bool decided);
    /// Whether it spoke for that replica before.
    bool believed(ReplicaId replica, uint64_t run) const;

  private:
    struct Known {
        Origin origin;
        uint64_t previous_run = 0;
        View promised = 0;
        View acked_view = 0;  // the highest in which something was acknowledged, and how much was in it
        uint64_t acked = 0;
    };
    static Copy judge(const Known& known, const Origin& origin, bool decided);
    std::map<ReplicaId, Known> known_;
};

}  // namespace crane::paxos
