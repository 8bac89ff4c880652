// The end of this replica's server beside those of the others: whose deed it was, and who has missed it.
//
// A server's own end is at the same place everywhere. One that has ended where a majority has not is made
// anew from the log; one that goes on where a majority has ended differs, and is fenced. Before that can be
// judged the ends have to come together: the leader hears of them and tells all.
#include <spdlog/spdlog.h>

#include <algorithm>

#include "base/clock.hpp"
#include "proxy/members.hpp"
#include "proxy/replica.hpp"

namespace crane::proxy {

using timebubble::CallKind;

namespace {

/// Replicas come to the same end within what their servers lag behind each other.
constexpr uint64_t kAgreementNs = 2'000'000'000;
/// Two servers with a witness: the other one is gone, and cannot be asked.
constexpr uint64_t kSilentMs = 5000;
/// From standing where the others' servers have ended to calling it a difference: an end takes its time, too.
constexpr uint64_t kMissedNs = 5'000'000'000;

}  // namespace

/// The others' server has ended, and this one's, which has come as far, has not.
void Replica::look_for_missed_end() {
    if (!fenced_.empty() || domain_.state() != DomainState::kAttached) return;
    // Sleeping, or wanting more time than the others' servers have come to their end with.
    const DomainLink& link = domain_.link();
    if (link.unadmitted() != 0 || !(link.at_rest() || link.at_standstill())) return;
    const std::optional<CheckpointState>& from = checkpoints_.from();
    const bool restored = from && from->live && from->generation == generation_.fed;
    if (decided_unstarted(generation_.fed) || (ends_.count(generation_.fed) != 0 && restored))
        make_anew_before_end();
    else
        fence_for_missed_end();
}

void Replica::fence_for_missed_end() {
    fence("its server goes on where the others' has ended: it serves nobody and does not lead",
          history_.last() ? history_.last()->index : 0);
}

/// Those that vote and have a server.
std::vector<uint32_t> Replica::servers() const {
    return server_ids(sequencer_.membership(), witnesses_);
}

ServerEnd Replica::own_end() const {
    if (!server_ended_) return {};
    if (unstarted_) return {generation_.fed, ServerEnd::kUnstarted};
    return {generation_.fed, history_.last() ? history_.last()->index : 0};
}

/// The leader tells what it hears, as long as anybody's has ended, and once that nobody's has any more.
void Replica::tell_ends() {
    const std::string word = ends_known_.word(config_.replica_id, own_end());
    if (word.empty() && !ends_told_) return;
    ends_told_ = !word.empty();
    for (const uint32_t peer : peers_up_) sequencer_.send(peer, "e" + word);
}

/// One whose server goes on where a majority's has ended, also if it leads.
void Replica::watch_missed_end(uint64_t now_ns) {
    const bool runs = !native_ && !server_ended_ && !alone() && fenced_.empty() &&
                      generation_.starting == 0 && domain_.state() == DomainState::kAttached &&
                      ends_.count(generation_.fed) == 0;
    // An end behind entry 0, 0: nobody's, or one that had nothing yet, which all have again.
    const uint64_t place = runs ? ends_known_.majority(generation_.fed, servers()).value_or(0) : 0;
    const uint64_t admitted = history_.last() ? history_.last()->index : 0;
    if (place == 0 || admitted < place) {
        missed_end_ns_ = 0;
    } else if (admitted > place) {
        fence_for_missed_end();
    } else if (missed_end_ns_ == 0) {
        missed_end_ns_ = now_ns;
    } else if (now_ns - missed_end_ns_ > kMissedNs) {
        look_for_missed_end();
    }
}

void Replica::on_server_ended(int32_t status) {
    restarts_.ended(generation_.fed_time_ns, status);
    server_ended_ns_ = monotonic_ns();
    stop_at_ns_ = 0;
    ++server_ends_;
    last_end_ = domain_.message();
}

/// Nobody else can have admitted anything behind the place where a server ends, until the next one begins;
/// but one that differs may have.
bool Replica::ended_alone(uint64_t now_ns) const {
    if (now_ns - server_ended_ns_ < kAgreementNs || end_is_agreed()) return false;
    if (!server_ended_ || !pending_.empty() || generation_.decided != generation_.fed) return false;
    const uint64_t admitted = history_.last() ? history_.last()->index : 0;
    const uint64_t others = standing_.others();
    return others > admitted && sequencer_.delivered_index() >= others;
}

/// A majority's server has ended at the same place, so it was the server's deed and not what befell one
/// replica.
bool Replica::end_is_agreed() const {
    std::vector<uint32_t> others;
    size_t reached = 1;
    for (const uint32_t server : servers())
        if (server != config_.replica_id) others.push_back(server);
    // A connection outlives a host without power for long.
    for (const paxos::PeerStatus& peer : sequencer_.peers())
        reached += peer.connected && peer.heard_ms_ago < kSilentMs &&
                   std::find(others.begin(), others.end(), peer.id) != others.end();
    const size_t voters = others.size() + 1;
    const size_t agree = 1 + (server_ended_ ? ends_known_.same(own_end(), others) : 0);
    // Two with a witness: one alone cannot be outvoted, and there is nobody else to ask.
    const bool half = !witnesses_.empty() && 2 * agree == voters && reached == agree;
    // Nobody else has a server until it begins from this one's state.
    const bool counts_alone = base_awaited() && is_base();
    return alone() || agree > voters / 2 || half || counts_alone;
}

void Replica::watch_server_end(uint64_t now_ns) {
    if (stop_at_ns_ != 0 && now_ns >= stop_at_ns_ && sequencer_.leads()) {
        stop_at_ns_ = 0;
        spdlog::warn("the server was asked to end and has not: it is ended");
        batcher_.add(CallKind::kStop, 0);
    }
    if (sequencer_.leads()) tell_ends();
    watch_missed_end(now_ns);
    if (!server_ended_ || native_) return;
    if (watch_unstarted()) return;
    if (ended_alone(now_ns)) {
        spdlog::error("{}, which the others' has not: it is made anew from the log", domain_.message());
        server_ended_ns_ = now_ns;
        events_.lost();
    } else if (sequencer_.leads() && !alone() && !end_is_agreed() &&
               now_ns - server_ended_ns_ > kAgreementNs) {
        // The others can go on only under somebody whose server does.
        server_ended_ns_ = now_ns;
        spdlog::warn("no other replica's server has ended as this one's has: leadership is handed over");
        sequencer_.transfer(0);
    }
}

}  // namespace crane::proxy
