#include "proxy/replica.hpp"

#include <event2/event.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <string.h>
#include <sys/random.h>
#include <sys/wait.h>

#include <algorithm>

#include "proxy/backtrace.hpp"
#include "proxy/clock.hpp"
#include "proxy/process_tree.hpp"

namespace crane::proxy {

using timebubble::CallKind;
using timebubble::OutputKind;

namespace {

/// Batches under way at once. More calls than these carry coalesce, which is what a busy domain needs: it
/// admits one batch per grant.
constexpr uint64_t kBatchesUnderWay = 4;
constexpr size_t kDrainBytes = 4 * 1024 * 1024;
constexpr size_t kPendingBatches = 64;
constexpr timeval kHousekeeping{0, 250'000};
constexpr timeval kFlushDelay{0, 100'000};
constexpr uint64_t kOrphanPatienceNs = 1'000'000'000;
constexpr uint64_t kFrozenNs = 1'000'000'000;
constexpr uint64_t kStepDownPauseNs = 2'000'000'000;

std::vector<uint32_t> member_ids(const paxos::Membership& membership) {
    std::vector<uint32_t> ids;
    for (const paxos::Member& member : membership.members) ids.push_back(member.id);
    return ids;
}

}  // namespace

/// What every replica's domain must have equal, in one number.
uint64_t settings_hash(const Config& config) {
    std::string text = std::to_string(static_cast<int>(config.policy)) + "/" +
                       std::to_string(config.quantum) + "/" + std::to_string(config.bubbles) + "/" +
                       std::to_string(config.cpus) + "/" + std::to_string(config.memory_bytes) + "/" +
                       config.hostname + "/" + config.cwd;
    for (const std::string& word : config.server) text += '\0' + word;
    text += '\1';
    for (const std::string& word : config.environment) text += '\0' + word;
    return hash_payload(text).low;
}

Replica::Replica(event_base* base, const Config& config, Events events)
    : base_(base),
      config_(config),
      events_(std::move(events)),
      settings_hash_(settings_hash(config)),
      domain_(
          base, config, [this] { drain(); }, [this] { on_domain_changed(); }),
      log_(config.state_dir, config),
      bubbles_(base, config),
      pool_(base),
      relay_(
          [this](uint32_t to, const std::string& message) { return sequencer_.send(to, "R" + message); },
          [this](Endpoint* client, const timebubble::ConnectPayload& from) { sessions_.open(client, from); },
          [this](ClientConnection* client) { waiting_.push_back(client); }),
      sessions_(batcher_),
      listeners_(base, config.self().client_address, config.self().port_map,
                 [this](int fd, uint16_t port) { on_accepted(fd, port); }),
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
                     [this](uint32_t peer, bool up) {
                         if (up) {
                             peers_up_.insert(peer);
                         } else {
                             peers_up_.erase(peer);
                         }
                         relay_.on_link(peer, up);
                         if (up) route_waiting();
                     },
                     [this](const std::string& reason) { events_.fatal(reason); },
                     [this](const paxos::MembershipAt& decided) { on_membership(decided); },
                 }),
      divergence_(config.replica_id, member_ids(sequencer_.membership())),
      stall_(uint64_t{config.watchdog_s} * 1'000'000'000),
      frozen_(std::max<uint64_t>(kFrozenNs, config.election_timeout_ms * 2'000'000ULL)) {
    if (config.mode == Mode::kProxy) {
        native_ = std::make_unique<NativeBackend>(
            base, [this](const timebubble::OutputHeader& header, std::string_view payload) {
                on_output(header, payload);
            });
    }
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
    for (timebubble::Call call; decoder.next(call);) {
        if (call.kind == CallKind::kConnect) open_connections_.insert(call.connection);
        if (call.kind == CallKind::kReset) open_connections_.erase(call.connection);
    }
}

void Replica::feed() {
    if (domain_.state() != DomainState::kAttached) return;
    while (!pending_.empty()) {
        const Pending& next = pending_.front();
        timebubble::BatchDecoder decoder;
        if (!decoder.open(reinterpret_cast<const uint8_t*>(next.batch->data()), next.batch->size())) {
            // Decided, so every replica sees the same bytes and skips them alike.
            spdlog::error("log entry {} is not a batch and is skipped", next.index);
        } else if (native_) {
            native_->apply(next.index, *next.batch);
        } else {
            bubbles_.fed(domain_.link().status());
            if (!domain_.link().feed(next.index, *next.batch)) return;
        }
        pending_.pop_front();
    }
    if (delivery_paused_) {
        delivery_paused_ = false;
        sequencer_.pause_delivery(false);
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
    orphans_due_ = true;
    orphans_since_ns_ = monotonic_ns();
    orphans_after_ = last_batch_index_;
}

/// Connections of earlier primaries: their clients are gone with them. Which of them the server has closed by
/// itself is known once the domain has come as far as the log was when this replica took over.
void Replica::reset_orphans() {
    const uint64_t admitted = history_.last() ? history_.last()->index : 0;
    if (!orphans_due_ || admitted < orphans_after_) return;
    const bool patient = monotonic_ns() - orphans_since_ns_ < kOrphanPatienceNs;
    if (patient && !native_ && orphans_after_ != 0 && !domain_.link().at_rest()) return;
    orphans_due_ = false;
    const uint64_t own = connection_prefix(sequencer_.view_counter(), config_.replica_id);
    for (uint64_t connection : open_connections_) {
        if (connection >> kConnectionNumberBits != own >> kConnectionNumberBits)
            batcher_.add(CallKind::kReset, connection);
    }
}

void Replica::on_role() {
    const bool leads = sequencer_.leads();
    spdlog::info("role {}, view {}, primary {}", sequencer_.role_name(), sequencer_.view_counter(),
                 sequencer_.leader());
    if (leads && !sessions_.leading()) {
        sessions_.lead(sequencer_.view_counter(), config_.replica_id);
    } else if (!leads && sessions_.leading()) {
        sessions_.stop_leading();
        batcher_.clear();
        orphans_due_ = false;
    }
    relay_.set_view(sequencer_.view(), leads);
    if (!stopping_) route_waiting();
}

// --- proposing
// --------------------------------------------------------------------------------------------------

uint64_t Replica::under_way() const {
    const uint64_t in_domain = native_ ? 0 : domain_.link().unadmitted();
    return sequencer_.undecided() + pending_.size() + in_domain;
}

bool Replica::may_propose() const {
    return !stopping_ && domain_.state() == DomainState::kAttached && sequencer_.can_propose();
}

void Replica::propose() {
    reset_orphans();
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
    std::string batch = batcher_.take(realtime_ns(), bubbles_.grant(calls, false));
    if (!sequencer_.propose(std::move(batch))) {
        throw std::logic_error("the log refused a batch that it had room for");
    }
    ++batches_proposed_;
    calls_proposed_ += calls - std::min<uint64_t>(calls, batcher_.calls());
}

// --- the domain's output
// ----------------------------------------------------------------------------------------

void Replica::drain() {
    try {
        const size_t records =
            domain_.link().drain([this](const timebubble::OutputHeader& header,
                                        std::string_view payload) { on_output(header, payload); },
                                 kDrainBytes);
        more_output_ = records != 0;
        output_records_ += records;
        domain_.check_damage();
    } catch (const std::runtime_error& error) {
        spdlog::error("{}; the domain is killed and started anew", error.what());
        domain_.kill();
        events_.lost();
    }
}

void Replica::on_output(const timebubble::OutputHeader& header, std::string_view payload) {
    log_.append(header, payload);
    switch (header.kind) {
        case OutputKind::kListen:
        case OutputKind::kUnlisten: {
            timebubble::ListenRecord record;
            if (payload.size() != sizeof(record)) return;
            memcpy(&record, payload.data(), sizeof(record));
            const bool changed = header.flags & timebubble::kListenChanged;
            if (native_) native_->listen(record);
            if (stopping_ || server_ended_) return;
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
            server_message_.assign(payload.substr(0, 4096));
            spdlog::warn("the domain says: {}", server_message_);
            return;
        case OutputKind::kClose:
            open_connections_.erase(header.connection);
            break;
        default:
            break;
    }
    sessions_.on_output(header, payload);
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
            if (!server_ended_) spdlog::warn("{}", domain_.message());
            server_ended_ = true;
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
    drain();
    feed();
    if (server_ended_) {
        listeners_.close_all();
        if (sessions_.size() != 0) sessions_.close_all();
    }
    pool_.end_turn();
    propose();
    send_queries();
    relay_.end_turn();  // what a full link leaves here goes when the link's writing wakes the loop
    if (log_.buffered() && !flush_armed_) {
        flush_armed_ = true;
        evtimer_add(flush_timer_, &kFlushDelay);
    }
    if (more_output_) return false;
    // Announce first, then look again at all that the domain may have said meanwhile.
    if (!domain_.link().prepare_sleep()) return false;
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
    const StallReport report = describe_stall(domain_.init_pid(), stood_ns / 1'000'000'000);
    if (report.summary.empty()) return;  // every thread sleeps: the next decided batch is waited for
    stall_message_ = report.summary;
    spdlog::warn("{}{}", report.summary, report.details);
}

void Replica::housekeep() {
    const uint64_t now = monotonic_ns();
    watch(now);
    pool_.reap(now);
    route_waiting();
    const bool attached = domain_.state() == DomainState::kAttached && !native_;
    frozen_.observe(now, history_.last() ? history_.last()->index : 0, attached ? others_admitted_ : 0,
                    [this] { return tree_cpu_seconds(domain_.init_pid()); });
    const bool unfit =
        domain_.state() == DomainState::kRefused || domain_.state() == DomainState::kLost || frozen_.frozen();
    if (unfit && sequencer_.leads() && !alone() && now - last_step_down_ns_ > kStepDownPauseNs) {
        last_step_down_ns_ = now;
        spdlog::warn("this replica leads {}: leadership is handed over",
                     frozen_.frozen() ? "while its server does not run at all" : "without a server");
        sequencer_.transfer(0);
    }
}

// --- divergence
// -------------------------------------------------------------------------------------------------

std::string Replica::make_report() const {
    std::string report(reinterpret_cast<const char*>(&settings_hash_), sizeof(settings_hash_));
    if (const Admission* last = history_.last()) report += encode_admissions({*last});
    return report;
}

void Replica::on_report(uint32_t from, const std::string& report) {
    uint64_t settings = 0;
    if (report.size() < sizeof(settings)) return;
    memcpy(&settings, report.data(), sizeof(settings));
    if (settings != settings_hash_ && settings_differ_.insert(from).second) {
        spdlog::error(
            "replica {} has other settings of schedule, bubble, machine, server or environment than this "
            "one: the "
            "replicas will diverge; give all the same and start the cluster anew",
            from);
    }
    const auto admissions = decode_admissions(std::string_view(report).substr(sizeof(settings)));
    if (admissions.empty()) return;
    others_admitted_ = std::max(others_admitted_, admissions[0].index);
    divergence_.report(from, admissions[0], history_);
}

void Replica::send_queries() {
    for (const DivergenceCheck::Finding& one : divergence_.take_findings()) {
        if (one.replica == 0) {
            spdlog::critical(
                "DIVERGENCE at log index {}: the replicas' output differs and no majority agrees", one.index);
        } else {
            spdlog::critical("DIVERGENCE: replica {} differs from the majority {} log index {}", one.replica,
                             one.exact ? "first at" : "at or before", one.index);
        }
    }
    const uint64_t now = monotonic_ns();
    if (now - last_query_ns_ < 200'000'000) return;
    const auto query = divergence_.take_query();
    if (!query) return;
    last_query_ns_ = now;
    std::string message = "Q";
    message.append(reinterpret_cast<const char*>(&*query), sizeof(*query));
    for (uint32_t peer : peers_up_) sequencer_.send(peer, message);
}

void Replica::on_message(uint32_t from, const std::string& message) {
    if (message.empty()) return;
    const std::string_view body = std::string_view(message).substr(1);
    if (message[0] == 'R') relay_.on_message(from, body);
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
    if (to != config_.replica_id) sequencer_.transfer(to);
    return "";
}

// Not what is at the end of the log: that may be cut off again.
void Replica::on_membership(const paxos::MembershipAt& decided) {
    const paxos::Membership& now = decided.membership;
    if (decided.index == sequencer_.membership_index())
        spdlog::info("members by entry {}: {}", decided.index, paxos::describe(now));
    divergence_.set_members(member_ids(now));
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

std::string Replica::signal_server(uint32_t signal) {
    if (!sequencer_.leads()) {
        return "this replica is not primary; ask replica " + std::to_string(sequencer_.leader());
    }
    if (signal < 1 || signal > static_cast<uint32_t>(SIGRTMAX)) return "no such signal";
    batcher_.add(CallKind::kSignal, 0, {reinterpret_cast<const char*>(&signal), sizeof(signal)});
    return "";
}

}  // namespace crane::proxy
