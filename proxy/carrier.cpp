#include "proxy/carrier.hpp"

#include <string.h>

#include <algorithm>
#include <deque>

#include "base/clock.hpp"

namespace crane::proxy {

namespace {

enum FrameType : uint8_t {
    kHello = 1,  ///< to whoever leads: begin anew
    kOpen = 2,
    kResume = 3,
    kListed = 4,
    kInput = 5,  ///< offset, then bytes
    kInputEnd = 6,
    kTaken = 7,
    kGone = 8,
    kCreditBack = 9,
    kWelcome = 16,  ///< from the primary from here
    kAccepted = 17,
    kCredit = 18,
    kCopied = 19,  ///< offset, then bytes
    kCopiedEnd = 20,
    kCopiedClose = 21,
    kCopiedReset = 22,
};

struct MessageHeader {
    uint64_t incarnation;  ///< of the link; another one has begun at sequence 0
    uint64_t sequence;
    uint64_t view;  ///< of the welcome that the frames follow, or are
    uint64_t round;
};

struct FrameHeader {
    uint8_t type;
    uint8_t flags;
    uint8_t reserved[2];
    uint32_t bytes;
    uint64_t connection;
};
constexpr uint8_t kFlagCopy = 1;

constexpr size_t kMessageBytes = 128 * 1024;  ///< heartbeats wait for one message at most

std::string_view bytes_of(const auto& value) {
    return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

}  // namespace

/// Frames for a peer that are not sent yet, as the messages that they will be. A message holds whole frames;
/// and a peer that is slow costs what waits for it, not the larger piece that a growing string takes.
class Carrier::Gathered {
  public:
    bool empty() const { return messages_.empty(); }
    void clear() { messages_.clear(); }
    void put(uint8_t type, uint8_t flags, uint64_t connection, std::string_view first,
             std::string_view second = {}) {
        const FrameHeader header{
            type, flags, {}, static_cast<uint32_t>(first.size() + second.size()), connection};
        if (messages_.empty() || messages_.back().size() >= kMessageBytes) messages_.emplace_back();
        std::string& last = messages_.back();
        last.append(bytes_of(header)).append(first).append(second);
    }
    const std::string& front() const { return messages_.front(); }
    void pop() { messages_.pop_front(); }

  private:
    std::deque<std::string> messages_;
};

/// This replica to itself, when it leads.
class Carrier::Local final : public ToPrimary, public FromPrimary {
  public:
    explicit Local(Carrier& carrier) : carrier_(carrier), self_(carrier.self_) {}

    void open(uint64_t id, const timebubble::ConnectPayload& addresses, bool copy) override {
        carrier_.ingress_->open(self_, id, addresses, copy);
    }
    void resume(uint64_t id, bool copy, uint64_t taken) override {
        carrier_.ingress_->resume(self_, id, copy, taken);
    }
    uint64_t room(uint64_t id, uint64_t) const override { return carrier_.ingress_->room(id); }
    void credit_back(uint64_t id, uint64_t bytes) override {
        carrier_.ingress_->credit_back(self_, id, bytes);
    }
    void listed() override { carrier_.ingress_->listed(self_); }
    void input(uint64_t id, uint64_t offset, std::string_view bytes) override {
        carrier_.ingress_->input(self_, id, offset, bytes);
    }
    void input_end(uint64_t id, uint64_t offset) override { carrier_.ingress_->input_end(self_, id, offset); }
    void taken(uint64_t id, uint64_t total) override { carrier_.ingress_->taken(self_, id, total); }
    void gone(uint64_t id) override { carrier_.ingress_->gone(self_, id); }

    void welcome(uint64_t next_number) override {
        carrier_.primary_ = self_;
        carrier_.clients_.set_primary(this);
        carrier_.clients_.welcome(next_number);
    }
    void accepted(uint64_t id, uint64_t offset) override { carrier_.clients_.accepted(id, offset); }
    void credit(uint64_t id, uint64_t more) override { carrier_.clients_.credit(id, more); }
    void copied(uint64_t id, uint64_t offset, std::string_view bytes) override {
        carrier_.clients_.copied(id, offset, bytes);
    }
    void copied_end(uint64_t id, uint64_t offset) override { carrier_.clients_.copied_end(id, offset); }
    void copied_close(uint64_t id, uint64_t offset, bool reset) override {
        carrier_.clients_.copied_close(id, offset, reset);
    }

