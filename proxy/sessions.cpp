#include "proxy/sessions.hpp"

#include <string.h>

#include <cassert>
#include <vector>

namespace crane::proxy {

using timebubble::CallKind;
using timebubble::OutputKind;

struct Sessions::Session final : EndpointUser {
    Sessions& all;
    uint64_t id;
    Endpoint* endpoint;
    uint64_t input_total = 0;
    uint64_t consumed_total = 0;
    uint64_t taken_total = 0;
    uint64_t window_end = timebubble::kInitialWindowBytes;

    Session(Sessions& owner, uint64_t connection, Endpoint* client)
        : all(owner), id(connection), endpoint(client) {}

    uint64_t unconsumed() const { return input_total - consumed_total; }

    void on_input(std::string_view bytes) override {
        all.batcher_.add(CallKind::kSend, id, bytes);
        input_total += bytes.size();
        all.unconsumed_ += bytes.size();
        all.steer_input(*this);
    }

    void on_input_end() override { all.batcher_.add(CallKind::kShutdown, id); }

    void on_taken(size_t bytes) override {
        taken_total += bytes;
        const uint64_t end = taken_total + timebubble::kInitialWindowBytes;
        if (end < window_end + kWindowStepBytes) return;
        window_end = end;
        all.batcher_.add(CallKind::kWindow, id, {reinterpret_cast<const char*>(&end), sizeof(end)});
    }

    void on_gone() override {
        all.batcher_.add(CallKind::kReset, id);
        all.remove(id);  // destroys this
    }
};

Sessions::Sessions(Batcher& batcher) : batcher_(batcher) {}
Sessions::~Sessions() {
    stop_leading();
}

void Sessions::lead(uint64_t view_counter, uint32_t replica) {
    stop_leading();
    prefix_ = connection_prefix(view_counter, replica);
    next_ = 1;
    leading_ = true;
}

void Sessions::stop_leading() {
    leading_ = false;
    Map old = std::move(live_);
    live_.clear();
    paused_.clear();
    unconsumed_ = 0;
    for (auto& [id, session] : old) session->endpoint->reset();
}

void Sessions::close_all() {
    Map old = std::move(live_);
    live_.clear();
    paused_.clear();
    unconsumed_ = 0;
    for (auto& [id, session] : old) session->endpoint->close();
}

void Sessions::open(Endpoint* endpoint, const timebubble::ConnectPayload& addresses) {
    assert(leading_);
    const uint64_t id = prefix_ | next_++;
    auto session = std::make_unique<Session>(*this, id, endpoint);
    Session& opened = *session;
    live_.emplace(id, std::move(session));
    endpoint->set_user(&opened);
    batcher_.add(CallKind::kConnect, id, {reinterpret_cast<const char*>(&addresses), sizeof(addresses)});
    steer_input(opened);
}

void Sessions::steer_input(Session& session) {
    const bool allowed = session.unconsumed() < kInputPerConnectionBytes && unconsumed_ < kInputTotalBytes;
    if (allowed) {
        paused_.erase(session.id);
    } else {
        paused_.insert(session.id);
    }
    session.endpoint->allow_input(allowed);
}

void Sessions::resume_paused() {
    if (paused_.empty() || unconsumed_ >= kInputTotalBytes) return;
    const std::vector<uint64_t> ids(paused_.begin(), paused_.end());
    for (uint64_t id : ids) {
        const auto found = live_.find(id);
        assert(found != live_.end());
        steer_input(*found->second);
    }
}

void Sessions::on_output(const timebubble::OutputHeader& header, std::string_view payload) {
    const auto found = live_.find(header.connection);
    if (found == live_.end()) return;
    Session& session = *found->second;
    switch (header.kind) {
        case OutputKind::kSend:
            bytes_sent_ += payload.size();
            session.endpoint->send(payload);
            break;
        case OutputKind::kShutdown:
            session.endpoint->finish();
            break;
        case OutputKind::kClose: {
            Endpoint* endpoint = session.endpoint;
            remove(header.connection);
            if (header.flags & 1) {
                endpoint->reset();
            } else {
                endpoint->close();
            }
            break;
        }
        case OutputKind::kConsumed: {
            uint64_t total = 0;
            if (payload.size() != sizeof(total)) return;
            memcpy(&total, payload.data(), sizeof(total));
            if (total <= session.consumed_total || total > session.input_total) return;
            const uint64_t more = total - session.consumed_total;
            const bool all_were_stopped = unconsumed_ >= kInputTotalBytes;
            session.consumed_total = total;
            unconsumed_ -= more;
            session.endpoint->consumed(more);
            if (all_were_stopped) {
                resume_paused();
            } else if (paused_.count(session.id)) {
                steer_input(session);
            }
            break;
        }
        default:
            break;
    }
}

void Sessions::remove(uint64_t connection) {
    const auto found = live_.find(connection);
    assert(found != live_.end());
    const bool all_were_stopped = unconsumed_ >= kInputTotalBytes;
    unconsumed_ -= found->second->unconsumed();
    paused_.erase(connection);
    live_.erase(found);
    if (all_were_stopped) resume_paused();
}

}  // namespace crane::proxy
