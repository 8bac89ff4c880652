// The decided sequence on its way into the domain, and what follows from who leads.
#include <spdlog/spdlog.h>
#include <sys/random.h>

#include "base/clock.hpp"
#include "proxy/replica.hpp"

namespace crane::proxy {

namespace {

constexpr size_t kPendingBatches = 64;
constexpr uint64_t kSettlePatienceNs = 1'000'000'000;
/// What the log's database writes for an entry besides the batch.
constexpr uint64_t kEntryOverheadBytes = 512;

}  // namespace

void Replica::on_batch(uint64_t index, const std::shared_ptr<const std::string>& batch) {
    track_connections(index, *batch);
    checkpoints_.logged(batch->size() + kEntryOverheadBytes);
    image_rounds_.logged(batch->size() + kEntryOverheadBytes);
    pending_.push_back({index, batch});
    program_.delivering = true;
    feed();
    program_.delivering = false;
    if (pending_.size() > kPendingBatches && !delivery_paused_) {
        delivery_paused_ = true;
        sequencer_.pause_delivery(true);
    }
}

void Replica::track_connections(uint64_t index, const std::string& batch) {
    timebubble::BatchDecoder decoder;
    if (!decoder.open(reinterpret_cast<const uint8_t*>(batch.data()), batch.size())) return;
    batcher_.saw_timestamp(decoder.header().timestamp_ns);
    timekeeper_.decided(decoder.header().timestamp_ns, host_time());
    if (const auto start = started_server(decoder); start.generation == generation_.decided + 1) {
        generation_.decided = start.generation;
        generation_.used = false;
        account_.forget_connections();
        ingress_.server_ended();
        clients_.server_replaced(start.generation);
        egress_.began_server(start.generation);
        if (start.checkpoint != 0) note_checkpoint(start.generation, batch);
        note_end(start);
    }
    note_program(decoder);
    const uint32_t base = named_base(decoder);
    note_base(index, base);
    if (base == 0)
        last_batch_index_ = index;  // else the domain is not given it, and will never have admitted it
    for (timebubble::Call call; decoder.next(call);) {
        generation_.used |= uses_server(call.kind);
        account_.decided(call);
        clients_.on_decided(call);
        datagrams_.on_decided(index, call);
        egress_.on_decided(call);
    }
}

void Replica::feed() {
    const bool takes = domain_.state() == DomainState::kAttached || server_ended_;
    if (!takes || domain_.killed() || image_.phase == ImagePhase::kTaking || !looked_ahead_) return;
    while (!pending_.empty()) {
        if (!server_ended_ && !program_fits()) return;
        const Pending& next = pending_.front();
        timebubble::BatchDecoder decoder;
        if (!decoder.open(reinterpret_cast<const uint8_t*>(next.batch->data()), next.batch->size())) {
            // Decided, so every replica sees the same bytes and skips them alike.
            spdlog::error("log entry {} is not a batch and is skipped", next.index);
        } else if (named_base(decoder) != 0) {
            if (!is_base()) return;  // it begins from the base's checkpoint, which is from behind this
        } else if (native_) {
            native_->apply(next.index, *next.batch);
        } else if (const auto start = started_server(decoder); start.generation != 0) {
            if (!begin_server(next, start.generation, decoder.header().timestamp_ns)) return;
        } else if (!server_ended_) {
            if (generation_.fed_time_ns == 0) restarts_.started(decoder.header().timestamp_ns);
            generation_.fed_time_ns = decoder.header().timestamp_ns;
            bubbles_.fed(domain_.link().status());
            if (!feed_domain(next.index, *next.batch)) return;
        }
        pending_.pop_front();
    }
    if (delivery_paused_ && image_.phase == ImagePhase::kNone) {
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
    const ConnectionTable table = account_.table();
    ingress_.lead(table, lead_since_ns_);
    egress_.lead(table.open);
}

void Replica::on_link(uint32_t peer, bool up) {
    if (up) {
        peers_up_.insert(peer);
        told_time_ns_ = 0;  // to it, too, and soon
    } else {
        peers_up_.erase(peer);
        standing_.gone(peer);
        pace_.gone(peer);
    }
    compare_with_servers(sequencer_.membership());
    if (up) divergence_.began_anew(peer);  // or it goes on, and is found again
    shipping_.on_link(peer, up);
    image_shipping_.on_link(peer, up);
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
    events_.led(sequencer_.view(), sequencer_.leader());
    generation_.proposed = 0;
    program_.proposed = false;
    image_rounds_.stop();
    pace_.begin();
    if (leads) forget_image();
    if (!leads) {  // an order is the primary's that took it
        stop_at_ns_ = 0;
        if (program_.wanted_image) program_.looked = 0;
        program_.wanted_image.reset();
    }
    if (ingress_.leading()) {  // also if it leads again: its proposals are forgotten
        ingress_.stop();
        egress_.stop();
        egress_datagrams_.close();
        account_.forget_proposals();
    }
    batcher_.clear();  // of one that was deposed before it was ready, too
    shipping_.set_leader(sequencer_.leader());
    image_shipping_.set_leader(sequencer_.leader());
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

}  // namespace crane::proxy
