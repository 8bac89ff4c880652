#include "proxy/replica.hpp"

#include <event2/event.h>
#include <spdlog/spdlog.h>
#include <string.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/clock.hpp"
#include "proxy/members.hpp"
#include "proxy/settings_hash.hpp"
#include "proxy/witness.hpp"

namespace crane::proxy {

namespace {

constexpr timeval kHousekeeping{0, 250'000};
/// A server that computes so long may wait for itself: the second look of the housekeeping at one place.
constexpr uint64_t kRoundsNs = 200'000'000, kRoundsLongestNs = 8'000'000'000;
constexpr timeval kFlushDelay{0, 100'000};
/// Of the stock of output, what connections may hold that the server has closed.
constexpr uint64_t kClosingShare = 4;
/// As much again for what the outside has not taken of the server's own connections.
constexpr uint64_t kEgressShare = 4;
constexpr size_t kShipBesideBytes = 512 * 1024;
constexpr uint64_t kFrozenNs = 1'000'000'000;

/// Of this daemon: no other one's, and none that it had before.
uint64_t life_of(uint32_t replica) {
    return realtime_ns() ^ uint64_t { replica } << 56;
}

}  // namespace

Replica::Replica(event_base* base, const Config& config, Timekeeper& timekeeper, Repairs& repairs,
                 LossHistory& losses, FirstDifference& difference,
                 const std::shared_ptr<checkpoint::KnownSums>& sums, Events events)
    : base_(base),
      config_(config),
      timekeeper_(timekeeper),
      repairs_(repairs),
      difference_(difference),
      events_(std::move(events)),
      settings_hash_(settings_hash(config)),
      domain_(
          base, config, losses, [this] { drain(); }, [this] { on_domain_changed(); }),
      checkpoints_(base, config, sums, events_.busy),
      log_(config.state_dir, config, checkpoints_.from() ? checkpoints_.from()->output : OutputPosition{},
           base),
      bubbles_(base, config, [this] { return timekeeper_.now(host_time()); }),
      account_(config.input_bytes),
      pool_(base, config.keepalive, config.output_bytes / kClosingShare),
      clients_(
          config.replica_id, config.mode != Mode::kProxy, [this] { return own_domain_is_behind(); },
          config.input_bytes),
      carrier_(
          config.replica_id, clients_,
          [this](uint32_t to, const std::string& message) { return sequencer_.send(to, "R" + message); }),
      ingress_({config.replica_id, config.output_bytes, config.election_timeout_ms * 2'000'000ULL}, batcher_,
               account_, [this](uint32_t replica) { return carrier_.reply_to(replica); }),
      mail_([this](uint32_t to, const std::string& message) { return sequencer_.send(to, message); },
            [this](const nlohmann::json& request, OperatorMail::Reply reply) {
                events_.asked(request, std::move(reply));
            }),
      listeners_(
          base, config.self().client_address, config.self().port_map,
          [this](int fd, uint16_t port, Listeners::Place place) { on_accepted(fd, port, std::move(place)); },
          [this](int fd, uint16_t port) { on_datagrams(fd, port); }),
      sequencer_(base, config, checkpoints_.from(),
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
      datagrams_(life_of(config.replica_id), batcher_,
                 {
                     [this] { return sequencer_.leads() && sequencer_.ready() && serves() && !disk_.low(); },
                     [this](const std::string& payload) {
                         const uint32_t leader = sequencer_.leader();
                         return leader != 0 && leader != config_.replica_id &&
                                sequencer_.send(leader, "D" + payload);
                     },
                     [this](const timebubble::DatagramPayload& client, std::string_view bytes) {
                         return send_datagram(client, bytes);
                     },
                     [](const std::string& what) { spdlog::warn("{}", what); },
                     [this](const timebubble::DatagramRecord& to, std::string_view bytes) {
                         return send_outward(to, bytes);
                     },
                 }),
      dialer_(base, dial_outcomes()),
      egress_(config.egress_allow, config.output_bytes / kEgressShare, batcher_, account_, egress_ways()),
      egress_datagrams_(base, [this](std::string payload) { datagrams_.answered(std::move(payload)); }),
      shipping_(
          base,
          std::make_shared<StoredCheckpointFiles>(config.state_dir + "/checkpoints",
                                                  config.disk_reserve_bytes, sums),
          config.ship_bytes_per_s,
          [this](uint32_t to, const std::string& message) { return ship(to, 'C', message); },
          [this](uint64_t index) { on_fetched(index); }),
      images_(std::make_shared<ImageFiles>(config.image_store,
                                           config.cluster_id + "-" + std::to_string(config.replica_id),
                                           config.disk_reserve_bytes)),
      image_shipping_(
          base, images_, config.ship_bytes_per_s,
          [this](uint32_t to, const std::string& message) { return ship(to, 'I', message); },
          [this](uint64_t) { on_image_fetched(); }),
      divergence_(config.replica_id, voter_ids(sequencer_.membership())),
      stall_(uint64_t{config.watchdog_s} * 1'000'000'000),
      rounds_(config.policy == timebubble::Policy::kSerial ? kRoundsNs : 0, kRoundsLongestNs),
      lag_(kHousekeeping.tv_usec * 1000),
      share_(config.election_timeout_ms * 100'000ULL, may_be_real_time()),
      frozen_(std::max<uint64_t>(kFrozenNs, config.election_timeout_ms * 2'000'000ULL)),
      disk_(config.disk_reserve_bytes),
      pace_(config.pace),
      image_rounds_(config.replica_id, {config.checkpoint_running ? config.checkpoint_log_bytes : 0,
                                        config.checkpoint_pause_s * 1'000'000'000ULL}),
      standstill_(uint64_t{config.endless_s} * 1'000'000'000),
      restarts_(config.restart) {
    events_.lost = [this, lost = std::move(events_.lost)] {
        checkpoints_.leave_unfinished();  // the next one waits for whoever packs it
        lost();
    };
    carrier_.set_ingress(&ingress_);
    if (config.mode == Mode::kProxy) {
        native_ = std::make_unique<NativeBackend>(
            base, [this](const timebubble::OutputHeader& header, std::string_view payload) {
                on_output(header, payload);
            });
    }
    if (!native_ && config.placement && config.policy == timebubble::Policy::kSerial && config.pin_cpu < 0)
        cores_ = std::make_unique<DomainCores>(base);
    timekeeper_.stop_leading();
    timekeeper_.set_voters(voter_ids(sequencer_.membership()));
    housekeeping_ = event_new(
        base, -1, EV_PERSIST, [](int, short, void* self) { static_cast<Replica*>(self)->housekeep(); }, this);
    event_add(housekeeping_, &kHousekeeping);
    disk_timer_ = evtimer_new(
        base, [](int, short, void* self) { static_cast<Replica*>(self)->watch_disk(); }, this);
    flush_timer_ = evtimer_new(
        base,
        [](int, short, void* self) {
            static_cast<Replica*>(self)->flush_armed_ = false;
            static_cast<Replica*>(self)->log_.flush();
        },
        this);
    group_timer_ = evtimer_new(
        base, [](int, short, void* self) { static_cast<Replica*>(self)->group_armed_ = false; }, this);
}

Replica::~Replica() {
    if (!stopping_) log_.abandon();
    stopping_ = true;
    event_free(housekeeping_);
    event_free(flush_timer_);
    event_free(group_timer_);
    event_free(disk_timer_);
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
    const bool lacks = sequencer_.lacks_checkpoint();
    if (repairs_.on_trial()) sequencer_.set_eligible(fit_to_lead_ = false);
    sequencer_.pause_delivery(true);  // until the domain is there to take it; this replica votes meanwhile
    sequencer_.start();
    program_.log_end = sequencer_.last_index();
    sequencer_.pause_delivery(true);
    if (native_ && sequencer_.decided_index() > 0) {
        events_.fatal(
            "this directory holds the log of an earlier run in mode proxy, and that mode cannot replay it: "
            "the server is not scheduled. Start anew (crane-run --fresh, or another directory)");
        return;
    }
    if (lacks) {
        lack_checkpoint(sequencer_.first_log_index() - 1);
    } else if (checkpoints_.from() && checkpoints_.from()->live) {
        start_from_image();
    } else if (checkpoints_.from()) {
        start_from_checkpoint();
    } else {
        domain_.start();
    }
}

void Replica::stop(std::function<void()> done) {
    stopping_ = true;
    listeners_.close_all();
    sequencer_.shutdown(std::move(done));
}

// --- the turn

bool Replica::turn() {
    const uint64_t began_ns = monotonic_ns();
    output_held_ = log_.must_wait(began_ns);
    if (output_held_) {
        more_output_ = false;
    } else {
        drain();
    }
    look_ahead();
    end_where_decided();
    feed();
    look_for_image();
    if (server_ended_ || ends_.count(generation_.fed) != 0) {
        listeners_.close_all();
        if (generation_.decided == generation_.fed)
            ingress_.server_ended();  // else it has the next one's clients
        clients_.close_all();
        end_egress();
    }
    listeners_.end_turn();
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
    if (more_output_ || !looked_ahead_ || looks_first_) return false;
    // Announce first, then look again at all that the domain may have said meanwhile. What is held is looked
    // for when the log has been written, or at the next housekeeping.
    const bool listens = !domain_.killed() && !domain_.damaged() && !output_held_;
    if (listens && !domain_.link().prepare_sleep()) return false;
    return !(may_propose() && batcher_.empty() && !native_ &&
             bubbles_.due(domain_.link().status(), under_way() > 0));
}

/// Decided, and not what is at the end of the log: that may be cut off again.
void Replica::on_membership(const paxos::MembershipAt& decided) {
    const paxos::Membership& now = decided.membership;
    if (decided.index == sequencer_.membership_index())
        spdlog::info("members by entry {}: {}", decided.index, paxos::describe(now));
    compare_with_servers(now);
    timekeeper_.set_voters(voter_ids(now));
    if (now.removed(config_.replica_id) && sequencer_.membership().removed(config_.replica_id))
        events_.removed(decided.index);
}

/// A witness puts nothing out that could be compared, and a learner has no say.
void Replica::compare_with_servers(const paxos::Membership& membership) {
    const std::vector<uint32_t> servers = server_ids(membership, witnesses_);
    const auto reached = std::count_if(servers.begin(), servers.end(), [this](uint32_t server) {
        return server == config_.replica_id || peers_up_.count(server) != 0;
    });
    divergence_.set_reachable(static_cast<size_t>(reached));
    divergence_.set_members(servers);
}

// --- what other replicas say

/// What clients say waits behind it in the same queue.
bool Replica::ship(uint32_t to, char letter, const std::string& message) {
    return sequencer_.queued_bytes(to) < kShipBesideBytes && sequencer_.send(to, letter + message);
}

void Replica::on_message(uint32_t from, const std::string& message) {
    if (message.empty()) return;
    const std::string_view body = std::string_view(message).substr(1);
    // One that differs from the others has nothing that anybody should begin with.
    if (message[0] == 'C') shipping_.on_message(from, body, fenced_.empty() && !repairs_.on_trial());
    if (message[0] == 'I') image_shipping_.on_message(from, body);
    if (message[0] == 'K' && from == sequencer_.leader()) on_turn_for_image(body);
    if (message[0] == 'k') image_failed(from);
    if (message[0] == 'j') image_rounds_.at_it(monotonic_ns(), from);
    if (message[0] == 'W' && sequencer_.leads() && !image_rounds_.wanted()) image_rounds_.ask();
    if (message[0] == 'L' && from == sequencer_.leader()) on_lack(body);
    if (message[0] == 'R') carrier_.on_message(from, body);
    if (message[0] == 'D') datagrams_.relayed(body);
    if (message[0] == 'T' && from == sequencer_.leader()) on_leader_time(body);
    if (message[0] == 'S' && from == sequencer_.leader()) on_standing(from, body);
    if (message[0] == 'H' && from == sequencer_.leader()) on_stand_word(from, body);
    if (message[0] == 'h') on_stand_answer(from, body);
    if (message[0] == 'e' && from == sequencer_.leader()) ends_known_.follow(config_.replica_id, body);
    if (message[0] == 'O') mail_.on_request(from, body);
    if (message[0] == 'A') mail_.on_answer(body);
    if (message[0] == 'F' && from == sequencer_.leader()) on_finding(body);
    if (message[0] == 'X' && from == sequencer_.leader()) {
        uint64_t index = 0;
        if (read_number(body, index)) tell_side(index);
    }
    if (message[0] == 'x') on_side(from, body);
    if (message[0] == 'E') divergence_.evidence(from, decode_admissions(body), history_);
    if (message[0] == kWitnessWord && witnesses_.insert(from).second)
        compare_with_servers(sequencer_.membership());
    if (message[0] == 'Q') {
        DivergenceCheck::Query query;
        if (body.size() != sizeof(query)) return;
        memcpy(&query, body.data(), sizeof(query));
        sequencer_.send(from, "E" + encode_admissions(history_.range(query.first, query.last)));
    }
}

}  // namespace crane::proxy