  private:
    Carrier& carrier_;
    uint32_t self_;
};

/// To another replica that leads.
class Carrier::Up final : public ToPrimary {
  public:
    void open(uint64_t id, const timebubble::ConnectPayload& addresses, bool copy) override {
        gathered.put(kOpen, copy ? kFlagCopy : 0, id, bytes_of(addresses));
    }
    void resume(uint64_t id, bool copy, uint64_t taken) override {
        gathered.put(kResume, copy ? kFlagCopy : 0, id, bytes_of(taken));
    }
    uint64_t room(uint64_t, uint64_t credit) const override { return credit; }
    void credit_back(uint64_t id, uint64_t bytes) override {
        gathered.put(kCreditBack, 0, id, bytes_of(bytes));
    }
    void listed() override { gathered.put(kListed, 0, 0, {}); }
    void input(uint64_t id, uint64_t offset, std::string_view bytes) override {
        gathered.put(kInput, 0, id, bytes_of(offset), bytes);
    }
    void input_end(uint64_t id, uint64_t offset) override {
        gathered.put(kInputEnd, 0, id, bytes_of(offset));
    }
    void taken(uint64_t id, uint64_t total) override { gathered.put(kTaken, 0, id, bytes_of(total)); }
    void gone(uint64_t id) override { gathered.put(kGone, 0, id, {}); }

    Gathered gathered;
    Conversation about;  ///< by its last welcome
};

/// From this replica, when it leads, to another.
class Carrier::Down final : public FromPrimary {
  public:
    explicit Down(Carrier& carrier) : carrier_(carrier) {}

    void welcome(uint64_t next_number) override {
        about = {carrier_.view_, about.round + 1};
        gathered.clear();  // of an earlier conversation
        gathered.put(kWelcome, 0, 0, bytes_of(next_number));
    }
    void accepted(uint64_t id, uint64_t offset) override { gathered.put(kAccepted, 0, id, bytes_of(offset)); }
    void credit(uint64_t id, uint64_t more) override { gathered.put(kCredit, 0, id, bytes_of(more)); }
    void copied(uint64_t id, uint64_t offset, std::string_view bytes) override {
        gathered.put(kCopied, 0, id, bytes_of(offset), bytes);
    }
    void copied_end(uint64_t id, uint64_t offset) override {
        gathered.put(kCopiedEnd, 0, id, bytes_of(offset));
    }
    void copied_close(uint64_t id, uint64_t offset, bool reset) override {
        gathered.put(reset ? kCopiedReset : kCopiedClose, 0, id, bytes_of(offset));
    }

    Gathered gathered;
    Conversation about;

  private:
    Carrier& carrier_;
};

struct Carrier::Link {
    explicit Link(Carrier& carrier) : down(carrier) {}

