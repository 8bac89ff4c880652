#include "proxy/replica.hpp"

#include <event2/event.h>
#include <spdlog/spdlog.h>
#include <string.h>
#include <sys/random.h>
#include <sys/wait.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "proxy/backtrace.hpp"
#include "proxy/clock.hpp"
#include "proxy/plain_text.hpp"
#include "proxy/process_tree.hpp"

namespace crane::proxy {

using timebubble::CallKind;
using timebubble::OutputKind;

namespace {

/// Batches under way at once. More calls than these carry coalesce, which is what a busy domain needs: it
/// admits one batch per grant.
constexpr uint64_t kBatchesUnderWay = 4;
constexpr uint64_t kServerMessages = 1000;  // logged of one domain: it must not fill the log's disk
constexpr size_t kDrainBytes = 4 * 1024 * 1024;
constexpr size_t kPendingBatches = 64;
constexpr timeval kHousekeeping{0, 250'000};
constexpr timeval kFlushDelay{0, 100'000};
/// Of the stock of output, what connections may hold that the server has closed.
constexpr uint64_t kClosingShare = 4;
constexpr uint64_t kSettlePatienceNs = 1'000'000'000;
constexpr uint64_t kFrozenNs = 1'000'000'000;
constexpr uint64_t kStepDownPauseNs = 2'000'000'000;

std::vector<uint32_t> member_ids(const paxos::Membership& membership) {
    std::vector<uint32_t> ids;
    for (const paxos::Member& member : membership.members) ids.push_back(member.id);
    return ids;
}

std::vector<uint32_t> voter_ids(const paxos::Membership& membership) {
    std::vector<uint32_t> ids;
    for (const paxos::Member& member : membership.members)
        if (member.voter) ids.push_back(member.id);
    return ids;
}

}  // namespace

/// "" without a [confinement] table, so that the number is what it was.
std::string confinement_text(const Config& config) {
    std::string text;
    const auto put = [&](const char* name, const std::vector<std::string>& words) {
        for (const std::string& word : words)
            if (!word.empty()) text += '\2' + std::string(name) + '\0' + word;
    };
    put("user", {config.user});
    put("group", {config.group});
    put("capability", config.confinement.capabilities);
    put("call", config.confinement.system_calls);
    put("device", config.confinement.devices);
    put("privileges", {config.confinement.new_privileges ? "new" : ""});
    put("hide", config.hide);
    put("show", config.show);
    put("quota", {config.disk_quota_bytes ? std::to_string(config.disk_quota_bytes) : ""});
    return text;
}

/// What every replica's domain must have equal, in one number.
uint64_t settings_hash(const Config& config) {
    std::string text = std::to_string(static_cast<int>(config.policy)) + "/" +
                       std::to_string(config.quantum) + "/" + std::to_string(config.bubbles) + "/" +
                       std::to_string(config.cpus) + "/" + std::to_string(config.memory_bytes) + "/" +
                       config.hostname + "/" + config.cwd;
    for (const std::string& word : config.server) text += '\0' + word;
    text += '\1';
    for (const std::string& word : config.environment) text += '\0' + word;
    text += confinement_text(config);
    return hash_payload(text).low;
}

Replica::Replica(event_base* base, const Config& config, Timekeeper& timekeeper, Events events)
    : base_(base),
      config_(config),
      timekeeper_(timekeeper),
      events_(std::move(events)),
      settings_hash_(settings_hash(config)),
      domain_(
          base, config, [this] { drain(); }, [this] { on_domain_changed(); }),
      log_(config.state_dir, config),
      bubbles_(base, config, [this] { return timekeeper_.now(host_time()); }),
      account_(config.input_bytes),
      pool_(base, config.keepalive, config.output_bytes / kClosingShare),
      clients_(config.replica_id, config.mode != Mode::kProxy, [this] { return own_domain_is_behind(); }),
      carrier_(
          config.replica_id, clients_,
          [this](uint32_t to, const std::string& message) { return sequencer_.send(to, "R" + message); }),
      ingress_({config.replica_id, config.output_bytes, config.election_timeout_ms * 2'000'000ULL}, batcher_,
               account_, [this](uint32_t replica) { return carrier_.reply_to(replica); }),
      mail_([this](uint32_t to, const std::string& message) { return sequencer_.send(to, message); },
            [this](const nlohmann::json& request) { return events_.order(request); }),
      listeners_(
          base, config.self().client_address, config.self().port_map,
          [this](int fd, uint16_t port, Listeners::Place place) { on_accepted(fd, port, std::move(place)); }),
      sequencer_(base, config,
                 SequencerEvents{
                     [this](uint64_t index, uint64_t, const std::shared_ptr<const std::string>& batch) {
                         on_batch(index, batch);
                     },
                     [this] { on_ready(); },
                     [this] { on_role(); },
                     [this] { return make_report(); },
                     [this](uint32_t from, const std::string& report) { on_report(from, report); },
                     [this](uint32_t from, const std::string& message) { on_message(from, message); },
                     [this](uint32_t peer, bool up) { on_link(peer, up); },
                     [this](const std::string& reason) { events_.fatal(reason); },
                     [this](const paxos::MembershipAt& decided) { on_membership(decided); },
                 }),
      divergence_(config.replica_id, member_ids(sequencer_.membership())),
      stall_(uint64_t{config.watchdog_s} * 1'000'000'000),
      lag_(kHousekeeping.tv_usec * 1000),
      frozen_(std::max<uint64_t>(kFrozenNs, config.election_timeout_ms * 2'000'000ULL)),
      disk_(config.disk_reserve_bytes),
      restarts_(config.restart) {
    carrier_.set_ingress(&ingress_);
    if (config.mode == Mode::kProxy) {
        native_ = std::make_unique<NativeBackend>(
            base, [this](const timebubble::OutputHeader& header, std::string_view payload) {
                on_output(header, payload);
            });
    }
    timekeeper_.stop_leading();
    timekeeper_.set_voters(voter_ids(sequencer_.membership()));
    housekeeping_ = event_new(
        base, -1, EV_PERSIST, [](int, short, void* self) { static_cast<Replica*>(self)->housekeep(); }, this);
    event_add(housekeeping_, &kHousekeeping);
    flush_timer_ = evtimer_new(
        base,
        [](int, short, void* self) {
            static_cast<Replica*>(self)->flush_armed_ = false;
            static_cast<Replica*>(self)->log_.flush();
        },
        this);
}

Replica::~Replica() {
    stopping_ = true;
    event_free(housekeeping_);
    event_free(flush_timer_);
}

void Replica::start() {
    const uint64_t said = sequencer_.membership_index();
    if (sequencer_.membership().removed(config_.replica_id) && said <= sequencer_.decided_index()) {
        events_.fatal("replica " + std::to_string(config_.replica_id) +
                      " was removed from the cluster by log entry " + std::to_string(said) +
                      ". Ids are not used again: add it under a new one (crane member add), with an empty "
                      "state directory");
        return;
    }
    sequencer_.pause_delivery(true);  // until the domain is there to take it; this replica votes meanwhile
    sequencer_.start();
    sequencer_.pause_delivery(true);
    if (native_ && sequencer_.decided_index() > 0) {
        events_.fatal(
            "this directory holds the log of an earlier run in mode proxy, and that mode cannot replay it: "
            "the "
            "server is not scheduled. Start anew (crane-run --fresh, or another directory)");
        return;
    }
    domain_.start();
}

void Replica::stop(std::function<void()> done) {
    stopping_ = true;
    listeners_.close_all();
    sequencer_.shutdown(std::move(done));
}

// --- the decided sequence
// ---------------------------------------------------------------------------------------

void Replica::on_batch(uint64_t index, const std::shared_ptr<const std::string>& batch) {
    track_connections(*batch);
    last_batch_index_ = index;
    pending_.push_back({index, batch});
    feed();
    if (pending_.size() > kPendingBatches && !delivery_paused_) {
        delivery_paused_ = true;
        sequencer_.pause_delivery(true);
    }
}

void Replica::track_connections(std::string_view batch) {
    timebubble::BatchDecoder decoder;
    if (!decoder.open(reinterpret_cast<const uint8_t*>(batch.data()), batch.size())) return;
    batcher_.saw_timestamp(decoder.header().timestamp_ns);
    timekeeper_.decided(decoder.header().timestamp_ns, host_time());
    if (const uint64_t generation = started_generation(decoder); generation == generation_.decided + 1) {
        generation_.decided = generation;
        connections_.forget_open();
        account_.forget_connections();
    }
    for (timebubble::Call call; decoder.next(call);) {
        account_.decided(call);
        connections_.decided(call);
        clients_.on_decided(call);
    }
}

void Replica::feed() {
    const bool takes = domain_.state() == DomainState::kAttached || server_ended_;
    if (!takes || domain_.killed()) return;
    while (!pending_.empty()) {
        const Pending& next = pending_.front();
        timebubble::BatchDecoder decoder;
        if (!decoder.open(reinterpret_cast<const uint8_t*>(next.batch->data()), next.batch->size())) {
            // Decided, so every replica sees the same bytes and skips them alike.
            spdlog::error("log entry {} is not a batch and is skipped", next.index);
        } else if (native_) {
            native_->apply(next.index, *next.batch);
        } else if (const uint64_t generation = started_generation(decoder); generation != 0) {
            if (!begin_server(next, generation, decoder.header().timestamp_ns)) return;
        } else if (!server_ended_) {
            if (generation_.fed_time_ns == 0) restarts_.started(decoder.header().timestamp_ns);
            generation_.fed_time_ns = decoder.header().timestamp_ns;
            bubbles_.fed(domain_.link().status());
            if (!feed_domain(next.index, *next.batch)) return;
        }
        pending_.pop_front();
    }
    if (delivery_paused_) {
        delivery_paused_ = false;
        sequencer_.pause_delivery(false);
    }
}

bool Replica::feed_domain(uint64_t index, const std::string& batch) {
    try {
        return domain_.link().feed(index, batch);
    } catch (const std::runtime_error& error) {
        domain_overwrote(error.what());
        return false;
    }
}

void Replica::on_ready() {
    spdlog::info("this replica is primary and up to date, view {}", sequencer_.view_counter());
    if (sequencer_.batches_seen() == 0) {
        timebubble::GenesisPayload genesis;
        if (getrandom(&genesis, sizeof(genesis), 0) != sizeof(genesis)) {
            events_.fatal("getrandom failed: the system has no randomness to key the domain with");
            return;
        }
        batcher_.set_genesis(genesis);
    }
    lead_index_ = last_batch_index_;
    lead_since_ns_ = monotonic_ns();
    ingress_.lead(connections_, lead_since_ns_);
}

void Replica::on_link(uint32_t peer, bool up) {
    if (up) {
        peers_up_.insert(peer);
        told_time_ns_ = 0;  // to it, too, and soon
    } else {
        peers_up_.erase(peer);
        standing_.gone(peer);
    }
    divergence_.set_reachable(peers_up_.size() + 1);
    if (up) divergence_.began_anew(peer);  // or it goes on, and is found again
    ingress_.on_link(peer, up, monotonic_ns());
    carrier_.on_link(peer, up);
}

void Replica::on_role() {
    const bool leads = sequencer_.leads();
    if (leads) {
        timekeeper_.lead();
    } else {
        timekeeper_.stop_leading();
    }
    spdlog::info("role {}, view {}, primary {}", sequencer_.role_name(), sequencer_.view_counter(),
                 sequencer_.leader());
    generation_.proposed = 0;
    if (!leads && ingress_.leading()) {
        ingress_.stop();
        batcher_.clear();
        account_.forget_proposals();
    }
    carrier_.set_view(sequencer_.view(), sequencer_.leader());
}

/// Which connections the server has closed by itself is known once the domain has come as far as the log was
/// when this replica took over; the rest, if nobody names them, are then closed by decision.
void Replica::settle_connections() {
    if (!ingress_.leading() || ingress_.settled()) return;
    const uint64_t admitted = history_.last() ? history_.last()->index : 0;
    if (admitted < lead_index_) return;
    const bool patient = monotonic_ns() - lead_since_ns_ < kSettlePatienceNs;
    if (patient && !native_ && lead_index_ != 0 && !domain_.link().at_rest()) return;
    ingress_.settle();
}

// --- proposing
// --------------------------------------------------------------------------------------------------

uint64_t Replica::under_way() const {
    const uint64_t in_domain = native_ ? 0 : domain_.link().unadmitted();
    return sequencer_.undecided() + pending_.size() + in_domain;
}

bool Replica::may_propose() const {
    return !stopping_ && fenced_.empty() && !disk_.low() && domain_.state() == DomainState::kAttached &&
           timekeeper_.begun() && sequencer_.can_propose();
}

void Replica::propose() {
    begin_time();
    if (server_ended_) {
        propose_start();
        return;
    }
    settle_connections();
    while (may_propose() && !batcher_.empty() && under_way() < kBatchesUnderWay) {
        propose_batch(batcher_.calls());
    }
    if (may_propose() && batcher_.empty() && !native_ &&
        bubbles_.due(domain_.link().status(), under_way() > 0)) {
        bubbles_.proposed_bubble();
        propose_batch(0);
    }
}

void Replica::propose_batch(uint64_t calls) {
    std::string batch = batcher_.take(timekeeper_.now(host_time()), bubbles_.grant(calls, false));
    if (!sequencer_.propose(std::move(batch))) {
        throw std::logic_error("the log refused a batch that it had room for");
    }
    ++batches_proposed_;
    calls_proposed_ += calls - std::min<uint64_t>(calls, batcher_.calls());
}

// --- the domain's output
// ----------------------------------------------------------------------------------------

void Replica::domain_overwrote(const std::string& what) {
    more_output_ = false;
    domain_.give_up(what + "; the domain is killed and started anew");
}

void Replica::drain() {
    more_output_ = false;
    if (domain_.killed()) return;
    try {
        const size_t records =
            domain_.link().drain([this](const timebubble::OutputHeader& header,
                                        std::string_view payload) { on_output(header, payload); },
                                 kDrainBytes);
        more_output_ = records != 0;
        output_records_ += records;
        domain_.check_damage();
    } catch (const std::runtime_error& error) {
        domain_overwrote(error.what());
    }
}

void Replica::on_output(const timebubble::OutputHeader& header, std::string_view payload) {
    log_.append(header, payload);
    account_.on_output(header, payload);
    connections_.output(header, payload);
    clients_.on_output(header, payload);
    switch (header.kind) {
        case OutputKind::kListen:
        case OutputKind::kUnlisten: {
            timebubble::ListenRecord record;
            if (payload.size() != sizeof(record)) return;
            memcpy(&record, payload.data(), sizeof(record));
            if (header.kind == OutputKind::kListen) restarts_.listened();
            const bool changed = header.flags & timebubble::kListenChanged;
            ingress_.on_output(header, payload);
            if (native_) native_->listen(record);
            if (!serves()) return;
            if (header.kind == OutputKind::kUnlisten) {
                listeners_.unlisten(record);
            } else if (changed) {
                listeners_.change(record);
            } else {
                listeners_.listen(record);
            }
            return;
        }
        case OutputKind::kAdmitted:
            on_admitted(header, payload);
            return;
        case OutputKind::kExit: {
            timebubble::ExitRecord record;
            if (payload.size() != sizeof(record)) return;
            memcpy(&record, payload.data(), sizeof(record));
            if (record.is_main) domain_.main_exited(record.status);
            return;
        }
        case OutputKind::kMessage:
            server_message_ = one_line(payload);
            if (++server_messages_ <= kServerMessages) spdlog::warn("the domain says: {}", server_message_);
            if (server_messages_ == kServerMessages) spdlog::warn("what else it says is not logged");
            return;
        default:
            break;
    }
    ingress_.on_output(header, payload);
}

void Replica::on_admitted(const timebubble::OutputHeader& header, std::string_view payload) {
    timebubble::AdmittedRecord record;
    if (payload.size() != sizeof(record)) return;
    memcpy(&record, payload.data(), sizeof(record));
    history_.add({record.index, log_.chain(), header.schedule_hash});
    if (sequencer_.leads()) divergence_.own(history_);
}

void Replica::on_domain_changed() {
    switch (domain_.state()) {
        case DomainState::kAttached:
            spdlog::info("the server is under the shim");
            feed();
            break;
        case DomainState::kRefused:
            spdlog::error("the server cannot run: {}", domain_.message());
            break;
        case DomainState::kExited:
            if (server_ended_) break;
            spdlog::warn("{}", domain_.message());
            server_ended_ = true;
            on_server_ended(domain_.end_status());
            break;
        case DomainState::kLost:
            if (stopping_) return;
            spdlog::error("{}", domain_.message());
            events_.lost();
            break;
        case DomainState::kStarting:
            break;
    }
}

// --- the turn
// ---------------------------------------------------------------------------------------------------

bool Replica::turn() {
    const uint64_t began_ns = monotonic_ns();
    drain();
    feed();
    if (server_ended_) {
        listeners_.close_all();
        ingress_.close_all();
        clients_.close_all();
    }
    pool_.end_turn();
    ingress_.set_closing(pool_.lingering_bytes());
    propose();
    send_queries();
    carrier_.end_turn();  // what a full link leaves here goes when the link's writing wakes the loop
    if (log_.buffered() && !flush_armed_) {
        flush_armed_ = true;
        evtimer_add(flush_timer_, &kFlushDelay);
    }
    lag_.worked("the server's output and its clients", monotonic_ns() - began_ns);
    if (more_output_) return false;
    // Announce first, then look again at all that the domain may have said meanwhile.
    if (!domain_.killed() && !domain_.link().prepare_sleep()) return false;
    return !(may_propose() && batcher_.empty() && !native_ &&
             bubbles_.due(domain_.link().status(), under_way() > 0));
}

void Replica::watch(uint64_t now_ns) {
    const timebubble::DomainStatus& domain = domain_.link().status();
    const bool waits = native_ || domain_.state() != DomainState::kAttached ||
                       domain.quiescent.load(std::memory_order_relaxed) != 0;
    const uint64_t stood_ns = stall_.observe(now_ns, domain.clock.load(std::memory_order_relaxed), waits);
    if (!stall_.told()) stall_message_.clear();
    if (stood_ns == 0) return;
    look_at_domain(stood_ns / 1'000'000'000);
}

/// Each look has a thread of its own: one that never ends keeps no later look from being taken.
void Replica::look_at_domain(uint64_t stood_s) {
    auto report = std::make_shared<StallReport>();
    look_ = std::make_unique<Worker>(base_, "crane-look");
    const auto job = [report, init = domain_.init_pid(), stood_s] {
        *report = describe_stall(init, stood_s);
    };
    look_->post(job, [this, report] {
        // Every thread sleeps: the next decided batch is waited for.
        if (report->summary.empty() || !stall_.told()) return;
        stall_message_ = report->summary;
        spdlog::warn("{}{}", report->summary, report->details);
    });
}

void Replica::housekeep() {
    const uint64_t now = monotonic_ns();
    const uint64_t late_ns = lag_.observe(now, waited_for_cpu_ns());
    if (late_ns > config_.election_timeout_ms * 500'000ULL)
        spdlog::warn("the event loop stood still for {} ms: {}", late_ns / 1'000'000, lag_.last().held_up_by);
    watch(now);
    domain_.trim_output();
    watch_clocks(now);
    watch_server_end(now);
    pool_.reap(now);
    clients_.reap(now);
    client_limit_.observe(clients_descriptors());
    ingress_.tick(now);
    watch_disk();
    if (sequencer_.leads()) {
        tell_the_odd();
        tell_standing();
    }
    const bool attached = domain_.state() == DomainState::kAttached && !native_;
    frozen_.observe(now, history_.last() ? history_.last()->index : 0, attached ? standing_.others() : 0,
                    [this] { return tree_cpu_seconds(domain_.init_pid()); });
    if (frozen_.frozen() && sequencer_.leader() != config_.replica_id) clients_.reset_unserved();
    judge_fitness();
    if (without_server() && sequencer_.leads() && !alone() && now - last_step_down_ns_ > kStepDownPauseNs) {
        last_step_down_ns_ = now;
        spdlog::warn("this replica leads {}: leadership is handed over",
                     frozen_.frozen() ? "while its server does not run at all" : "without a server");
        sequencer_.transfer(0);
    }
}

// --- what other replicas say
// -----------------------------------------------------------------------------------------------

void Replica::on_message(uint32_t from, const std::string& message) {
    if (message.empty()) return;
    const std::string_view body = std::string_view(message).substr(1);
    if (message[0] == 'R') carrier_.on_message(from, body);
    if (message[0] == 'T' && from == sequencer_.leader()) on_leader_time(body);
    if (message[0] == 'S' && from == sequencer_.leader()) on_standing(from, body);
    if (message[0] == 'O' && sequencer_.leads()) mail_.on_request(from, body);
    if (message[0] == 'A') mail_.on_answer(body);
    if (message[0] == 'F' && from == sequencer_.leader()) fence(std::string(body));
    if (message[0] == 'E') divergence_.evidence(from, decode_admissions(body), history_);
    if (message[0] == 'Q') {
        DivergenceCheck::Query query;
        if (body.size() != sizeof(query)) return;
        memcpy(&query, body.data(), sizeof(query));
        sequencer_.send(from, "E" + encode_admissions(history_.range(query.first, query.last)));
    }
}

// --- the operator
// -----------------------------------------------------------------------------------------------

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

// Not what is at the end of the log: that may be cut off again.
void Replica::on_membership(const paxos::MembershipAt& decided) {
    const paxos::Membership& now = decided.membership;
    if (decided.index == sequencer_.membership_index())
        spdlog::info("members by entry {}: {}", decided.index, paxos::describe(now));
    divergence_.set_members(member_ids(now));
    timekeeper_.set_voters(voter_ids(now));
    if (now.removed(config_.replica_id) && sequencer_.membership().removed(config_.replica_id))
        events_.removed(decided.index);
}

std::string Replica::change_membership(const paxos::MembershipChange& change) {
    if (!sequencer_.leads()) {
        return "this replica is not primary; ask replica " + std::to_string(sequencer_.leader());
    }
    if (change.kind == paxos::ChangeKind::Add && change.id > kMaxReplicaId)
        return "replica ids go up to " + std::to_string(kMaxReplicaId);
    return sequencer_.change_membership(change);
}

}  // namespace crane::proxy
