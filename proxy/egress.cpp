#include "proxy/egress.hpp"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "proxy/client_connection.hpp"
#include "proxy/impossible_output.hpp"
#include "timebubble/egress.hpp"

namespace crane::proxy {

using timebubble::CallKind;
using timebubble::OutputHeader;
using timebubble::OutputKind;

namespace {

constexpr size_t kMostTold = 100;

}  // namespace

/// A connection at the primary that has made it.
struct Egress::Link final : EndpointUser {
    Egress& all;
    const uint64_t id;
    Endpoint* endpoint;
    OutputWindow window;

    Link(Egress& owner, uint64_t number, Endpoint* connection)
        : all(owner), id(number), endpoint(connection) {}

    uint64_t input_room() const override { return all.account_.input_room(id); }
    void on_input(std::string_view bytes) override {
        all.batcher_.add(CallKind::kSend, id, bytes);
        all.account_.proposed_input(id, bytes.size());
    }
    void on_input_end() override { all.batcher_.add(CallKind::kShutdown, id); }
    void on_taken(size_t bytes) override {
        all.windows_.taken(window, bytes);
        all.raise_window(*this);
    }
    void on_gone() override {
        all.batcher_.add(CallKind::kReset, id);
        all.account_.proposed_reset(id);
        all.drop(id);  // destroys this
    }
};

Egress::Egress(std::vector<EgressRule> allowed, uint64_t stock_bytes, Batcher& batcher,
               DomainAccount& account, Ways ways)
    : allowed_(std::move(allowed)),
      batcher_(batcher),
      account_(account),
      ways_(std::move(ways)),
      windows_(stock_bytes) {}

Egress::~Egress() {
    for (auto& [id, link] : links_) link->endpoint->reset();
}

// --- who leads

void Egress::lead(const ConnectionTable::Map& open) {
    stop();
    leading_ = true;
    // They were the former primary's, or this one's when it led before.
    std::vector<uint64_t> orphans;
    for (const auto& [id, state] : open)
        if (timebubble::is_egress(id)) orphans.push_back(id);
    std::sort(orphans.begin(), orphans.end());
    for (const uint64_t id : orphans) {
        batcher_.add(CallKind::kReset, id);
        account_.proposed_reset(id);
    }
    for (auto& [id, asked] : asked_) begin(asked);
}

void Egress::stop() {
    leading_ = false;
    while (!links_.empty()) {
        links_.begin()->second->endpoint->reset();
        drop(links_.begin()->first);
    }
    for (auto& [id, asked] : asked_) {
        if (asked.begun) ways_.give_up(id);
        asked.begun = false;
    }
}

void Egress::began_server(uint64_t generation) {
    generation_ = generation;
    seen_ = 0;
    for (auto& [id, asked] : asked_)
        if (asked.begun) ways_.give_up(id);
    asked_.clear();
    answered_.clear();
}

void Egress::close_all() {
    while (!links_.empty()) {
        links_.begin()->second->endpoint->close();
        drop(links_.begin()->first);
    }
    for (auto& [id, asked] : asked_)
        if (asked.begun) ways_.give_up(id);
    asked_.clear();
}

// --- what is decided, and what the domain says

void Egress::on_decided(const timebubble::Call& call) {
    if (call.kind != CallKind::kConnected && call.kind != CallKind::kResolved) return;
    if (!timebubble::is_of_generation(call.connection, generation_)) return;
    if (asked_.erase(call.connection) == 0 && timebubble::egress_number(call.connection) > seen_)
        answered_.insert(call.connection);
}

void Egress::on_output(const OutputHeader& header, std::string_view payload) {
    if (!timebubble::is_egress(header.connection)) return;
    // What a server before the decided one still says is for nobody.
    if (!timebubble::is_of_generation(header.connection, generation_)) return;
    if (header.kind == OutputKind::kConnect) {
        EgressAsked one{header.connection, false, {}, {}};
        memcpy(&one.to, payload.data(), sizeof(one.to));
        if (one.to.family != AF_INET && one.to.family != AF_INET6)
            throw ImpossibleOutput("it connects to no address");
        ask(std::move(one));
        return;
    }
    if (header.kind == OutputKind::kResolve) {
        if (payload.size() > timebubble::kMaxNameBytes) throw ImpossibleOutput("it asks for no name");
        ask({header.connection, true, {}, std::string(payload)});
        return;
    }
    if (header.kind == OutputKind::kClose) {
        const auto found = asked_.find(header.connection);
        if (found != asked_.end()) {
            if (found->second.begun) ways_.give_up(header.connection);
            asked_.erase(found);
        }
    }
    if (const auto found = links_.find(header.connection); found != links_.end())
        on_link_output(*found->second, header, payload);
}

void Egress::on_link_output(Link& link, const OutputHeader& header, std::string_view payload) {
    switch (header.kind) {
        case OutputKind::kSend:
            if (payload.size() > link.window.unsent()) throw ImpossibleOutput(kBeyondWindow);
            link.window.sent += payload.size();
            link.endpoint->send(payload);
            raise_window(link);
            return;
        case OutputKind::kShutdown:
            link.endpoint->finish();
            return;
        case OutputKind::kProbes: {
            timebubble::ProbeRecord wanted;
            memcpy(&wanted, payload.data(), sizeof(wanted));
            link.endpoint->probe(wanted);
            return;
        }
        case OutputKind::kConsumed:
            if (link.input_room() != 0) link.endpoint->allow_input(true);
            return;
        case OutputKind::kClose:
            if (header.flags & 1) {
                link.endpoint->reset();
            } else {
                link.endpoint->close();
            }
            drop(link.id);
            return;
        default:
            return;
    }
}

void Egress::ask(EgressAsked what) {
    const uint64_t id = what.id, number = timebubble::egress_number(id);
    if (number <= seen_) throw ImpossibleOutput("it asks for the same connection twice");
    seen_ = number;
    if (answered_.erase(id) != 0) return;  // this replica is behind the others
    if (asked_.size() >= timebubble::kMaxEgress + timebubble::kMaxQuestions)
        throw ImpossibleOutput("it asks for more connections than it can have");
    Asked& asked = asked_[id];
    asked.what = std::move(what);
    if (leading_) begin(asked);
}

// --- the primary's part

void Egress::begin(Asked& asked) {
    asked.begun = true;
    const EgressAsked& what = asked.what;
    if (what.is_name) {
        ++names_;
        ways_.resolve(what.id, what.name);
        return;
    }
    if (egress_allows(allowed_, what.to.family, what.to.address, what.to.port)) {
        ways_.dial(what.id, what.to);
        return;
    }
    ++refused_;
    const std::string where = address_text(what.to.family, what.to.address, what.to.port);
    if (told_.size() < kMostTold && told_.insert(where).second)
        ways_.tell("the server wants to connect to " + where +
                   ", which [egress] allow does not name: refused");
    propose(what.id, ENETUNREACH, nullptr);
}

void Egress::propose(uint64_t id, int error, const timebubble::ConnectedPayload* made) {
    const timebubble::ConnectedPayload call = made ? *made : timebubble::ConnectedPayload{error, 0, 0, {}};
    batcher_.add(CallKind::kConnected, id, {reinterpret_cast<const char*>(&call), sizeof(call)});
}

bool Egress::connected(uint64_t id, Endpoint* endpoint, const timebubble::ConnectedPayload& call) {
    if (!leading_ || asked_.count(id) == 0) return false;
    ++made_;
    propose(id, 0, &call);
    account_.proposed_egress(id);
    Link& link = *(links_[id] = std::make_unique<Link>(*this, id, endpoint));
    endpoint->set_user(&link);
    if (windows_.open(link.window)) {
        const uint64_t end = link.window.end;
        batcher_.add(CallKind::kWindow, id, {reinterpret_cast<const char*>(&end), sizeof(end)});
    }
    endpoint->allow_input(true);
    return true;
}

void Egress::failed(uint64_t id, int error) {
    if (!leading_ || asked_.count(id) == 0) return;
    ++failed_;
    propose(id, error, nullptr);
}

void Egress::resolved(uint64_t id, std::string_view answer) {
    if (!leading_ || asked_.count(id) == 0) return;
    batcher_.add(CallKind::kResolved, id, answer);
}

void Egress::raise_window(Link& link) {
    if (!windows_.raise(link.window)) return;
    const uint64_t end = link.window.end;
    batcher_.add(CallKind::kWindow, link.id, {reinterpret_cast<const char*>(&end), sizeof(end)});
}

void Egress::drop(uint64_t id) {
    const auto found = links_.find(id);
    windows_.close(found->second->window);
    links_.erase(found);
}

// --- what is kept, and shown

EgressKept Egress::kept() const {
    EgressKept out;
    out.seen = seen_;
    for (const auto& [id, asked] : asked_) out.asked.push_back(asked.what);
    return out;
}

void Egress::restore(EgressKept kept) {
    seen_ = kept.seen;
    for (EgressAsked& one : kept.asked) {
        const uint64_t id = one.id;
        asked_[id].what = std::move(one);
    }
}

nlohmann::json Egress::json() const {
    const auto connecting = std::count_if(asked_.begin(), asked_.end(), [](const auto& one) {
        return one.second.begun && !one.second.what.is_name;
    });
    return {{"open", links_.size()}, {"connecting", connecting}, {"made", made_},
            {"failed", failed_},     {"refused", refused_},      {"names", names_}};
}

}  // namespace crane::proxy
