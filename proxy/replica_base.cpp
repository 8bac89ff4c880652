// Where the replicas' servers differ and no majority agrees, nobody can tell which is right, and no repair
// can begin. The operator decides whose state counts: a log entry (kBase) names that replica. It goes on as
// it is, and takes a checkpoint behind that entry; all others stop there and begin from that checkpoint. What
// was found about anybody before is void, and outputs are compared anew from there on.
//
// A replica that meets the entry in a replay stops there, too; one that began from a checkpoint behind it
// does not meet it. Where the operator names another one later, the later entry counts, also for those that
// still wait.
#include <spdlog/spdlog.h>

#include "base/clock.hpp"
#include "proxy/replica.hpp"

namespace crane::proxy {

namespace {

/// Of the peers' protocol: who speaks an older one does not know the entry, and would go on.
constexpr uint32_t kBaseProtocol = 6;
constexpr uint64_t kAskAgainNs = 2'000'000'000;
/// A connection outlives a host without power for long.
constexpr uint64_t kSilentMs = 5000;

std::string named(uint32_t replica) {
    return "replica " + std::to_string(replica);
}

}  // namespace

/// Empty: it may be the base.
std::string Replica::why_no_base(uint32_t replica) const {
    const bool self = replica == config_.replica_id;
    if (!sequencer_.membership().voter(replica)) return "there is no " + named(replica) + " that votes";
    if (witnesses_.count(replica)) return named(replica) + " is a witness: it has no server, and no state";
    for (const paxos::PeerStatus& peer : sequencer_.peers()) {
        if (peer.id == replica && (!peer.connected || peer.heard_ms_ago > kSilentMs))
            return named(replica) + " is not connected to the primary: bring it back, or name another one";
        if (peer.connected && peer.protocol < kBaseProtocol)
            return named(peer.id) +
                   " runs an older Crane, which would not do as is decided: replace it first";
    }
    if (divergence_.diverged().count(0) || base_awaited()) {
        if (self && server_ended_) return "there is no server now: " + domain_.message();
        if (checkpoints_.takes_images()) return "";
        return "no image of a running server can be taken here (see crane check), which the others would "
               "begin from";
    }
    for (const auto& [odd, finding] : divergence_.diverged())
        return "a majority agrees, and " + named(odd) +
               " differs from it: it is made anew by itself, or, if it was left as it is, by crane "
               "checkpoint "
               "restore --replica " +
               std::to_string(odd);
    return "no replica is known to differ from the others, so there is nothing to decide";
}

std::string Replica::choose_base(uint32_t replica) {
    if (!sequencer_.leads()) return not_primary();
    if (config_.mode != Mode::kFull || alone()) return "there is one replica alone, whose state counts";
    if (std::string why = why_no_base(replica); !why.empty()) return why;
    const bool able = !stopping_ && timekeeper_.begun() && sequencer_.can_propose();
    if (!able || !sequencer_.propose(batcher_.base(replica, timekeeper_.now(host_time()))))
        return "nothing can be decided just now: try again (crane status)";
    ++batches_proposed_;
    return "";
}

/// As was decided there; `replica` 0: nothing was.
void Replica::note_base(uint64_t index, uint32_t replica) {
    if (replica == 0 || index <= decided_base_.index) return;
    decided_base_ = {index, replica, 0};
    repairs_.forget();
    divergence_.begin_at(index);
    schedule_told_.clear();
    leaders_word_.reset();
    from_others_ns_ = 0;
    spdlog::warn("{}'s state counts from log index {} on, as was decided", named(replica), index);
    if (is_base()) {
        fenced_.clear();
        if (lacking_) shipping_.want(0);
        lacking_ = false;
        judge_fitness();
        if (domain_.state() == DomainState::kAttached) open_ports();
        return;
    }
    fenced_ = named(replica) + "'s state counts from log index " + std::to_string(index) +
              " on, as was decided (crane base), and the server is begun from that one's checkpoint";
    judge_fitness();
    close_ports();
    pool_.fail_all();
    lack_checkpoint(index);
}

/// The base takes a checkpoint, until it has one that the others can begin from.
void Replica::watch_base(uint64_t now_ns) {
    if (decided_base_.index == 0 || !is_base() || checkpoints_.held_index() >= decided_base_.index) return;
    const bool able =
        domain_.state() == DomainState::kAttached && !server_ended_ && checkpoints_.takes_images();
    if (!able || is_at_image() || now_ns - decided_base_.asked_ns < kAskAgainNs) return;
    decided_base_.asked_ns = now_ns;
    want_image(decided_base_.index);
}

}  // namespace crane::proxy
