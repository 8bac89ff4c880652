#include "proxy/witness.hpp"

#include <event2/event.h>
#include <spdlog/spdlog.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/clock.hpp"
#include "proxy/lack.hpp"
#include "proxy/members.hpp"
#include "proxy/process_tree.hpp"
#include "proxy/report_words.hpp"
#include "proxy/session_share.hpp"

namespace crane::proxy {

namespace {

constexpr timeval kHousekeeping{0, 250'000};
constexpr size_t kShipBesideBytes = 512 * 1024;
/// The primary is told that what it asked for comes.
constexpr uint64_t kTellAgainNs = 5'000'000'000;
/// Nobody has offered what the primary asked for: it is told so.
constexpr uint64_t kFetchPatienceNs = 30'000'000'000;
/// What the log's database writes for an entry besides the batch.
constexpr uint64_t kEntryOverheadBytes = 512;

HostTime host_time() {
    return {boottime_ns(), realtime_ns()};
}

}  // namespace

Witness::Witness(event_base* base, const Config& config, Timekeeper& timekeeper,
                 const std::shared_ptr<checkpoint::KnownSums>& sums, Events events)
    : config_(config),
      timekeeper_(timekeeper),
      events_(std::move(events)),
      checkpoints_(base, config, sums, events_.busy),
      mail_([this](uint32_t to, const std::string& message) { return sequencer_.send(to, message); },
            [this](const nlohmann::json& request, OperatorMail::Reply reply) {
                events_.asked(request, std::move(reply));
            }),
      sequencer_(base, config, checkpoints_.from(),
                 SequencerEvents{
                     [this](uint64_t, uint64_t, const std::shared_ptr<const std::string>& batch) {
                         checkpoints_.logged(batch->size() + kEntryOverheadBytes);
                     },
                     [] {},
                     [this] { on_role(); },
                     [this] { return make_report(); },
                     [this](uint32_t from, const std::string& report) { on_report(from, report); },
                     [this](uint32_t from, const std::string& message) { on_message(from, message); },
                     [this](uint32_t peer, bool up) { on_link(peer, up); },
                     [this](const std::string& reason) { events_.fatal(reason); },
                     [this](const paxos::MembershipAt& decided) { on_membership(decided); },
                 }),
      shipping_(
          base,
          std::make_shared<StoredCheckpointFiles>(config.state_dir + "/checkpoints",
                                                  config.disk_reserve_bytes, sums),
          config.ship_bytes_per_s,
          [this](uint32_t to, const std::string& message) {
              return sequencer_.queued_bytes(to) < kShipBesideBytes && sequencer_.send(to, 'C' + message);
          },
          [this](uint64_t index) { on_fetched(index); }),
      disk_(config.disk_reserve_bytes) {
    prefer_this_session(true);  // it has little to do, and nothing that gains by waiting
    timekeeper_.stop_leading();
    timekeeper_.set_voters(voter_ids(sequencer_.membership()));
    housekeeping_ = event_new(
        base, -1, EV_PERSIST, [](int, short, void* self) { static_cast<Witness*>(self)->housekeep(); }, this);
    event_add(housekeeping_, &kHousekeeping);
}

Witness::~Witness() {
    event_free(housekeeping_);
}

void Witness::start() {
    const uint64_t said = sequencer_.membership_index();
    if (sequencer_.membership().removed(config_.replica_id) && said <= sequencer_.decided_index()) {
        events_.fatal("witness " + std::to_string(config_.replica_id) +
                      " was removed from the cluster by log entry " + std::to_string(said) +
                      ". Ids are not used again: add it under a new one (crane member add), with an empty "
                      "state directory");
        return;
    }
    const bool lacks = sequencer_.lacks_checkpoint();
    const uint64_t first = sequencer_.first_log_index();
    sequencer_.set_eligible(false);
    sequencer_.pause_delivery(lacks);  // there is nothing to deliver it after
    sequencer_.start();
    sequencer_.pause_delivery(lacks);
    if (lacks) {
        lack(first - 1);
    } else if (checkpoints_.from()) {
        sequencer_.hold_checkpoint(checkpoints_.from()->position.index);
    }
}

void Witness::stop(std::function<void()> done) {
    stopping_ = true;
    sequencer_.shutdown(std::move(done));
}

void Witness::on_membership(const paxos::MembershipAt& decided) {
    if (decided.index == sequencer_.membership_index())
        spdlog::info("members by entry {}: {}", decided.index, paxos::describe(decided.membership));
    timekeeper_.set_voters(voter_ids(decided.membership));
    if (decided.membership.removed(config_.replica_id) && sequencer_.membership().removed(config_.replica_id))
        events_.removed(decided.index);
}

void Witness::on_link(uint32_t peer, bool up) {
    if (up) sequencer_.send(peer, {kWitnessWord});
    shipping_.on_link(peer, up);
}

void Witness::on_role() {
    spdlog::info("witness, role {}, view {}, primary {}", sequencer_.role_name(), sequencer_.view_counter(),
                 sequencer_.leader());
    events_.led(sequencer_.view(), sequencer_.leader());
    shipping_.set_leader(sequencer_.leader());
}

void Witness::on_message(uint32_t from, const std::string& message) {
    if (message.empty()) return;
    const std::string_view body = std::string_view(message).substr(1);
    const bool leaders = from == sequencer_.leader();
    if (message[0] == kWitnessWord) witnesses_.insert(from);
    if (message[0] == 'C') shipping_.on_message(from, body);
    if (message[0] == 'K' && leaders) on_turn_to_fetch(body);
    if (message[0] == 'L' && leaders) on_lack(body);
    if (message[0] == 'O') mail_.on_request(from, body);
    if (message[0] == 'A') mail_.on_answer(body);
}

std::string Witness::make_report() const {
    return encode_report({0, timekeeper_.reading(host_time()), 0}, nullptr);
}

void Witness::on_report(uint32_t from, const std::string& report) {
    ReportHead head;
    std::string_view rest = report;
    if (decode_report(rest, head)) timekeeper_.heard(from, head.reading, host_time());
}

// --- checkpoints

/// The primary asks those with a server first: one of them has it.
void Witness::on_turn_to_fetch(std::string_view said) {
    uint64_t index = 0;
    if (!read_number(said, index) || lacking_ || disk_.low()) return;
    if (checkpoints_.held_index() >= index) {
        sequencer_.hold_checkpoint(checkpoints_.held_index());
        return;
    }
    asked_ns_ = monotonic_ns();
    shipping_.want(index);
}

void Witness::on_lack(std::string_view said) {
    uint64_t index = 0;
    if (!read_number(said, index)) return;
    const uint64_t last = std::max(sequencer_.last_index(), sequencer_.delivered_position().index);
    switch (lack_step({index, last, checkpoints_.held_index(), shipping_.wanted(), lacking_})) {
        case LackStep::kNone:
            break;
        case LackStep::kFetch:
            lack(index);
            break;
        case LackStep::kBegin:
            lacking_ = true;
            events_.lost();
            break;
    }
}

void Witness::lack(uint64_t index) {
    spdlog::warn(
        "what this witness lacks is no longer in the log: a checkpoint of entry {} or later is fetched",
        index);
    lacking_ = true;
    shipping_.want(std::max(index, shipping_.wanted()));
}

void Witness::on_fetched(uint64_t index) {
    asked_ns_ = 0;
    if (lacking_) {
        spdlog::info("the checkpoint at log index {} has come: the log goes on behind it", index);
        events_.lost();
        return;
    }
    checkpoints_.adopt(index, shipping_.held());
    sequencer_.hold_checkpoint(index);
}

// --- what is looked at regularly

void Witness::housekeep() {
    const uint64_t now_ns = monotonic_ns();
    const HostTime now = host_time();
    timekeeper_.tick(now);
    std::string alarm = timekeeper_.alarm(now);
    if (alarm.empty() != clock_alarm_.empty()) {
        if (alarm.empty()) {
            spdlog::info("the clocks agree again");
        } else {
            spdlog::warn("{}", alarm);
        }
    }
    clock_alarm_ = std::move(alarm);
    watch_disk(now_ns);
    if (asked_ns_ != 0 && shipping_.comes() && now_ns - told_ns_ > kTellAgainNs) {
        asked_ns_ = told_ns_ = now_ns;
        if (sequencer_.leader() != 0) sequencer_.send(sequencer_.leader(), "j");
    }
    if (asked_ns_ == 0 || now_ns - asked_ns_ < kFetchPatienceNs || lacking_) return;
    asked_ns_ = 0;
    shipping_.want(0);
    if (sequencer_.leader() != 0) sequencer_.send(sequencer_.leader(), "k");
}

void Witness::watch_disk(uint64_t now_ns) {
    const std::optional<DiskSpace> space = disk_space(config_.state_dir);
    const bool changed = space && disk_.observe(*space, now_ns);
    sequencer_.set_has_room(!disk_.critical());
    if (!changed) return;
    if (disk_.low()) {
        spdlog::critical("{}", disk_.alarm(config_.state_dir));
    } else {
        spdlog::warn("there is room again where {} is ({})", config_.state_dir, disk_.free_text());
    }
}

// --- orders, and what it says of itself

std::string Witness::leads_for_a_moment() const {
    return "a witness leads for a moment, to give what is decided to a replica that has a server: try again";
}

std::string Witness::transfer(uint32_t to) {
    if (!sequencer_.membership().voter(to))
        return "there is no replica " + std::to_string(to) + " that votes";
    if (to == config_.replica_id) return "a witness does not lead";
    sequencer_.transfer(to);
    return "";
}

std::string Witness::remake_server() {
    return "this is a witness: it has no server";
}

std::string Witness::change_membership(const paxos::MembershipChange& change) {
    return sequencer_.change_membership(change);
}

Alarms Witness::alarms() const {
    Alarms out;
    const auto raise = [&](AlarmKind kind, std::string text) {
        if (!text.empty()) out.push_back({kind, std::move(text)});
    };
    raise(AlarmKind::kCheckpoint, checkpoints_.error());
    raise(AlarmKind::kCheckpointFetch, shipping_.alarm());
    raise(AlarmKind::kDiskFull, disk_.alarm(config_.state_dir));
    raise(AlarmKind::kClocks, clock_alarm_);
    raise(AlarmKind::kDisowned, sequencer_.stats().disowned);
    return out;
}

nlohmann::json Witness::status() const {
    const paxos::NodeStats node = sequencer_.stats();
    const Alarms wrong = alarms();
    return {{"replica", config_.replica_id},
            {"cluster", config_.cluster_id},
            {"witness", true},
            {"server", "witness"},
            {"role", sequencer_.role_name()},
            {"view", sequencer_.view_counter()},
            {"leader", sequencer_.leader()},
            {"rejoining", sequencer_.rejoining()},
            {"lacks_checkpoint", lacking_},
            {"ready", sequencer_.ready()},
            {"durability", config_.durable ? "disk" : "memory"},
            {"decided", sequencer_.decided_index()},
            {"admitted", 0},
            {"clock", 0},
            {"lag",
             sequencer_.decided_index() - std::min(sequencer_.decided_index(), sequencer_.delivered_index())},
            {"connections", 0},
            {"output_hash", ""},
            {"listen", nlohmann::json::array()},
            {"cpu_seconds", {{"craned", own_cpu_seconds()}, {"domain", 0.0}}},
            {"pid", getpid()},
            {"message", wrong.empty() ? "" : wrong.front().text},
            {"fenced", ""},
            {"fit_to_lead", false},
            {"input_stopped", disk_.critical()},
            {"alarms", alarm_texts(wrong)},
            {"alarm_names", alarm_names(wrong)},
            {"checkpoint", checkpoints_.json(sequencer_.common_checkpoint(), false)},
            {"checkpoint_fetch", shipping_.status()},
            {"first_log_index", sequencer_.first_log_index()},
            {"peers", peers_json(sequencer_, witnesses_)},
            {"membership", membership_json(sequencer_)},
            {"latency", latency_json(sequencer_)},
            {"disk", disk_json(disk_, config_.disk_reserve_bytes)},
            {"counters",
             {{"syncs", node.syncs},
              {"batches", sequencer_.batches_seen()},
              {"view_changes", node.view_changes},
              {"messages_sent", node.messages_sent},
              {"messages_received", node.messages_received}}}};
}

}  // namespace crane::proxy
