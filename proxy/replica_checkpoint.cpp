// Checkpoints: what the next server begins with is kept at a decided start, and a replica that starts begins
// there instead of at the log's first entry.
//
// The primary says in the start whether a checkpoint is to be taken; each replica takes its own, and the log
// is cut behind what a majority holds. A checkpoint of files is taken while no server runs, so it costs the
// service the time of packing them.
#include <spdlog/spdlog.h>

#include <algorithm>

#include "proxy/lack.hpp"
#include "proxy/replica.hpp"

namespace crane::proxy {

/// As it would stand if it had seen the log up to there.
void Replica::start_from_checkpoint() {
    const CheckpointState& from = *checkpoints_.from();
    generation_.decided = generation_.fed = from.generation - 1;
    server_ended_ = true;
    server_ends_ = from.server_ends;
    last_end_ = from.last_end;
    account_.restore(from.last_numbers);
    history_.add(from.admission);
    domain_.restore(checkpoints_.archive());
    on_batch(from.position.index, std::make_shared<const std::string>(from.start_batch));
    sequencer_.hold_checkpoint(from.position.index);
}

/// The log here, or the leader's, begins behind what this replica has: without a checkpoint of somebody's it
/// has no server.
void Replica::lack_checkpoint(uint64_t index) {
    spdlog::warn(
        "what this replica lacks is not to be had from its log: a checkpoint of entry {} or later is fetched",
        index);
    lacking_ = true;
    shipping_.want(std::max(index, shipping_.wanted()));
}

void Replica::on_lack(std::string_view said) {
    uint64_t index = 0;
    if (!read_number(said, index)) return;
    const uint64_t last = std::max(sequencer_.last_index(), sequencer_.delivered_position().index);
    switch (lack_step({index, last, checkpoints_.held_index(), shipping_.wanted(), lacking_})) {
        case LackStep::kNone:
            break;
        case LackStep::kFetch:
            lack_checkpoint(index);
            break;
        case LackStep::kBegin:
            lacking_ = true;
            spdlog::warn(
                "what this replica lacks is no longer in the log: the server is begun from the checkpoint at "
                "log index {}",
                checkpoints_.held_index());
            events_.lost();
            break;
    }
}

/// They cannot know it: this leader's log has been cut behind their end.
void Replica::tell_lacking() {
    const uint64_t index = sequencer_.first_log_index() - 1;
    const std::string message = "L" + std::string(reinterpret_cast<const char*>(&index), sizeof(index));
    for (const paxos::PeerStatus& peer : sequencer_.peers())
        if (peer.needs_checkpoint && peer.connected) sequencer_.send(peer.id, message);
}

void Replica::on_fetched(uint64_t index) {
    if (!lacking_ && !replays_before(index)) {
        checkpoints_.adopt(index, shipping_.held());
        sequencer_.hold_checkpoint(index);
        return;
    }
    spdlog::info("the checkpoint at log index {} has come: the server is begun from it", index);
    events_.lost();
}

/// A start that asks for a checkpoint is decided: what the log says at this place.
void Replica::note_checkpoint(uint64_t generation, const std::string& batch) {
    const paxos::MembershipAt* members = sequencer_.delivered_membership();
    if (members == nullptr) return;  // too far back in a replay: the next one will do
    CheckpointState state;
    state.cluster = config_.cluster_id;
    state.generation = generation;
    state.start_batch = batch;
    state.position = sequencer_.delivered_position();
    state.membership = *members;
    state.starts = sequencer_.starts();
    state.last_numbers = account_.last_numbers();
    checkpoints_.decided(generation, std::move(state));
}

DomainRunner::NextStart Replica::next_start(uint64_t generation, uint64_t timestamp_ns) {
    DomainRunner::NextStart next;
    next.time_ns = timestamp_ns;
    std::optional<CheckpointState> point = checkpoints_.take_point(generation);
    // What differs from the others' must not be what anybody goes on with.
    if (!point || !fenced_.empty() || repairs_.on_trial() || !history_.last()) return next;
    if (disk_.low()) {
        spdlog::warn("no checkpoint is kept at log index {}: the disk is nearly full", point->position.index);
        return next;
    }
    point->output = log_.position();
    point->admission = *history_.last();
    point->server_ends = server_ends_;
    point->last_end = last_end_;
    next.keep = checkpoints_.packer(point->position.index);
    next.kept = [this, state = *point](const std::string& error) {
        checkpoints_.packed(state, error, shipping_.held(), [this, index = state.position.index](bool kept) {
            if (kept) sequencer_.hold_checkpoint(index);
        });
    };
    return next;
}

}  // namespace crane::proxy
