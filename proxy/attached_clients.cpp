#include "proxy/attached_clients.hpp"

#include <string.h>

#include <algorithm>
#include <vector>

#include "proxy/byte_queue.hpp"
#include "proxy/connection_table.hpp"
#include "proxy/impossible_output.hpp"
#include "timebubble/limits.hpp"

namespace crane::proxy {

using timebubble::CallKind;
using timebubble::OutputKind;

namespace {

/// What a client has taken is told in these steps; less than the first window, so that it never closes for
/// that.
constexpr uint64_t kTakenStepBytes = timebubble::kFirstWindowBytes / 4;
/// Where the primary's copy begins has not been heard.
constexpr uint64_t kNotKnown = ~uint64_t{0};

}  // namespace

struct AttachedClients::Client final : EndpointUser {
    AttachedClients& all;
    Endpoint* endpoint;
    timebubble::ConnectPayload addresses;
    uint64_t give_up_ns;
    std::list<std::unique_ptr<Client>>::iterator waiting_at;  ///< while it has no id
    uint64_t id = 0;
    bool opened = false;  ///< its connection is decided
    bool copy = false;
    uint64_t joins_at = kNotKnown;  ///< from this offset on there is no gap in the copy
    uint32_t unserved_looks = 0;    ///< one after the other
    uint64_t replaced_by = 0;       ///< the server after the one that it is a client of; 0: none is decided

    ByteQueue input;         ///< from the first byte that is not decided on
    bool known = false;      ///< to the present primary
    bool was_known = false;  ///< to any: that one has proposed its connection
    uint64_t carried = 0;    ///< to the present primary
    uint64_t credit = 0;     ///< bytes that it still takes
    bool is_rich = false;    ///< in rich_
    bool spoke = false;      ///< since rich_ was last looked at
    bool input_ended = false;
    bool end_carried = false;
    bool end_decided = false;

    uint64_t own = 0;                                     ///< output of the own domain so far
    uint64_t window_end = timebubble::kFirstWindowBytes;  ///< decided: it may come to that
    uint64_t delivered = 0;  ///< output given to the endpoint, from either source
    uint64_t taken = 0;
    uint64_t taken_told = 0;

    Client(AttachedClients& owner, Endpoint* connection, const timebubble::ConnectPayload& from,
           uint64_t until_ns)
        : all(owner), endpoint(connection), addresses(from), give_up_ns(until_ns) {}

    uint64_t input_room() const override {
        if (!may_carry() || carried != input.end()) return 0;
        return std::min(all.primary_->room(id, credit), room_here());
    }
    uint64_t room_here() const {
        const uint64_t held = input.end() - input.begin();
        if (all.held_bytes_ < all.held_limit_) return kMostHeldBytes - std::min(kMostHeldBytes, held);
        return kFirstCreditBytes - std::min(kFirstCreditBytes, held);
    }
    void on_input(std::string_view bytes) override {
        input.append(bytes);
        all.held_bytes_ += bytes.size();
        spoke = true;
        carry();
    }
    void on_input_end() override {
        input_ended = true;
        carry();
    }
    void on_taken(size_t bytes) override {
        taken += bytes;
        tell_taken();
    }
    void tell_taken() {
        if (taken < taken_told + kTakenStepBytes || !may_carry()) return;
        taken_told = taken;
        all.primary_->taken(id, taken);
    }
    void on_gone() override {
        if (all.primary_ && id != 0) all.primary_->gone(id);
        all.take(*this);  // destroys this
    }

    bool may_carry() const { return all.primary_ && known; }

    /// All that may be said to the primary is said, and the client is read as long as there is room.
    void carry() {
        if (may_carry()) {
            const uint64_t now = std::min(input.end() - carried, all.primary_->room(id, credit));
            if (now != 0) {
                const uint64_t from = carried;
                carried += now;
                credit -= std::min(credit, now);
                all.primary_->input(id, from, input.range(from, from + now));
            }
            if (input_ended && !end_carried && carried == input.end()) {
                end_carried = true;
                all.primary_->input_end(id, carried);
            }
        }
        endpoint->allow_input(!input_ended && input_room() != 0);
    }