    bool is_up = false;
    Up up;
    Down down;
    uint64_t incarnation = 0;
    uint64_t sequence = 0;
    uint64_t peer_incarnation = 0;
    uint64_t peer_sequence = 0;  ///< of the next message
};

Carrier::Carrier(uint32_t self, AttachedClients& clients, Send send)
    : self_(self), clients_(clients), send_(std::move(send)), local_(std::make_unique<Local>(*this)) {}

Carrier::~Carrier() {
    clients_.lost_primary();
}

Carrier::Link& Carrier::link(uint32_t peer) {
    std::unique_ptr<Link>& found = links_[peer];
    if (!found) found = std::make_unique<Link>(*this);
    return *found;
}

FromPrimary* Carrier::reply_to(uint32_t replica) {
    if (replica == self_) return local_.get();
    Link& to = link(replica);
    return to.is_up ? &to.down : nullptr;
}

void Carrier::set_view(uint64_t view, uint32_t leader) {
    if (view == view_ && leader == leader_) return;
    view_ = view;
    leader_ = leader;
    // The welcome may have come before the news.
    const bool goes_on =
        primary_ != 0 && primary_ == leader && primary_ != self_ && link(primary_).up.about.view == view;
    if (goes_on) return;
    primary_ = 0;
    clients_.lost_primary();
    // It may have said its welcome before this replica could take it.
    if (leader != 0 && leader != self_ && link(leader).is_up) link(leader).up.gathered.put(kHello, 0, 0, {});
}

void Carrier::on_link(uint32_t peer, bool up) {
    Link& at = link(peer);
    at.is_up = up;
    at.up.gathered.clear();
    at.down.gathered.clear();
    if (up) {
        // Later than that of any link before, also of an earlier run of this daemon.
        at.incarnation = std::max(at.incarnation + 1, realtime_ns());
        at.sequence = 0;
        at.up.gathered.put(kHello, 0, 0, {});
    } else if (primary_ == peer) {
        primary_ = 0;
        clients_.lost_primary();
    }
}

void Carrier::lost_something(uint32_t peer) {
    ingress_->welcome(peer);
    if (primary_ != peer) return;
    primary_ = 0;
    clients_.lost_primary();
    Link& at = link(peer);
    at.up.gathered.clear();
    at.up.gathered.put(kHello, 0, 0, {});
}

void Carrier::on_message(uint32_t from, std::string_view message) {
    MessageHeader head;
    if (message.size() < sizeof(head)) return;
    memcpy(&head, message.data(), sizeof(head));
    message.remove_prefix(sizeof(head));
    Link& at = link(from);
    const bool known = at.peer_incarnation != 0;
    const bool follows = head.incarnation == at.peer_incarnation && head.sequence == at.peer_sequence;
    at.peer_incarnation = head.incarnation;
    at.peer_sequence = head.sequence + 1;
    if (known && !follows) lost_something(from);
    const Conversation said{head.view, head.round};
    while (message.size() >= sizeof(FrameHeader)) {
        FrameHeader header;
        memcpy(&header, message.data(), sizeof(header));
        message.remove_prefix(sizeof(header));
        if (message.size() < header.bytes) return;
        const std::string_view payload = message.substr(0, header.bytes);
        message.remove_prefix(header.bytes);
        const uint8_t type = header.type;
        uint64_t next_number = 0;
        if (type == kHello) {
            ingress_->welcome(from);
        } else if (type == kWelcome) {
            if (read_number(payload, next_number)) welcomed_by(from, said, next_number);
        } else if (type < kWelcome) {
            if (said == at.down.about)
                handle_as_primary(from, type, header.flags, header.connection, payload);
        } else if (primary_ == from && said == at.up.about) {
            handle_as_attached(type, header.connection, payload);
        }
    }
}

void Carrier::welcomed_by(uint32_t primary, const Conversation& said, uint64_t next_number) {
    if (said.view < view_) return;
    Link& at = link(primary);
    primary_ = primary;
    at.up.about = said;
    at.up.gathered.clear();
    clients_.set_primary(&at.up);
    clients_.welcome(next_number);
}

void Carrier::handle_as_primary(uint32_t from, uint8_t type, uint8_t flags, uint64_t connection,
                                std::string_view payload) {
    const bool copy = flags & kFlagCopy;
    if (type == kListed) return ingress_->listed(from);
    if (type == kGone) return ingress_->gone(from, connection);
    if (type == kOpen) {
        timebubble::ConnectPayload addresses;
        if (payload.size() != sizeof(addresses)) return;
        memcpy(&addresses, payload.data(), sizeof(addresses));
        return ingress_->open(from, connection, addresses, copy);
    }
    uint64_t number = 0;
    if (!read_number(payload.substr(0, sizeof(number)), number)) return;
    if (type == kResume) return ingress_->resume(from, connection, copy, number);
    if (type == kCreditBack) return ingress_->credit_back(from, connection, number);
    if (type == kInput) return ingress_->input(from, connection, number, payload.substr(sizeof(number)));
    if (type == kInputEnd) return ingress_->input_end(from, connection, number);
    if (type == kTaken) return ingress_->taken(from, connection, number);
}

void Carrier::handle_as_attached(uint8_t type, uint64_t connection, std::string_view payload) {
    uint64_t number = 0;
    if (!read_number(payload.substr(0, sizeof(number)), number)) return;
    if (type == kAccepted) clients_.accepted(connection, number);
    if (type == kCredit) clients_.credit(connection, number);
    if (type == kCopied) clients_.copied(connection, number, payload.substr(sizeof(number)));
    if (type == kCopiedEnd) clients_.copied_end(connection, number);
    if (type == kCopiedClose || type == kCopiedReset)
        clients_.copied_close(connection, number, type == kCopiedReset);
}

void Carrier::flush(uint32_t peer, Gathered& gathered, const Conversation& about, Link& link) {
    while (!gathered.empty()) {
        const MessageHeader head{link.incarnation, link.sequence, about.view, about.round};
        std::string message;
        message.reserve(sizeof(head) + gathered.front().size());
        message.append(bytes_of(head)).append(gathered.front());
        if (!send_(peer, std::move(message))) return;
        ++link.sequence;
        gathered.pop();
    }
}

void Carrier::end_turn() {
    for (auto& [peer, link] : links_) {
        if (!link->is_up) continue;
        flush(peer, link->up.gathered, link->up.about, *link);
        flush(peer, link->down.gathered, link->down.about, *link);
    }
}

}  // namespace crane::proxy
