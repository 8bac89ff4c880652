// A server that computes for ever: how its end is agreed on (standstill.hpp), decided, and done at the same
// place on every replica, at each replay too.
//
// The start of the next server names the place. So it has to be known before the server comes there: the log
// is looked at ahead of what the server is given, at the beginning as far as it is decided, then whenever
// delivery is held up.
#include <spdlog/spdlog.h>

#include "base/clock.hpp"
#include "proxy/process_tree.hpp"
#include "proxy/replica.hpp"

namespace crane::proxy {

namespace {

/// The operator wants another server, and this one does not even see the signal that it should end by.
constexpr uint64_t kAskedLimitNs = 10'000'000'000;

}  // namespace

/// A piece of the log at a time: the loop has other things to do.
void Replica::look_ahead() {
    if (looked_ahead_) return;
    const uint64_t from = std::max(ahead_index_, sequencer_.delivered_index() + 1);
    ahead_index_ = sequencer_.look_ahead(from, [this](uint64_t index, const std::string& batch) {
        timebubble::BatchDecoder decoder;
        if (!decoder.open(reinterpret_cast<const uint8_t*>(batch.data()), batch.size())) return;
        note_end(started_server(decoder));
        note_program(decoder);
        note_base(index, named_base(decoder));
    });
    looked_ahead_ = native_ || ahead_index_ == from || ahead_index_ > sequencer_.decided_index();
}

void Replica::note_end(const timebubble::StartPayload& start) {
    // Two primaries may have proposed the same server, and the first entry counts.
    ahead_generation_ = std::max(ahead_generation_, generation_.fed);
    if (start.generation != ahead_generation_ + 1) return;
    ahead_generation_ = start.generation;
    if (start.end_clock != 0 || start.end_steps == timebubble::kUnstartedSteps)
        ends_.emplace(start.generation - 1, Place{start.end_clock, start.end_steps});
}

void Replica::end_where_decided() {
    ends_.erase(ends_.begin(), ends_.lower_bound(generation_.fed));
    const auto end = ends_.find(generation_.fed);
    if (end == ends_.end() || server_ended_ || native_ || generation_.starting != 0) return;
    if (domain_.state() != DomainState::kAttached || domain_.killed() || image_.phase == ImagePhase::kTaking)
        return;
    if (decided_unstarted(generation_.fed)) {
        make_anew_before_end();
        return;
    }
    domain_.link().gate().close(end->second);
    const Whereabouts where = domain_.link().gate().look();
    if (where.at > end->second) {
        make_anew_before_end();
        return;
    }
    if (where.at != end->second || !where.between) return;
    drain();
    if (more_output_ || domain_.state() != DomainState::kAttached) return;
    spdlog::warn("the server is ended at logical clock {}, as decided: it went no further", where.at.clock);
    domain_.end_where_it_stands();
    batcher_.clear();  // what was said to it
    account_.forget_proposals();
}

/// The server is behind the place where the others' was ended.
void Replica::make_anew_before_end() {
    const std::string why = decided_unstarted(generation_.fed)
                                ? "the server runs, which the others could not start and have given up"
                                : "the server has gone on from where the others' was ended";
    const std::optional<CheckpointState>& from = checkpoints_.from();
    // An image from behind that place would bring it there again.
    if (from && from->live && from->generation == generation_.fed &&
        from->position.index == checkpoints_.held_index())
        checkpoints_.refuse(why);
    domain_.give_up(why + ": it is made anew");
}

void Replica::watch_standstill(uint64_t now_ns) {
    if (native_) return;
    if (delivery_paused_) looked_ahead_ = false;  // once more
    if (sequencer_.leads()) {
        lead_standstill(now_ns);
        return;
    }
    standstill_.forget();
    const bool asked = domain_.state() == DomainState::kAttached && domain_.link().gate().closed() &&
                       ends_.count(generation_.fed) == 0;
    if (asked && fenced_.empty() && sequencer_.leader() != 0)
        sequencer_.send(sequencer_.leader(),
                        "h" + encode(StandAnswer{generation_.fed, domain_.link().gate().look()}));
}

void Replica::lead_standstill(uint64_t now_ns) {
    const bool serves_now = domain_.state() == DomainState::kAttached && !server_ended_ &&
                            image_.phase != ImagePhase::kTaking && generation_.starting == 0;
    if (!serves_now || !sequencer_.can_propose() || next_proposed() || ends_.count(generation_.fed) != 0) {
        standstill_.forget();
        return;
    }
    const uint64_t limit_ns = config_.endless_s * 1'000'000'000ULL;
    DomainGate& gate = domain_.link().gate();
    Standstill::Look look{now_ns, generation_.fed, gate.look(), {}, 0, false, {}, {}};
    look.cpu_seconds = [this] { return tree_cpu_seconds(domain_.init_pid()); };
    look.io_bytes = [this] { return tree_io_bytes(domain_.init_pid()); };
    // A server that has heard its signal may take its time to save what it has.
    look.forced = restarts_.asked() && stop_at_ns_ == 0 && look.own.at.clock == asked_clock_;
    standstill_.set_limit(look.forced ? kAskedLimitNs : restarts_.wanted_if_ended() ? limit_ns : 0);
    for (const paxos::Member& member : sequencer_.membership().members) {
        if (!member.voter || !has_server(member)) continue;
        ++look.voters;
        // What one that differs does says nothing of the others' servers.
        const bool differs = divergence_.diverged().count(member.id) != 0 ||
                             divergence_.schedule_differs().count(member.id) != 0;
        if (member.id != config_.replica_id && peers_up_.count(member.id) && !differs)
            look.others.insert(member.id);
    }
    const bool asked = standstill_.asks();
    switch (standstill_.lead(look)) {
        case Standstill::Verdict::kNothing:
            gate.open();
            return;
        case Standstill::Verdict::kAsk:
            if (!asked)
                spdlog::warn(
                    "the server stands at logical clock {} for {} s, and does nothing else: it is to be "
                    "ended "
                    "there "
                    "and started again (setting endless_s)",
                    standstill_.place().clock, standstill_.stood_ns(now_ns) / 1'000'000'000);
            gate.close(standstill_.place());
            tell_to_stand();
            return;
        case Standstill::Verdict::kGoOn:
            spdlog::info("the server goes on after all");
            gate.open();
            tell_to_stand();
            return;
        case Standstill::Verdict::kEnd:
            propose_next_server(standstill_.place());
            return;
    }
}

void Replica::tell_to_stand() {
    const std::string word = "H" + encode(standstill_.word());
    for (const uint32_t peer : peers_up_) sequencer_.send(peer, word);
}

/// The leader's word; the answer says how far it was kept.
void Replica::on_stand_word(uint32_t from, std::string_view said) {
    const std::optional<StandWord> word = decode_stand_word(said);
    if (!word || native_ || server_ended_ || domain_.state() != DomainState::kAttached || domain_.killed())
        return;
    if (ends_.count(generation_.fed) != 0 || !fenced_.empty()) return;  // that is decided
    DomainGate& gate = domain_.link().gate();
    if (word->place.clock == 0 || word->generation != generation_.fed) {
        gate.open();
        return;
    }
    gate.close(word->place);
    sequencer_.send(from, "h" + encode(StandAnswer{generation_.fed, gate.look()}));
}

void Replica::on_stand_answer(uint32_t from, std::string_view said) {
    const std::optional<StandAnswer> answer = decode_stand_answer(said);
    if (!answer || !sequencer_.leads()) return;
    standstill_.answered(from, *answer);
    // Of an earlier leader's asking, or one that was taken back: what was said may be lost with its link.
    const bool held = standstill_.asks() || next_proposed() || ends_.count(answer->generation) != 0 ||
                      answer->generation == ended_generation_;
    if (!held && sequencer_.ready()) sequencer_.send(from, "H" + encode(StandWord{answer->generation, {}}));
}

}  // namespace crane::proxy