    /// What was said to an earlier primary, or in an earlier conversation, counts no more.
    void start_anew() {
        known = false;
        credit = 0;
        end_carried = end_decided;
        taken_told = opened ? taken : 0;  // as it is named
        joins_at = kNotKnown;
    }

    bool is_served_by_copy() const { return copy && joins_at != kNotKnown && delivered >= joins_at; }
    /// As well as can be while the own domain stands still, and does not take the input that is held either.
    bool goes_on_by_copy() const {
        if (!opened && !was_known) return true;  // the primary takes it when the server has a place
        return is_served_by_copy() && (input_ended || room_here() != 0);
    }

    void on_credit(uint64_t more) {
        credit += more;
        if (credit > kFirstCreditBytes && !is_rich) {
            is_rich = spoke = true;
            all.rich_.push_back(id);
        }
        carry();
    }

    /// A client that has fallen silent keeps the first credit alone: the rest of it serves others.
    void give_back() {
        is_rich = false;
        if (credit <= kFirstCreditBytes || !may_carry()) return;
        all.primary_->credit_back(id, credit - kFirstCreditBytes);
        credit = kFirstCreditBytes;
    }

    void deliver(uint64_t offset, std::string_view bytes) {
        // A gap: the primary's copy begins later than what is here; the own domain will bring all of it.
        if (offset > delivered) return;
        const uint64_t had = delivered - offset;
        if (had >= bytes.size()) return;
        delivered = offset + bytes.size();
        all.bytes_sent_ += bytes.size() - had;
        endpoint->send(bytes.substr(had));
    }
};

AttachedClients::AttachedClients(uint32_t self, bool own_output, std::function<bool()> wants_copy,
                                 uint64_t held_limit)
    : self_(self), own_output_(own_output), wants_copy_(std::move(wants_copy)), held_limit_(held_limit) {}

AttachedClients::~AttachedClients() {
    reset_all();
}

AttachedClients::Client* AttachedClients::find(uint64_t connection) {
    if (attached_replica(connection) != self_) return nullptr;
    const auto found = named_.find(connection);
    return found == named_.end() ? nullptr : found->second.get();
}

std::unique_ptr<AttachedClients::Client> AttachedClients::take(Client& client) {
    std::unique_ptr<Client> out;
    if (client.id == 0) {
        out = std::move(*client.waiting_at);
        waiting_.erase(client.waiting_at);
    } else {
        const auto found = named_.find(client.id);
        out = std::move(found->second);
        named_.erase(found);
    }
    held_bytes_ -= out->input.end() - out->input.begin();
    return out;
}

void AttachedClients::attach(Endpoint* endpoint, const timebubble::ConnectPayload& addresses,
                             uint64_t give_up_ns) {
    auto client = std::make_unique<Client>(*this, endpoint, addresses, give_up_ns);
    endpoint->set_user(client.get());
    if (primary_) {
        name_new(std::move(client));
        return;
    }
    Client& waits = *client;
    waiting_.push_back(std::move(client));
    waits.waiting_at = std::prev(waiting_.end());
}

void AttachedClients::name_new(std::unique_ptr<Client> client) {
    Client& named = *client;
    named.id = connection_id(self_, next_number_++);
    named.copy = !own_output_ || copies_wanted_ || wants_copy_();
    any_copies_ |= named.copy;
    named_.emplace(named.id, std::move(client));
    name(named);
}

void AttachedClients::name(Client& client) {
    if (client.opened) {
        primary_->resume(client.id, client.copy, client.taken);
    } else {
        primary_->open(client.id, client.addresses, client.copy);
    }
}

/// The primary knows it: to be named once more only changes what it sends.
void AttachedClients::change_source(Client& client, bool copy) {
    client.copy = copy;
    client.joins_at = kNotKnown;
    any_copies_ |= copy;
    name(client);
}

void AttachedClients::want_copies(bool wanted) {
    copies_wanted_ = wanted;
    if (!own_output_ || !primary_ || (!wanted && !any_copies_)) return;
    std::vector<uint64_t> changed;
    any_copies_ = false;
    for (const auto& [id, client] : named_) {
        any_copies_ |= client->copy;
        if (client->copy == wanted || !client->known) continue;
        if (wanted || client->own >= client->delivered) changed.push_back(id);
    }
    std::sort(changed.begin(), changed.end());  // the same in each run
    for (const uint64_t id : changed)
        if (Client* client = find(id)) change_source(*client, wanted);
}

bool AttachedClients::copies_joined() const {
    return std::ranges::all_of(named_, [](const auto& one) { return one.second->is_served_by_copy(); });
}

/// In the order of their numbers: the primary takes those that are above the last only.
void AttachedClients::name_all() {
    std::vector<uint64_t> ids;
    for (const auto& [id, client] : named_) ids.push_back(id);
    std::sort(ids.begin(), ids.end());
    for (const uint64_t id : ids)
        if (const auto found = named_.find(id); found != named_.end()) name(*found->second);
}

void AttachedClients::welcome(uint64_t next_number) {
    if (next_number <= kLastConnectionNumber) next_number_ = std::max(next_number_, next_number);
    // Without output of its own nothing can fill what the primary has said meanwhile.
    while (!own_output_ && !named_.empty()) end(named_.begin()->first, true);
    for (auto& [id, client] : named_) client->start_anew();
    name_all();
    while (!waiting_.empty()) {
        std::unique_ptr<Client> client = std::move(waiting_.front());
        waiting_.pop_front();
        name_new(std::move(client));
    }
    primary_->listed();
}

void AttachedClients::accepted(uint64_t connection, uint64_t offset) {
    Client* client = find(connection);
    if (!client || !primary_) return;
    if (!client->known) {
        client->known = client->was_known = true;
        client->carried = std::clamp(offset, client->input.begin(), client->input.end());
        if (own_output_ && copies_wanted_ && !client->copy) return change_source(*client, true);
    }
    client->tell_taken();
    client->carry();
}

void AttachedClients::credit(uint64_t connection, uint64_t more) {
    Client* client = find(connection);
    if (client && client->may_carry()) client->on_credit(more);
}

void AttachedClients::reap(uint64_t now_ns) {
    for (auto at = waiting_.begin(); at != waiting_.end();) {
        if (now_ns < (*at)->give_up_ns) {
            ++at;
            continue;
        }
        (*at)->endpoint->reset();
        at = waiting_.erase(at);
    }
    std::vector<uint64_t> still_rich;
    for (uint64_t id : rich_) {
        Client* client = find(id);
        if (!client) continue;
        if (client->spoke) {
            client->spoke = false;
            still_rich.push_back(id);
        } else {
            client->give_back();
        }
    }
    rich_ = std::move(still_rich);
    if (primary_) return;
    std::vector<uint64_t> old;
    for (const auto& [id, client] : named_) {
        if (!client->opened && now_ns >= client->give_up_ns) old.push_back(id);
    }
    for (uint64_t id : old) end(id, true);
}

void AttachedClients::end(uint64_t connection, bool reset) {
    const std::unique_ptr<Client> client = take(*named_.at(connection));
    if (reset) {
        client->endpoint->reset();
    } else {
        client->endpoint->close();
    }
}

void AttachedClients::on_decided(const timebubble::Call& call) {
    Client* client = find(call.connection);
    if (!client) return;
    switch (call.kind) {
        case CallKind::kConnect:
            client->opened = true;
            client->replaced_by = 0;
            break;
        case CallKind::kSend: {
            const uint64_t now = std::min(client->input.begin() + call.payload.size(), client->input.end());
            held_bytes_ -= now - client->input.begin();
            client->input.drop_before(now);
            client->carried = std::max(client->carried, now);
            client->carry();  // there may be room here again, too
            break;
        }
        case CallKind::kShutdown:
            client->end_decided = true;
            break;
        case CallKind::kWindow: {
            uint64_t end = 0;
            if (read_number(call.payload, end)) client->window_end = std::max(client->window_end, end);
            break;
        }
        case CallKind::kReset:
            end(call.connection, true);
            break;
        default:
            break;
    }
}

void AttachedClients::on_output(const timebubble::OutputHeader& header, std::string_view payload) {
    Client* client = own_output_ ? find(header.connection) : nullptr;
    if (!client) return;
    if (header.kind == OutputKind::kSend) {
        const uint64_t offset = client->own;
        client->own += payload.size();
        if (client->own > client->window_end) throw ImpossibleOutput(kBeyondWindow);
        client->deliver(offset, payload);
    } else if (header.kind == OutputKind::kShutdown) {
        client->endpoint->finish();
    } else if (header.kind == OutputKind::kProbes) {
        timebubble::ProbeRecord wanted;
        memcpy(&wanted, payload.data(), sizeof(wanted));
        client->endpoint->probe(wanted);
    } else if (header.kind == OutputKind::kClose) {
        end(header.connection, header.flags & 1);
    }
}

void AttachedClients::copied(uint64_t connection, uint64_t offset, std::string_view bytes) {
    Client* client = find(connection);
    if (!client) return;
    if (offset > client->delivered) {
        client->joins_at = offset + bytes.size();
    } else if (client->joins_at == kNotKnown) {
        client->joins_at = offset;
    }
    client->deliver(offset, bytes);
}

void AttachedClients::copied_end(uint64_t connection, uint64_t offset) {
    Client* client = find(connection);
    if (!client) return;
    if (client->delivered == offset) return client->endpoint->finish();
    client->joins_at = kNotKnown;  // the end is not said again
}

void AttachedClients::copied_close(uint64_t connection, uint64_t offset, bool reset) {
    Client* client = find(connection);
    if (!client) return;
    if (client->delivered == offset) return end(connection, reset);
    client->joins_at = kNotKnown;
}

/// They end here, and the primary closes what it has opened for them.
void AttachedClients::leave(std::vector<uint64_t> connections, bool reset) {
    std::sort(connections.begin(), connections.end());  // the same in each run
    for (uint64_t id : connections) {
        if (primary_) primary_->gone(id);
        end(id, reset);
    }
}

void AttachedClients::look_for_unserved(bool stands) {
    if (!stands && !any_unserved_) return;
    any_unserved_ = false;
    std::vector<uint64_t> unserved;
    for (const auto& [id, client] : named_) {
        client->unserved_looks = !stands || client->goes_on_by_copy() ? 0 : client->unserved_looks + 1;
        any_unserved_ |= client->unserved_looks != 0;
        if (client->unserved_looks >= kUnservedLooks) unserved.push_back(id);
    }
    leave(unserved, true);
}

void AttachedClients::server_replaced(uint64_t generation) {
    for (auto& [id, client] : named_) {
        if (client->replaced_by == 0) client->replaced_by = generation;
    }
}

void AttachedClients::close_clients_before(uint64_t generation) {
    std::vector<uint64_t> old;
    for (const auto& [id, client] : named_) {
        if (client->replaced_by != 0 && client->replaced_by <= generation) old.push_back(id);
    }
    leave(old, false);
}

void AttachedClients::close_all() {
    std::vector<uint64_t> all;
    for (const auto& [id, client] : named_) all.push_back(id);
    leave(all, false);
    for (const auto& client : waiting_) client->endpoint->reset();
    waiting_.clear();
}

void AttachedClients::reset_all() {
    while (!named_.empty()) end(named_.begin()->first, true);
    for (const auto& client : waiting_) client->endpoint->reset();
    waiting_.clear();
}

}  // namespace crane::proxy
