// What the operator asks of a replica.
#include "proxy/replica.hpp"

namespace crane::proxy {

std::string Replica::transfer(uint32_t to) {
    if (!sequencer_.leads()) {
        return "this replica is not primary; ask replica " + std::to_string(sequencer_.leader());
    }
    if (!sequencer_.membership().voter(to))
        return "there is no replica " + std::to_string(to) + " that votes";
    if (divergence_.diverged().count(to))
        return "replica " + std::to_string(to) + " differs from the majority: it may not lead";
    if (to != config_.replica_id) sequencer_.transfer(to);
    return "";
}

std::string Replica::change_membership(const paxos::MembershipChange& change) {
    if (!sequencer_.leads()) {
        return "this replica is not primary; ask replica " + std::to_string(sequencer_.leader());
    }
    if (change.kind == paxos::ChangeKind::kAdd && change.id > kMaxReplicaId)
        return "replica ids go up to " + std::to_string(kMaxReplicaId);
    return sequencer_.change_membership(change);
}

}  // namespace crane::proxy
