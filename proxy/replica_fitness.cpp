// What is wrong with a replica: how its output and schedule compare with the others', what that means for it,
// and whether it is fit to lead.
#include <event2/event.h>
#include <spdlog/spdlog.h>
#include <string.h>

#include <algorithm>

#include "base/clock.hpp"
#include "proxy/replica.hpp"
#include "proxy/report_words.hpp"

namespace crane::proxy {

namespace {

/// How far the furthest server is, and the last admission of the primary's own (index 0: none).
struct StandingWord {
    uint64_t furthest;
    Admission own;
};

constexpr uint64_t kTrialAsLeaderNs = 10ULL * 1'000'000'000;
/// For others to take a checkpoint and offer it.
constexpr uint64_t kOthersPatienceNs = 60ULL * 1'000'000'000;

std::string fence_text(uint64_t index) {
    return "its output differs from the majority's, first seen at log index " + std::to_string(index) +
           ": it serves nobody and does not lead. See crane diff and docs/debugging.md";
}

constexpr char kStays[] =
    "it was made anew twice and differs again, so it stays as it is: find out what differs on its host, "
    "then have it made anew once more (crane checkpoint restore)";
constexpr char kNotRepaired[] =
    "it is not made anew by itself (setting repair): crane checkpoint restore has that done";

}  // namespace

std::string Replica::make_report() const {
    // In mode proxy nothing makes the servers' outputs equal, and nothing is to be compared.
    return encode_report(
        {settings_hash_, timekeeper_.reading(host_time()), server_ended_ ? generation_.fed : 0, unstarted_},
        native_ ? nullptr : history_.last());
}

void Replica::on_report(uint32_t from, const std::string& report) {
    ReportHead head;
    std::string_view rest = report;
    if (!decode_report(rest, head)) return;
    timekeeper_.heard(from, head.reading, host_time());
    if (head.settings == settings_hash_) {
        settings_differ_.erase(from);  // it was started anew
    } else if (head.settings != 0 && settings_differ_.insert(from).second) {
        spdlog::error(
            "replica {} has other settings of schedule, bubble, machine, server or environment than this "
            "one: the replicas will diverge; give all the same and start the cluster anew",
            from);
    }
    const auto admissions = decode_admissions(rest);
    const uint64_t admitted = admissions.empty() ? 0 : admissions[0].index;
    ends_known_.heard(from, {head.ended, head.unstarted ? ServerEnd::kUnstarted : admitted});
    if (admissions.empty()) {
        divergence_.began_anew(from);
        standing_.heard(from, 0);
        pace_.gone(from);
        return;
    }
    standing_.heard(from, admissions[0].index);
    pace_.heard(from, admissions[0].index, monotonic_ns());
    divergence_.report(from, admissions[0], history_);
}

void Replica::send_queries() {
    tell_findings();
    const uint64_t now = monotonic_ns();
    if (now - last_query_ns_ < 200'000'000) return;
    const auto query = divergence_.take_query();
    if (!query) return;
    last_query_ns_ = now;
    std::string message = "Q";
    message.append(reinterpret_cast<const char*>(&*query), sizeof(*query));
    for (uint32_t peer : peers_up_) sequencer_.send(peer, message);
}

void Replica::tell_findings() {
    for (const DivergenceCheck::Finding& one : divergence_.take_findings()) {
        if (one.replica == 0) {
            spdlog::critical(
                "DIVERGENCE at log index {}: the replicas' output differs and no majority agrees, so nobody "
                "knows which is right: bring the others back, or look with crane diff --anew and say whose "
                "state is to count (crane base)",
                one.index);
        } else {
            spdlog::critical("DIVERGENCE: replica {} differs from the majority {} log index {}", one.replica,
                             one.exact ? "first at" : "at or before", one.index);
        }
        ask_for_sides(one.index);  // before anybody is made anew for it
        if (one.replica == config_.replica_id) fence(fence_text(one.index), one.index);
    }
    std::erase_if(schedule_told_,
                  [this](uint32_t one) { return !divergence_.schedule_differs().count(one); });
    for (const auto& [replica, index] : divergence_.schedule_differs()) {
        if (!schedule_told_.insert(replica).second) continue;
        spdlog::error(
            "SCHEDULE: replica {} and this one ran differently, seen at log index {}, and their output is "
            "the same so far: they may diverge later. See docs/debugging.md",
            replica, index);
    }
}

/// What all have put out up to there: everybody tells everybody.
void Replica::ask_for_sides(uint64_t index) {
    std::string message = "X";
    message.append(reinterpret_cast<const char*>(&index), sizeof(index));
    for (const uint32_t peer : peers_up_)
        if (!witnesses_.count(peer)) sequencer_.send(peer, message);
    tell_side(index);
}

void Replica::tell_side(uint64_t index) {
    std::vector<TailRecord> records = tail_.up_to(index);
    std::string message = "x";
    message.append(reinterpret_cast<const char*>(&index), sizeof(index));
    message += encode_tail(records);
    difference_.heard(index, config_.replica_id, std::move(records), time(nullptr));
    for (const uint32_t peer : peers_up_)
        if (!witnesses_.count(peer)) sequencer_.send(peer, message);
}

void Replica::on_side(uint32_t from, std::string_view said) {
    uint64_t index = 0;
    if (said.size() < sizeof(index)) return;
    memcpy(&index, said.data(), sizeof(index));
    said.remove_prefix(sizeof(index));
    difference_.heard(index, from, decode_tail(said), time(nullptr));
}

/// Those known to differ, again and again: what was said may be lost with its link, and they may lead next.
void Replica::tell_the_odd() {
    for (const auto& [replica, finding] : divergence_.diverged()) {
        if (replica == 0 || replica == config_.replica_id || !peers_up_.count(replica)) continue;
        std::string message = "F";
        message.append(reinterpret_cast<const char*>(&finding.index), sizeof(finding.index));
        sequencer_.send(replica, message);
    }
}

void Replica::on_finding(std::string_view said) {
    uint64_t index = 0;
    if (!read_number(said, index)) return;
    // Said of the server before this one: this one has not come there yet.
    const uint64_t admitted = history_.last() ? history_.last()->index : 0;
    if (repairs_.on_trial() && admitted < index) return;
    fence(fence_text(index), index);
}

/// Backups report to the primary alone; how far the furthest server is, each has to know to judge its own,
/// and one that was made anew whether it does as the primary's.
void Replica::tell_standing() {
    StandingWord word{std::max(history_.last() ? history_.last()->index : 0, standing_.others()), {}};
    if (history_.last()) word.own = *history_.last();
    std::string message = "S";
    message.append(reinterpret_cast<const char*>(&word), sizeof(word));
    for (const uint32_t peer : peers_up_) sequencer_.send(peer, message);
}

void Replica::on_standing(uint32_t from, std::string_view said) {
    StandingWord word;
    if (said.size() != sizeof(word)) return;
    memcpy(static_cast<void*>(&word), said.data(), sizeof(word));
    standing_.heard(from, word.furthest);
    if (!leaders_word_ && word.own.index != 0) leaders_word_ = word.own;
}

/// It goes on voting and keeping the log, which is not what is wrong with it.
void Replica::fence(const std::string& why, uint64_t index) {
    // Without time bubbles replicas are bound to differ, as whoever says so has been told.
    if (!fenced_.empty() || alone() || !config_.bubbles) return;
    fenced_ = why;
    spdlog::critical("this replica is fenced: {}", fenced_);
    judge_fitness();
    close_ports();
    pool_.fail_all();
    if (config_.repair) {
        make_anew_from(index);
    } else {
        repairs_.left(index);
        fenced_ += std::string("; ") + kNotRepaired;
    }
}

/// From a checkpoint of others' from behind `index`, since the log that leads up to there has led here. Only
/// they know whether there is one; where none is, the primary is asked for it. False: none could be used.
bool Replica::begin_from_others(uint64_t index) {
    if (!checkpoints_.takes_images() || sequencer_.peers().empty()) return false;
    checkpoints_.distrust(index);  // else it would be taken for the one that is wanted
    from_others_ns_ = monotonic_ns();
    lack_checkpoint(index);
    return true;
}

void Replica::watch_begin_from_others(uint64_t now_ns) {
    if (from_others_ns_ == 0) return;
    if (shipping_.comes()) from_others_ns_ = now_ns;
    if (now_ns - from_others_ns_ < kOthersPatienceNs) return;
    from_others_ns_ = 0;
    lacking_ = false;
    shipping_.want(0);
    domain_.give_up("no other replica gives it a checkpoint to begin from, so it is made anew from the log");
}

void Replica::make_anew_from(uint64_t index) {
    const Repairs::Step step = repairs_.differs(index);
    if (step == Repairs::Step::kNone) {
        fenced_ += std::string("; ") + kStays;
        spdlog::critical("{}", kStays);
        return;
    }
    const bool own = step == Repairs::Step::kFromOwn;
    checkpoints_.distrust(own ? index : 0);
    if (!own && begin_from_others(index)) {
        spdlog::error("made anew it differs again, and begins from the others' checkpoint");
        return;
    }
    domain_.give_up(own ? "it differs from the majority's, and is made anew from before log index " +
                              std::to_string(index)
                        : std::string("made anew it differs again, and is made anew from the whole log"));
}

/// One that was made anew serves again when its output is found equal to the leader's, where it differed or
/// behind.
void Replica::watch_trial() {
    if (!repairs_.on_trial() || !fenced_.empty()) return;
    if (leaders_word_ && history_.last() && history_.last()->index >= leaders_word_->index) {
        const Admission* own = history_.find(leaders_word_->index);
        if (own && own->output == leaders_word_->output) repairs_.agrees(own->index);
        leaders_word_.reset();
    }
    // It hands over as soon as somebody else can lead: nobody can, and so nobody will ever say.
    if (sequencer_.leads() && monotonic_ns() - lead_since_ns_ > kTrialAsLeaderNs) repairs_.acquit();
    if (repairs_.on_trial()) return;
    spdlog::info("this replica's output is the primary's again: it serves clients");
    open_ports();
    judge_fitness();
}

bool Replica::without_server() const {
    return lacking_ || kept_unstarted() || domain_.state() == DomainState::kRefused ||
           domain_.state() == DomainState::kLost || frozen_.frozen();
}

/// What keeps this replica from leading while another can.
void Replica::judge_fitness() {
    const uint64_t admitted = history_.last() ? history_.last()->index : 0;
    const bool replaying = standing_.far_behind(admitted) && !sequencer_.leads();
    fit_to_lead_ = fenced_.empty() && !repairs_.on_trial() && !disk_.low() && !without_server() &&
                   !replaying && !timekeeper_.unfit_to_lead(host_time());
    sequencer_.set_eligible(fit_to_lead_);
}

void Replica::watch_disk() {
    const std::optional<DiskSpace> space = disk_space(config_.state_dir);
    const bool changed = space && disk_.observe(*space, monotonic_ns());
    if (changed) choose_output();
    sequencer_.set_has_room(!disk_.critical());
    const timeval next{0, static_cast<suseconds_t>(disk_.next_look_ns() / 1000)};
    evtimer_add(disk_timer_, &next);
    if (!changed) return;
    judge_fitness();
    if (disk_.low()) {
        spdlog::critical("{}", disk_.alarm(config_.state_dir));
    } else {
        spdlog::warn("there is room again where {} is ({}): input goes on", config_.state_dir,
                     disk_.free_text());
    }
}

}  // namespace crane::proxy
