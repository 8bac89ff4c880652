// Where the replicas are: what the configuration says, what the log says, what peers tell.
//
// A replica that was away may know nothing of replicas added meanwhile, the present leader among them. So
// peers introduce each other with the latest membership they know. What is told so is used to find replicas
// and to let them in, never to count votes: for that the log is asked alone.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "paxos/core/membership.hpp"
#include "paxos/link/peer_address.hpp"

namespace crane::paxos {

class AddressBook {
  public:
    AddressBook(ReplicaId self, std::vector<PeerAddress> configured)
        : self_(self), configured_(std::move(configured)) {}

    static std::string introduction(const MembershipAt& membership);
    /// True: it is news. Whatever is not well-formed is ignored.
    bool hear(std::string_view introduction, uint64_t own_index);

    /// The addresses of `peers` and of whoever else has been told of. A replica without one is left out and
    /// named in `unknown`.
    std::vector<PeerAddress> resolve(const std::vector<ReplicaId>& peers, const MembershipAt& own,
                                     std::vector<ReplicaId>& unknown);
    ReplicaId highest_id() const { return told_.membership.highest_id; }

  private:
    bool find(ReplicaId id, const Member* member, PeerAddress& address);

    const ReplicaId self_;
    const std::vector<PeerAddress> configured_;
    std::vector<PeerAddress> learned_;  ///< of replicas that the configuration does not name
    MembershipAt told_;                 ///< by a peer, later than what the log here says
};

}  // namespace crane::paxos
