// Checkpoints of a server that runs: an image of its processes with its files, taken where it rests behind
// all that it was given, and the beginning from one.
//
// Where that is, is this replica's own affair: an image stands behind whatever entry its server rests at, and
// leaves no trace in the log. The primary only says whose turn it is (image_rounds.hpp).
#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "base/clock.hpp"
#include "proxy/process_tree.hpp"
#include "proxy/replica.hpp"

namespace crane::proxy {

namespace {

/// A server that never rests has an image taken between two batches.
constexpr uint64_t kRestWantedNs = 500'000'000;
/// One that does not come so far either has none.
constexpr uint64_t kRestPatienceNs = 60'000'000'000;
/// So many times the log between two rounds, and a replica that takes none itself fetches one.
constexpr uint64_t kFetchBehind = 3;
constexpr uint64_t kCopiesPatienceNs = 300'000'000;
constexpr uint64_t kCopiesLookNs = 5'000'000;
constexpr uint64_t kAskAgainNs = 10'000'000'000;
constexpr uint64_t kTellAgainNs = 5'000'000'000;
constexpr uint64_t kLookEveryNs = 5'000'000'000;
/// Longer than a disk or a debugger holds up a server that is well.
constexpr uint64_t kRestoredPatienceNs = 30'000'000'000;

/// A connection outlives a host without power for long.
bool hears(const paxos::PeerStatus& peer) {
    constexpr uint64_t kSilentMs = 5000;
    return peer.connected && peer.heard_ms_ago < kSilentMs;
}

}  // namespace

/// On the primary: who is to take one now.
void Replica::ask_for_images(uint64_t now_ns) {
    if (!checkpoints_.takes_images() || native_) return;
    if (now_ns - image_.looked_ns >= kLookEveryNs) {
        image_.looked_ns = now_ns;
        image_rounds_.computed(tree_cpu_seconds(domain_.init_pid()));
    }
    std::vector<ImageRounds::Voter> voters{
        {config_.replica_id, fenced_.empty() && !server_ended_, checkpoints_.held_index()}};
    for (const paxos::PeerStatus& peer : sequencer_.peers())
        if (peer.voter)
            voters.push_back({peer.id, hears(peer) && !peer.rejoining && !peer.needs_checkpoint,
                              peer.checkpoint, witnesses_.count(peer.id) == 0,
                              peer.needs_checkpoint && peer.connected});
    // Who is behind has other things to do, and may have caught up when the others have taken theirs.
    std::stable_partition(voters.begin(), voters.end(),
                          [&](const ImageRounds::Voter& one) { return !pace_.lags(one.id, now_ns); });
    const uint32_t whom = image_rounds_.next(now_ns, sequencer_.decided_index(), voters);
    const uint64_t first = image_rounds_.first_index();
    if (whom == config_.replica_id) want_image(first);
    if (whom != 0 && whom != config_.replica_id)
        sequencer_.send(whom, "K" + std::string(reinterpret_cast<const char*>(&first), sizeof(first)));
}

std::string Replica::take_checkpoint() {
    if (!sequencer_.leads()) return not_primary();
    if (!checkpoints_.takes_images())
        return "no image of a running server can be taken here (see crane check); `crane restart` keeps its "
               "files";
    if (server_ended_) return "there is no server now: " + domain_.message();
    image_rounds_.ask();
    return "";
}

void Replica::on_turn_for_image(std::string_view said) {
    uint64_t index = 0;
    if (read_number(said, index)) want_image(index);
}

void Replica::want_image(uint64_t first_index) {
    if (image_.packing) image_.next_index = std::max(image_.next_index, first_index);
    if (image_.phase != ImagePhase::kNone || image_.packing) return;
    if (!checkpoints_.takes_images()) {
        image_failed(config_.replica_id);
        return;
    }
    image_.first_index = first_index;
    image_.phase = ImagePhase::kWanted;
    image_.unadmitted = ~uint64_t{0};
    image_.since_ns = monotonic_ns();
    image_.copied = false;
    image_.copies_ns = 0;
}

bool Replica::is_at_image() const {
    return image_.phase != ImagePhase::kNone || checkpoints_.keeping();
}

/// In the housekeeping of whoever takes one, however long that takes.
void Replica::tell_at_image(uint64_t now_ns) {
    if (!is_at_image()) return;
    if (sequencer_.leads()) {
        image_rounds_.at_it(now_ns, config_.replica_id);
    } else if (sequencer_.leader() != 0 && now_ns - image_.told_ns > kTellAgainNs) {
        image_.told_ns = now_ns;
        sequencer_.send(sequencer_.leader(), "j");
    }
}

/// Who leads has other things to do, if another can.
void Replica::forget_image() {
    if (alone()) return;
    image_.next_index = 0;
    if (image_.phase != ImagePhase::kWanted) return;
    image_.phase = ImagePhase::kNone;
    feed();
}

/// Nothing runs in the domain, which is then the same as at that place on any other replica. Best where every
/// thread waits: what is under way need not be in the image.
bool Replica::stands_for_image(uint64_t wanted_ns) const {
    const DomainLink& link = domain_.link();
    if (link.at_rest()) return true;
    return config_.policy == timebubble::Policy::kSerial && wanted_ns > kRestWantedNs && link.at_standstill();
}

/// Before the server stands still its clients get the primary's output. Those in the midst of an answer wait
/// for their own server where the primary's is ahead of it all the time: nobody waits for them for long.
bool Replica::clients_have_copies() {
    if (sequencer_.leads() || clients_.size() == 0) return true;
    const uint64_t now = monotonic_ns();
    if (image_.copies_ns == 0) {
        image_.copies_ns = image_.copies_looked_ns = now;
        clients_.want_copies(true);
    }
    if (now - image_.copies_ns >= kCopiesPatienceNs) return true;
    if (now - image_.copies_looked_ns < kCopiesLookNs) return false;
    image_.copies_looked_ns = now;
    return clients_.copies_joined();
}

/// In each turn while one is wanted. The server is given one batch after the other until it rests behind one
/// that is far enough.
void Replica::look_for_image() {
    if (image_.phase != ImagePhase::kWanted) return;
    const bool able = domain_.state() == DomainState::kAttached && !domain_.killed() && !server_ended_ &&
                      serves() && !disk_.low();
    if (!able || monotonic_ns() - image_.since_ns > kRestPatienceNs) {
        if (able)
            checkpoints_.image_failed("the server did not rest within " +
                                      std::to_string(kRestPatienceNs / 1'000'000'000) + " s");
        image_.phase = ImagePhase::kNone;
        image_failed(config_.replica_id);
        feed();
        return;
    }
    if (!delivery_paused_) {
        if (!image_.copied && !clients_have_copies()) return;
        image_.copied = true;
        delivery_paused_ = true;
        sequencer_.pause_delivery(true);
    }
    const DomainLink& link = domain_.link();
    const bool known = sequencer_.delivered_position().index >= image_.first_index &&
                       generation_.decided == generation_.fed && history_.last() != nullptr &&
                       sequencer_.delivered_membership() != nullptr;
    // One that has just come back, or is behind, may have far to go to what it was given: what its server
    // does meanwhile says nothing of it.
    const bool comes_on = link.unadmitted() < image_.unadmitted;
    image_.unadmitted = std::min(image_.unadmitted, link.unadmitted());
    if (!known || !pending_.empty() || comes_on) image_.since_ns = monotonic_ns();
    if (!pending_.empty() || link.unadmitted() != 0) return;
    if (known && stands_for_image(monotonic_ns() - image_.since_ns)) {
        begin_image();
    } else if (!known || link.starved()) {
        delivery_paused_ = false;
        sequencer_.pause_delivery(false);
    }
}

/// The primary need not wait for this one.
void Replica::image_failed(uint32_t whose) {
    if (sequencer_.leads()) {
        image_rounds_.failed(whose);
    } else if (whose == config_.replica_id && sequencer_.leader() != 0) {
        sequencer_.send(sequencer_.leader(), "k");
    }
}

void Replica::begin_image() {
    CheckpointState state;
    state.cluster = config_.cluster_id;
    state.generation = generation_.fed;
    state.position = sequencer_.delivered_position();
    state.membership = *sequencer_.delivered_membership();
    state.starts = sequencer_.starts();
    state.output = log_.position();
    state.admission = *history_.last();
    state.last_numbers = account_.last_numbers();
    state.server_ends = server_ends_;
    state.last_end = last_end_;
    state.live = LiveServer{generation_.fed_time_ns, domain_.link().words(), ports_.records(),
                            account_.open(),         account_.kept(),        egress_.kept()};
    if (const auto known = programs_.find(generation_.fed); known != programs_.end())
        state.program = known->second;
    image_.phase = ImagePhase::kTaking;
    domain_.take_image(checkpoints_.image_place(state.position.index, domain_.init_pid()),
                       [this, state](const std::string& error, DomainRunner::Pack pack) {
                           image_.phase = ImagePhase::kNone;
                           if (error.empty()) {
                               pack_image(state, std::move(pack));
                           } else {
                               checkpoints_.packed(state, error, {},
                                                   [this](bool) { image_failed(config_.replica_id); });
                           }
                           feed();
                       });
}

/// The server goes on meanwhile.
void Replica::pack_image(const CheckpointState& state, DomainRunner::Pack pack) {
    image_.packing = true;
    const auto packed = [this, index = state.position.index](bool kept) {
        image_.packing = false;
        if (kept) sequencer_.hold_checkpoint(index);
        const uint64_t next = std::exchange(image_.next_index, 0);
        if (next > index || (next != 0 && !kept)) {
            want_image(next);
        } else if (!kept) {
            image_failed(config_.replica_id);
        }
    };
    checkpoints_.pack(state, std::move(pack), shipping_.held(), packed);
}

/// As it stands in the image, and would if this replica had seen the log up to there.
void Replica::start_from_image() {
    const CheckpointState& from = *checkpoints_.from();
    const LiveServer& live = *from.live;
    generation_.decided = generation_.fed = from.generation;
    generation_.fed_time_ns = live.timestamp_ns;
    restarts_.started(live.timestamp_ns);
    if (!live.listeners.empty()) restarts_.listened();
    server_ends_ = from.server_ends;
    last_end_ = from.last_end;
    account_.restore(from.last_numbers);
    account_.restore(live.account, live.open);
    egress_.began_server(from.generation);
    egress_.restore(live.egress);
    ports_.restore(live.listeners);
    history_.add(from.admission);
    batcher_.saw_timestamp(live.timestamp_ns);
    timekeeper_.decided(live.timestamp_ns, host_time());
    last_batch_index_ = from.admission.index;
    DomainRunner::Image image = checkpoints_.image(live.words);
    if (!from.program.empty()) programs_[from.generation] = from.program;
    if (!config_.accept_changes) image.program = from.program;
    if (!from.program.empty() && !config_.image_is_accepted()) use_image(checkpoint::image_in(from.program));
    program_.image = from.program;
    domain_.restore_image(image);
    sequencer_.hold_checkpoint(from.position.index);
}

/// Clients come to a restored server, too, which does not say again where it listens.
void Replica::open_ports() {
    if (ports_open_ || !serves() || will_begin_anew()) return;
    ports_open_ = true;
    for (const timebubble::ListenRecord& one : ports_.records()) listeners_.listen(one);
}

void Replica::close_ports() {
    listeners_.close_all();
    ports_open_ = false;
}

/// What the others have was tried here, and no server could be restored from it; or it is from before the
/// place where this replica differed; or nobody has any that is sound.
void Replica::ask_for_new_image(uint64_t now_ns) {
    const bool needs_one = from_others_ns_ != 0 || lacking_;
    const bool wanted = shipping_.wants_new_one() || (needs_one && shipping_.finds_none());
    if (!wanted || sequencer_.leads() || sequencer_.leader() == 0) return;
    if (now_ns - asked_for_image_ns_ < kAskAgainNs) return;
    asked_for_image_ns_ = now_ns;
    sequencer_.send(sequencer_.leader(), "W");
}

/// It replays what the others have a checkpoint behind: to begin there is sooner done. Or it cannot replay
/// it, since there was another shim, which an image brings.
bool Replica::replays_before(uint64_t checkpoint) const {
    const uint64_t admitted = history_.last() ? history_.last()->index : 0;
    if (sequencer_.leads() || checkpoint <= admitted) return false;
    if (domain_.program_refused()) return shim_is_another();
    return domain_.state() == DomainState::kAttached && checkpoint > admitted + Standing::kFarBehind;
}

/// As far as is known: whoever came to it before would be cut off.
bool Replica::will_begin_anew() const {
    const uint64_t common = sequencer_.common_checkpoint();
    const uint64_t last = std::max(sequencer_.last_index(), sequencer_.delivered_position().index);
    if (lacking_) return true;
    return checkpoints_.takes_images() && !sequencer_.leads() && (common > last || replays_before(common));
}

/// A server that does nothing at all since it was restored, for whatever reason, would stay so for ever: it
/// is made anew without that checkpoint.
void Replica::watch_restored(uint64_t now_ns) {
    const std::optional<CheckpointState>& from = checkpoints_.from();
    const bool stands = frozen_.frozen() && from && from->live && from->generation == generation_.fed &&
                        history_.last() && history_.last()->index == from->admission.index &&
                        checkpoints_.held_index() == from->position.index && !domain_.killed();
    if (!stands) {
        stands_restored_ns_ = 0;
    } else if (stands_restored_ns_ == 0) {
        stands_restored_ns_ = now_ns;
    } else if (now_ns - stands_restored_ns_ > kRestoredPatienceNs) {
        stands_restored_ns_ = 0;
        checkpoints_.refuse("the server that was restored from it does not run");
        domain_.give_up("restored from its checkpoint the server does not run at all: it is made anew");
    }
}

/// The log is cut where there is a checkpoint: a replica that takes none has one sent.
void Replica::fetch_to_keep() {
    if (!checkpoints_.takes_images()) return;  // nor could it begin at one
    const uint64_t common = sequencer_.common_checkpoint();
    const bool far = checkpoints_.log_bytes() > kFetchBehind * config_.checkpoint_log_bytes;
    // One that is on its way is good enough: a later one each round would never have come over a slow link.
    if ((!far && !replays_before(common)) || common <= checkpoints_.held_index() || shipping_.wanted() != 0 ||
        lacking_)
        return;
    if (!is_at_image()) shipping_.want(common);
}

}  // namespace crane::proxy
