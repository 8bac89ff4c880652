// The servers of a replica, one after another: the end of one, the decision that another begins, and its
// beginning at that place of the log on every replica.
//
// A server's end is its own deed, at the same place everywhere. The primary proposes the next one when the
// policy says so; batches that were decided between that end and the start are for nobody, and are passed
// over.
#include <signal.h>
#include <spdlog/spdlog.h>
#include <string.h>
#include <sys/random.h>

#include <algorithm>

#include "base/clock.hpp"
#include "checkpoint/fail_point.hpp"
#include "proxy/replica.hpp"

namespace crane::proxy {

using timebubble::Call;
using timebubble::CallKind;
using timebubble::StartPayload;

namespace {

/// What a server has from SIGTERM to its end.
/// Between two tries to start a server that this replica cannot start, and others perhaps can.
constexpr uint64_t kRefusedNs = 20'000'000'000;
/// Of the peers' protocol: who speaks an older one does not know that a start gives up the server before.
constexpr uint32_t kUnstartedProtocol = 7;

std::string runs_older(uint32_t replica) {
    return "replica " + std::to_string(replica) + " runs an older Crane";
}

}  // namespace

StartPayload started_server(timebubble::BatchDecoder decoder) {
    Call call{};
    StartPayload start{};
    if (!decoder.next(call) || call.kind != CallKind::kStart) return {};
    // Logs of version 0.1 have starts that ask for no checkpoint, or end no server.
    const size_t bytes = call.payload.size();
    if (bytes != sizeof(start) && bytes != offsetof(StartPayload, end_clock) &&
        bytes != sizeof(start.generation))
        return {};
    memcpy(&start, call.payload.data(), bytes);
    return start;
}

/// True: the batch is seen to. False: it has to wait for the domain.
bool Replica::begin_server(const Pending& batch, uint64_t generation, uint64_t timestamp_ns) {
    if (generation != generation_.fed + 1) return true;  // two primaries have proposed the same one
    if (generation_.starting == generation) {
        if (domain_.state() != DomainState::kAttached) return false;
        if (!feed_domain(batch.index, *batch.batch)) return false;
        checkpoint::fail_point("restart.fed");
        generation_.starting = 0;
        generation_.fed = generation;
        server_message_.clear();  // what the one before had to say
        generation_.fed_time_ns = timestamp_ns;
        restarts_.started_again(timestamp_ns);
        return true;
    }
    if (!server_ended_) {
        look_for_missed_end();
        return false;
    }
    // It ran elsewhere, and the next one goes on with what it left.
    if (unstarted_ && !decided_unstarted(generation_.fed)) return false;
    spdlog::info("server number {} begins at log index {}", generation, batch.index);
    checkpoint::fail_point("restart.begun");
    server_ended_ = false;
    server_messages_ = 0;
    unstarted_ = false;
    generation_.starting = generation;
    generation_.starting_ns = timestamp_ns;
    if (ends_.count(generation - 1) != 0) ended_generation_ = generation - 1;
    ends_.erase(ends_.begin(), ends_.lower_bound(generation));
    // Where the others were sooner, this may come at once after the end.
    listeners_.close_all();
    ports_.clear();
    clients_.close_clients_before(generation);
    account_.forget_listeners();
    if (const auto made_of = programs_.find(generation); made_of != programs_.end())
        use_image(checkpoint::image_in(made_of->second));
    DomainRunner::NextStart next = next_start(generation, timestamp_ns);
    next.unstarted = decided_unstarted(generation);
    domain_.start_next(std::move(next));
    return false;
}

/// A server that was decided on and cannot be started has ended as soon as it had begun (unstarted.hpp).
void Replica::on_refused() {
    spdlog::error("the server cannot run: {}", domain_.message());
    refused_ns_ = monotonic_ns();
    if (generation_.starting == 0 || domain_.program_refused() || domain_.killed()) return;
    generation_.fed = generation_.starting;
    generation_.fed_time_ns = generation_.starting_ns;
    generation_.starting = 0;
    restarts_.started_again(generation_.fed_time_ns);
    unstarted_ = true;
    unstarted_ns_ = monotonic_ns();
    domain_.end_unstarted();
}

bool Replica::decided_unstarted(uint64_t generation) const {
    const auto end = ends_.find(generation);
    return end != ends_.end() && end->second == Place{0, timebubble::kUnstartedSteps};
}

UnstartedStep Replica::look_at_unstarted() const {
    const uint64_t admitted = history_.last() ? history_.last()->index : 0;
    const uint64_t others = standing_.others();
    // Others may be at the next one already.
    const bool others_run =
        others > admitted && sequencer_.delivered_index() >= others && generation_.decided == generation_.fed;
    // What is not seen yet may be calls for it.
    const bool used = generation_.used || generation_.decided > generation_.fed ||
                      sequencer_.delivered_index() < sequencer_.decided_index() || older_peer() != 0;
    return unstarted_step({others_run, used, monotonic_ns() - unstarted_ns_});
}

bool Replica::kept_unstarted() const {
    if (!unstarted_ || decided_unstarted(generation_.fed)) return false;
    return look_at_unstarted() != UnstartedStep::kNext;
}

/// Who would run the server that the next one's start says is to have run nowhere; 0: nobody. What a peer
/// spoke last counts: it may be gone for a moment.
uint32_t Replica::older_peer() const {
    for (const paxos::PeerStatus& peer : sequencer_.peers())
        if (!witnesses_.count(peer.id) && peer.protocol != 0 && peer.protocol < kUnstartedProtocol)
            return peer.id;
    return 0;
}

/// True: it is seen to.
bool Replica::watch_unstarted() {
    // What it was given up for comes next in the log.
    if (!unstarted_ || decided_unstarted(generation_.fed)) return unstarted_;
    const UnstartedStep step = look_at_unstarted();
    // Nobody else is there to give it up with.
    const bool stands =
        step == UnstartedStep::kNext && !end_is_agreed() && monotonic_ns() - unstarted_ns_ > kRefusedNs;
    if (!stands && step != UnstartedStep::kTryAgain) return step == UnstartedStep::kWait;
    const uint32_t older = older_peer();
    const std::string why = stands       ? "not given up by a majority"
                            : older == 0 ? "in use"
                                         : "not to be given up while " + runs_older(older);
    spdlog::error("{}, and it is {}: it is tried once more, from the log", domain_.message(), why);
    unstarted_ns_ = server_ended_ns_ = monotonic_ns();
    events_.lost();
    return true;
}

/// What kept it from being started may be gone: a program that was being replaced, a file system that was
/// full.
void Replica::watch_refusal(uint64_t now_ns) {
    const bool stands = domain_.state() == DomainState::kRefused && !domain_.program_refused() && !stopping_;
    if (!stands || sequencer_.decided_index() == 0 || now_ns - refused_ns_ < kRefusedNs) return;
    refused_ns_ = now_ns;
    spdlog::warn("the server could not be started ({}): it is tried once more", domain_.message());
    events_.lost();
}

void Replica::propose_start() {
    const bool settled = pending_.empty() && sequencer_.undecided() == 0;
    if (kept_unstarted()) return;
    if (settled && restarts_.due(timekeeper_.now(host_time())) && end_is_agreed()) propose_next_server({});
}

/// `end`: where the one that runs is ended; clock 0: it has ended.
void Replica::propose_next_server(Place end) {
    const uint64_t now = timekeeper_.now(host_time());
    const bool first = generation_.decided == generation_.fed && generation_.proposed <= generation_.fed;
    const bool able = !stopping_ && fenced_.empty() && !disk_.low() && timekeeper_.begun() &&
                      sequencer_.can_propose() && sequencer_.leads();
    if (!first || !able) return;
    // It is made of what is there now.
    if (program_.looked != generation_.fed + 1) {
        if (program_.looking) return;
        program_.looking = true;
        const std::string image = program_.wanted_image.value_or(domain_.image());
        domain_.look_at_program(image, [this, image, next = generation_.fed + 1] {
            program_.looking = false;
            if (program_.wanted_image.value_or(domain_.image()) != image) return;  // asked for meanwhile
            if (program_.wanted_image && domain_.program().empty()) {
                spdlog::error("the next server is begun on the files that this one had: {} is not here",
                              checkpoint::kImagePrefix + image);
                program_.wanted_image.reset();
                return;
            }
            program_.looked = next;
        });
        return;
    }
    program_.wanted_image.reset();
    timebubble::GenesisPayload genesis;
    if (getrandom(&genesis, sizeof(genesis), 0) != sizeof(genesis)) {
        events_.fatal("getrandom failed: the system has no randomness to key the next server with");
        return;
    }
    const bool keeps = restarts_.asked() || checkpoints_.due() || base_awaited();
    if (unstarted_) end = {0, timebubble::kUnstartedSteps};
    const StartPayload start{generation_.fed + 1, keeps, end.clock, end.steps};
    batcher_.clear();
    if (!sequencer_.propose(batcher_.start(start, genesis, domain_.program(), now, bubbles_.grant(2, false))))
        throw std::logic_error("the log refused a batch that it had room for");
    generation_.proposed = start.generation;
    ++batches_proposed_;
}

/// One that the log has, or is about to have, and whether it can be begun here is not known yet.
bool Replica::begins_server() const {
    const DomainState state = domain_.state();
    if (state == DomainState::kRefused) return false;
    const bool comes = generation_.starting != 0 || (server_ended_ && generation_.decided > generation_.fed);
    return comes || state == DomainState::kStarting || state == DomainState::kLost || !sequencer_.ready() ||
           next_proposed();
}

/// That a server has ended is agreed on before another begins: without a majority that could, the only server
/// would be ended for nobody's good.
std::string Replica::why_no_restart() const {
    if (const uint32_t older = older_peer(); older != 0 && kept_unstarted())
        return "the server could not be started where this replica leads, and cannot be given up while " +
               runs_older(older) + ": replace that one, or remove it; " + domain_.message();
    if (kept_unstarted())
        return "the server that runs elsewhere, or has, is not to be lost, and could not be started where "
               "this "
               "replica leads: " +
               domain_.message();
    if (server_ended_ || alone()) return "";
    const uint64_t admitted = history_.last() ? history_.last()->index : 0;
    const std::vector<uint32_t> all = servers();
    const auto able = static_cast<size_t>(std::count_if(all.begin(), all.end(), [&](uint32_t server) {
        if (server == config_.replica_id) return true;
        // One that cannot start it does not come to its end.
        const bool unstarted = generation_.starting == 0 &&
                               ends_known_.same({generation_.fed, ServerEnd::kUnstarted}, {server}) != 0;
        return !unstarted && !standing_.trails(server, admitted);
    }));
    if (able > all.size() / 2 || (!witnesses_.empty() && 2 * able == all.size())) return "";
    return "only " + std::to_string(able) + " of " + std::to_string(all.size()) +
           " servers has come as far as the primary's, and the others have to agree on its end: try again, "
           "when another has (crane status says what it lacks)";
}

std::string Replica::restart_server(const std::optional<std::string>& image,
                                    std::optional<uint32_t> within_s) {
    if (!sequencer_.leads()) return not_primary();
    if (native_) return "a server in mode proxy is not started again: end it and start the replica anew";
    if (image && !config_.container) return "a base image is for containers, not for isolation none";
    if (image && !checkpoint::ImageStore(config_.image_store).has(*image)) {
        std::string alarm = image_shipping_.alarm();
        if (alarm.empty()) {
            fetch_image(*image);
        } else if (!domain_.program_refused()) {
            image_shipping_.want(0);
        }
        if (!alarm.empty()) return alarm;
        return "the primary, replica " + std::to_string(config_.replica_id) + ", has not " +
               checkpoint::kImagePrefix + *image + " in " + config_.image_store +
               ": it is fetched from the others if one of them has it; try again in a moment";
    }
    if (std::string reason = why_no_restart(); !reason.empty()) return reason;
    if (domain_.state() == DomainState::kRefused)
        return "there is no server to be begun anew where this replica leads: " + domain_.message();
    program_.wanted_image = image;
    program_.looked = 0;
    restarts_.ask();
    asked_clock_ = domain_.link().gate().look().at.clock;
    if (server_ended_) return "";
    const uint32_t signal = SIGTERM;
    batcher_.add(CallKind::kSignal, 0, {reinterpret_cast<const char*>(&signal), sizeof(signal)});
    stop_at_ns_ = monotonic_ns() + within_s.value_or(config_.stop_s) * 1'000'000'000ULL;
    return "";
}

std::string Replica::signal_server(uint32_t signal) {
    if (!sequencer_.leads()) return not_primary();
    if (signal < 1 || signal > static_cast<uint32_t>(SIGRTMAX)) return "no such signal";
    if (native_) return "in mode proxy a signal is not passed on: send it to the server's process itself";
    if (server_ended_ || domain_.state() == DomainState::kRefused)
        return "there is no server now: " + domain_.message();
    batcher_.add(CallKind::kSignal, 0, {reinterpret_cast<const char*>(&signal), sizeof(signal)});
    return "";
}

}  // namespace crane::proxy
