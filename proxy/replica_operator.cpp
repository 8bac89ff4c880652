// What the operator asks of a replica.
#include <spdlog/spdlog.h>

#include "proxy/replica.hpp"

namespace crane::proxy {

/// For who asked a replica that cannot answer; the operator's tool looks for these words (tool/control.cpp).
std::string Replica::not_primary() const {
    const uint32_t leader = sequencer_.leader();
    return leader ? "this replica is not primary; ask replica " + std::to_string(leader)
                  : "this replica is not primary, and none is now; try again";
}

std::string Replica::transfer(uint32_t to) {
    if (!sequencer_.leads()) return not_primary();
    if (!sequencer_.membership().voter(to))
        return "there is no replica " + std::to_string(to) + " that votes";
    if (witnesses_.count(to)) return "replica " + std::to_string(to) + " is a witness: it does not lead";
    if (divergence_.diverged().count(to))
        return "replica " + std::to_string(to) + " differs from the majority: it may not lead";
    if (to != config_.replica_id) sequencer_.transfer(to);
    return "";
}

std::string Replica::remake_server() {
    if (config_.mode != Mode::kFull) return "only with consensus is there a log to make its server anew from";
    if (sequencer_.leads() && !alone())
        return "this replica leads: let another one lead first (crane transfer)";
    if (domain_.state() != DomainState::kAttached && domain_.state() != DomainState::kExited)
        return "its server is being started, or cannot be; see crane status";
    const uint64_t place = fenced_.empty() ? 0 : repairs_.place();
    repairs_.again();
    if (place != 0 && begin_from_others(place)) {
        spdlog::warn("the operator has its server made anew, from a checkpoint of the others'");
        return "";
    }
    domain_.give_up("the operator has its server made anew");
    return "";
}

std::string Replica::change_membership(const paxos::MembershipChange& change) {
    if (!sequencer_.leads()) return not_primary();
    if (change.kind == paxos::ChangeKind::kAdd && change.id > kMaxReplicaId)
        return "replica ids go up to " + std::to_string(kMaxReplicaId);
    return sequencer_.change_membership(change);
}

}  // namespace crane::proxy
