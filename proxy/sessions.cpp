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
    timebubble::ConnectPayload addresses;
    bool connected = false;  ///< proposed; until then it is held back
    OutputWindow window = {};

    Session(Sessions& owner, uint64_t connection, Endpoint* client, const timebubble::ConnectPayload& from)
        : all(owner), id(connection), endpoint(client), addresses(from) {}

    uint64_t input_room() const override { return all.account_.input_room(id); }

    void on_input(std::string_view bytes) override {
        all.batcher_.add(CallKind::kSend, id, bytes);
        all.account_.proposed_input(id, bytes.size());
        all.steer_input(*this);
    }

    void on_input_end() override { all.batcher_.add(CallKind::kShutdown, id); }
    void on_input_returned(uint64_t bytes) override { all.account_.returned_input(id, bytes); }

    void on_taken(size_t bytes) override {
        all.windows_.taken(window, bytes);
        all.raise_window(*this);
    }

    void on_gone() override {
        if (connected) {
            all.batcher_.add(CallKind::kReset, id);
            all.account_.proposed_reset(id);
        }
        all.remove(id);  // destroys this
    }
};

Sessions::Sessions(Batcher& batcher, DomainAccount& account, uint64_t output_bytes)
    : batcher_(batcher), account_(account), windows_(output_bytes) {}
Sessions::~Sessions() {
    stop_leading();
}

void Sessions::lead(uint64_t view_counter, uint32_t replica) {
    stop_leading();
    prefix_ = connection_prefix(view_counter, replica);
    next_ = 1;
    leading_ = true;
}

Sessions::Map Sessions::take_all() {
    Map old = std::move(live_);
    live_.clear();
    held_back_.clear();
    for (auto& [id, session] : old) {
        if (session->connected) windows_.close(session->window);
    }
    return old;
}

void Sessions::stop_leading() {
    leading_ = false;
    for (auto& [id, session] : take_all()) session->endpoint->reset();
}

void Sessions::close_all() {
    for (auto& [id, session] : take_all()) session->endpoint->close();
}

size_t Sessions::held_back() const {
    size_t count = 0;
    for (const auto& [port, waiting] : held_back_) count += waiting.size();
    return count;
}

void Sessions::open(Endpoint* endpoint, const timebubble::ConnectPayload& addresses) {
    assert(leading_);
    const uint64_t id = prefix_ | next_++;
    auto session = std::make_unique<Session>(*this, id, endpoint, addresses);
    endpoint->set_user(session.get());
    live_.emplace(id, std::move(session));
    held_back_[addresses.listen_port].insert(id);
    connect_waiting();
}

/// As far as there are places now, the oldest of each port first.
void Sessions::connect_waiting() {
    for (auto at = held_back_.begin(); at != held_back_.end();) {
        std::set<uint64_t>& waiting = at->second;
        while (!waiting.empty() && account_.place_for_client(at->first)) {
            Session& session = *live_.at(*waiting.begin());
            waiting.erase(waiting.begin());
            connect(session);
        }
        at = waiting.empty() ? held_back_.erase(at) : std::next(at);
    }
}

void Sessions::connect(Session& session) {
    session.connected = true;
    batcher_.add(CallKind::kConnect, session.id,
                 {reinterpret_cast<const char*>(&session.addresses), sizeof(session.addresses)});
    account_.proposed_connect(session.id, session.addresses.listen_port);
    if (windows_.open(session.window)) {
        const uint64_t end = session.window.end;
        batcher_.add(CallKind::kWindow, session.id, {reinterpret_cast<const char*>(&end), sizeof(end)});
    }
    steer_input(session);
}

void Sessions::raise_window(Session& session) {
    if (!windows_.raise(session.window)) return;
    const uint64_t end = session.window.end;
    batcher_.add(CallKind::kWindow, session.id, {reinterpret_cast<const char*>(&end), sizeof(end)});
}

void Sessions::steer_input(Session& session) {
    const uint64_t promised = session.endpoint->allow_input(account_.input_room(session.id));
    if (promised != 0) account_.promised_input(session.id, promised);
}

void Sessions::on_output(const timebubble::OutputHeader& header, std::string_view payload) {
    if (header.kind == OutputKind::kListen) connect_waiting();
    const auto found = live_.find(header.connection);
    if (found != live_.end()) {
        Session& session = *found->second;
        switch (header.kind) {
            case OutputKind::kSend:
                bytes_sent_ += payload.size();
                session.window.sent += payload.size();
                session.endpoint->send(payload);
                raise_window(session);
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
            case OutputKind::kConsumed:
                steer_input(session);
                break;
            default:
                break;
        }
    }
    const bool frees_a_place = header.kind == OutputKind::kAccept || header.kind == OutputKind::kClose;
    if (frees_a_place && !held_back_.empty()) connect_waiting();
}

void Sessions::remove(uint64_t connection) {
    const auto found = live_.find(connection);
    assert(found != live_.end());
    const Session& session = *found->second;
    if (session.connected) {
        windows_.close(session.window);
    } else {
        const auto waiting = held_back_.find(session.addresses.listen_port);
        waiting->second.erase(connection);
        if (waiting->second.empty()) held_back_.erase(waiting);
    }
    live_.erase(found);
}

}  // namespace crane::proxy
