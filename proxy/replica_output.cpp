// What comes out of the domain, and what becomes of it.
#include <spdlog/spdlog.h>
#include <string.h>

#include <stdexcept>

#include "proxy/plain_text.hpp"
#include "proxy/replica.hpp"

namespace crane::proxy {

using timebubble::OutputKind;

namespace {

constexpr uint64_t kServerMessages = 1000;  // logged of one domain: it must not fill the log's disk
constexpr int kSettleMs = 20;               // in the loop: less than anybody notices
constexpr size_t kDrainBytes = 4 * 1024 * 1024;

}  // namespace

void Replica::domain_overwrote(const std::string& what) {
    more_output_ = false;
    domain_.lose_damaged(history_.last() ? history_.last()->index : 0, what);
}

void Replica::drain() {
    more_output_ = false;
    if (domain_.killed() || domain_.damaged()) return;
    try {
        const size_t records =
            domain_.link().drain([this](const timebubble::OutputHeader& header,
                                        std::string_view payload) { on_output(header, payload); },
                                 kDrainBytes);
        more_output_ = records != 0;
        output_records_ += records;
        domain_.check_damage(history_.last() ? history_.last()->index : 0);
    } catch (const std::runtime_error& error) {
        domain_overwrote(error.what());
    }
}

void Replica::flush_log() {
    log_.flush();
    log_.settle(kSettleMs);
}

void Replica::on_output(const timebubble::OutputHeader& header, std::string_view payload) {
    const uint64_t number = log_.records();
    log_.append(header, payload);
    if (log_.records() != number && !native_)
        tail_.add(number, header, payload,
                  header.kind == OutputKind::kSend ? account_.sent(header.connection) : 0, log_.chain());
    account_.on_output(header, payload);
    ports_.on_output(header, payload);
    clients_.on_output(header, payload);
    egress_.on_output(header, payload);
    switch (header.kind) {
        case OutputKind::kListen:
        case OutputKind::kUnlisten:
        case OutputKind::kDatagramPort:
        case OutputKind::kDatagramPortEnd:
            ingress_.on_output(header, payload);
            on_port(header, payload);
            return;
        case OutputKind::kDatagram:
            datagrams_.on_output(payload, history_.last() ? history_.last()->index : 0, serves());
            return;
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

/// One where clients come to, of whichever protocol.
void Replica::on_port(const timebubble::OutputHeader& header, std::string_view payload) {
    timebubble::ListenRecord record;
    if (payload.size() != sizeof(record)) return;
    memcpy(&record, payload.data(), sizeof(record));
    record.protocol = timebubble::protocol_of(header.kind);  // whatever the server says
    const bool ends = header.kind == OutputKind::kUnlisten || header.kind == OutputKind::kDatagramPortEnd;
    if (!ends) restarts_.listened();
    if (header.kind == OutputKind::kDatagramPortEnd) egress_datagrams_.close(record.port);
    if (native_ && header.kind == OutputKind::kListen) native_->listen(record);
    if (!serves()) return;
    if (!ports_open_) return open_ports();
    if (ends) {
        listeners_.unlisten(record);
    } else if (header.flags & timebubble::kListenChanged) {
        listeners_.change(record);
    } else {
        listeners_.listen(record);
    }
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
            batcher_.set_first_program(domain_.program());
            open_ports();
            feed();
            break;
        case DomainState::kRefused:
            on_refused();
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
            if (domain_.image_refused()) checkpoints_.refuse(domain_.message());
            // At once: what is answered before the copy begins is the client's connection.
            if (sequencer_.leader() != config_.replica_id) clients_.want_copies(true);
            events_.lost();
            break;
        case DomainState::kStarting:
            break;
    }
}

}  // namespace crane::proxy
