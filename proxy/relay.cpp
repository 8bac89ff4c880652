#include "proxy/relay.hpp"

#include <string.h>

#include <algorithm>
#include <vector>

#include "proxy/clock.hpp"

namespace crane::proxy {

namespace {

enum FrameType : uint8_t {
    kHello = 1,        ///< nothing; says that the link has begun anew
    kOpen = 2,         ///< backup to primary from here: OpenPayload
    kInput = 3,        ///< bytes from the client
    kInputEnd = 4,     ///< the client's FIN
    kGoneUp = 5,       ///< the client is gone
    kCreditUp = 6,     ///< uint64_t more bytes may come for the client
    kOutput = 16,      ///< primary to backup from here: bytes for the client
    kFinish = 17,      ///< FIN for the client
    kClose = 18,       ///< the server has closed
    kGoneDown = 19,    ///< reset the client
    kCreditDown = 20,  ///< uint64_t more bytes may come from the client; the first one accepts the stream
    kRefused = 21,     ///< not the primary of that view
};

/// In front of each message. A link that lost something shows as another incarnation or a gap.
struct MessageHeader {
    uint64_t incarnation;
    uint64_t sequence;
};

struct FrameHeader {
    uint8_t type;
    uint8_t reserved[3];
    uint32_t bytes;
    uint64_t stream;
};

struct OpenPayload {
    uint64_t view;
    timebubble::ConnectPayload addresses;
};

constexpr size_t kMessageBytes = 1024 * 1024;
constexpr size_t kMaxStreams = 65536;

}  // namespace

/// Backup's side of a stream: the user of a client's connection.
struct Relay::Outgoing final : EndpointUser {
    Relay& relay;
    uint64_t stream;
    uint32_t primary;
    uint64_t view;
    ClientConnection* client;
    bool accepted = false;
    uint64_t credit = 0;  ///< input that the primary still takes
    uint64_t taken = 0;   ///< output taken by the client, not yet credited
    std::string held;     ///< input read beyond the credit; at most one read
    bool held_end = false;

    Outgoing(Relay& owner, uint64_t id, uint32_t to, uint64_t in_view, ClientConnection* connection)
        : relay(owner), stream(id), primary(to), view(in_view), client(connection) {}

    void on_input(std::string_view bytes) override {
        const size_t now = held.empty() ? std::min<size_t>(bytes.size(), credit) : 0;
        if (now != 0) relay.frame(primary, kInput, stream, bytes.substr(0, now));
        credit -= now;
        held.append(bytes.substr(now));
        if (credit == 0) client->allow_input(false);
    }
    void on_input_end() override {
        if (held.empty()) {
            relay.frame(primary, kInputEnd, stream, {});
        } else {
            held_end = true;
        }
    }
    void on_taken(size_t bytes) override {
        taken += bytes;
        if (taken < kRelayOutputCredit / 4) return;
        relay.frame_number(primary, kCreditUp, stream, taken);
        taken = 0;
    }
    void on_gone() override {
        relay.frame(primary, kGoneUp, stream, {});
        relay.outgoing_.erase(stream);  // destroys this
    }
    void on_credit(uint64_t more) {
        accepted = true;
        credit += more;
        const size_t now = std::min<size_t>(held.size(), credit);
        if (now != 0) relay.frame(primary, kInput, stream, std::string_view(held).substr(0, now));
        held.erase(0, now);
        credit -= now;
        if (held.empty() && held_end) {
            held_end = false;
            relay.frame(primary, kInputEnd, stream, {});
        }
        client->allow_input(credit > 0);
    }
};

/// Primary's side of a stream: a client at another replica.
class Relay::Incoming final : public Endpoint {
  public:
    Incoming(Relay& relay, uint32_t peer, uint64_t stream) : relay_(relay), peer_(peer), stream_(stream) {}

    void set_user(EndpointUser* user) override { user_ = user; }
    EndpointUser* user() const { return user_; }
    void allow_input(bool) override {}  // credit stops the input: no more comes than the server consumes
    void consumed(size_t bytes) override {
        consumed_ += bytes;
        if (consumed_ < kRelayInputCredit / 4) return;
        relay_.frame_number(peer_, kCreditDown, stream_, consumed_);
        consumed_ = 0;
    }
    void send(std::string_view bytes) override {
        const size_t now = held_.empty() ? std::min<size_t>(bytes.size(), credit_) : 0;
        if (now != 0) emit(bytes.substr(0, now));
        held_.append(bytes.substr(now));
    }
    void finish() override {
        finish_ = true;
        after_held();
    }
    void close() override {
        user_ = nullptr;
        closed_ = true;
        after_held();
    }
    void reset() override {
        relay_.frame(peer_, kGoneDown, stream_, {});
        relay_.incoming_.erase({peer_, stream_});  // destroys this
    }
    void on_credit(uint64_t more) {
        credit_ += more;
        const size_t now = std::min<size_t>(held_.size(), credit_);
        if (now != 0) emit(std::string_view(held_).substr(0, now));
        held_.erase(0, now);
        if (user_) user_->on_taken(more);
        after_held();
    }

  private:
    void emit(std::string_view bytes) {
        credit_ -= bytes.size();
        relay_.frame(peer_, kOutput, stream_, bytes);
    }
    void after_held() {
        if (!held_.empty()) return;
        if (closed_) {
            relay_.frame(peer_, kClose, stream_, {});
            relay_.incoming_.erase({peer_, stream_});  // destroys this
        } else if (finish_ && !finish_sent_) {
            finish_sent_ = true;
            relay_.frame(peer_, kFinish, stream_, {});
        }
    }

    Relay& relay_;
    uint32_t peer_;
    uint64_t stream_;
    EndpointUser* user_ = nullptr;
    uint64_t credit_ = kRelayOutputCredit;
    uint64_t consumed_ = 0;
    std::string held_;
    bool finish_ = false;
    bool finish_sent_ = false;
    bool closed_ = false;
};

Relay::Relay(Send send, Opened opened, Returned returned)
    : send_(std::move(send)),
      opened_(std::move(opened)),
      returned_(std::move(returned)),
      next_stream_(realtime_ns()),  // later than any stream of an earlier run
      next_incarnation_(next_stream_) {}

Relay::~Relay() = default;

void Relay::frame(uint32_t to, uint8_t type, uint64_t stream, std::string_view payload) {
    const FrameHeader header{type, {}, static_cast<uint32_t>(payload.size()), stream};
    std::string& gathered = links_[to].gathered;
    gathered.append(reinterpret_cast<const char*>(&header), sizeof(header));
    gathered.append(payload);
}

void Relay::frame_number(uint32_t to, uint8_t type, uint64_t stream, uint64_t number) {
    frame(to, type, stream, {reinterpret_cast<const char*>(&number), sizeof(number)});
}

void Relay::forward(ClientConnection* client, uint32_t primary, uint64_t view) {
    if (outgoing_.size() >= kMaxStreams) {
        client->reset();
        return;
    }
    const uint64_t stream = next_stream_++;
    auto out = std::make_unique<Outgoing>(*this, stream, primary, view, client);
    client->set_user(out.get());
    outgoing_.emplace(stream, std::move(out));
    const OpenPayload open{view, client->addresses()};
    frame(primary, kOpen, stream, {reinterpret_cast<const char*>(&open), sizeof(open)});
}

/// The stream has ended from the other side.
void Relay::end_outgoing(uint64_t stream) {
    const auto found = outgoing_.find(stream);
    if (found == outgoing_.end()) return;
    const std::unique_ptr<Outgoing> old = std::move(found->second);
    outgoing_.erase(found);
    if (old->accepted) {
        old->client->reset();
    } else {
        old->client->set_user(nullptr);
        returned_(old->client);
    }
}

void Relay::set_view(uint64_t view, bool leading) {
    view_ = view;
    leading_ = leading;
    std::vector<uint64_t> old;
    for (const auto& [stream, out] : outgoing_) {
        if (out->view != view || leading) old.push_back(stream);
    }
    for (uint64_t stream : old) end_outgoing(stream);
}

void Relay::on_link(uint32_t peer, bool up) {
    if (up) {
        frame(peer, kHello, 0, {});
    } else {
        Link& link = links_[peer];
        link = Link{};
        link.incarnation = next_incarnation_++;
        drop_streams(peer);
    }
}

/// The link to `peer` has lost something: no stream over it can go on.
void Relay::drop_streams(uint32_t peer) {
    std::vector<uint64_t> broken;
    for (const auto& [stream, out] : outgoing_) {
        if (out->primary == peer) broken.push_back(stream);
    }
    for (uint64_t stream : broken) end_outgoing(stream);
    for (auto at = incoming_.lower_bound({peer, 0}); at != incoming_.end() && at->first.first == peer;) {
        const std::unique_ptr<Incoming> old = std::move(at->second);
        at = incoming_.erase(at);
        if (old->user()) old->user()->on_gone();
    }
}

void Relay::on_message(uint32_t from, std::string_view message) {
    MessageHeader head;
    if (message.size() < sizeof(head)) return;
    memcpy(&head, message.data(), sizeof(head));
    message.remove_prefix(sizeof(head));
    Link& link = links_[from];
    if (head.incarnation != link.peer_incarnation || head.sequence != link.peer_sequence) {
        const bool known = link.peer_incarnation != 0;
        link.peer_incarnation = head.incarnation;
        if (known) drop_streams(from);
    }
    link.peer_sequence = head.sequence + 1;
    while (message.size() >= sizeof(FrameHeader)) {
        FrameHeader header;
        memcpy(&header, message.data(), sizeof(header));
        message.remove_prefix(sizeof(header));
        if (message.size() < header.bytes) return;
        const std::string_view payload = message.substr(0, header.bytes);
        message.remove_prefix(header.bytes);
        if (header.type == kHello) continue;
        if (header.type < kOutput) {
            handle_primary(from, header.type, header.stream, payload);
        } else {
            handle_backup(from, header.type, header.stream, payload);
        }
    }
}

void Relay::handle_primary(uint32_t from, uint8_t type, uint64_t stream, std::string_view payload) {
    if (type == kOpen) {
        OpenPayload open;
        if (payload.size() != sizeof(open)) return;
        memcpy(&open, payload.data(), sizeof(open));
        if (!leading_ || open.view != view_ || incoming_.size() >= kMaxStreams) {
            frame(from, kRefused, stream, {});
            return;
        }
        auto in = std::make_unique<Incoming>(*this, from, stream);
        Incoming* endpoint = in.get();
        if (!incoming_.emplace(Key{from, stream}, std::move(in)).second) return;
        frame_number(from, kCreditDown, stream, kRelayInputCredit);
        opened_(endpoint, open.addresses);
        return;
    }
    const auto found = incoming_.find({from, stream});
    if (found == incoming_.end()) {
        if (type != kGoneUp) frame(from, kGoneDown, stream, {});
        return;
    }
    Incoming& in = *found->second;
    EndpointUser* user = in.user();
    uint64_t number = 0;
    if (payload.size() == sizeof(number)) memcpy(&number, payload.data(), sizeof(number));
    if (type == kInput && user) user->on_input(payload);
    if (type == kInputEnd && user) user->on_input_end();
    if (type == kCreditUp) in.on_credit(number);
    if (type == kGoneUp) {
        const std::unique_ptr<Incoming> old = std::move(found->second);
        incoming_.erase(found);
        if (user) user->on_gone();
    }
}

void Relay::handle_backup(uint32_t from, uint8_t type, uint64_t stream, std::string_view payload) {
    const auto found = outgoing_.find(stream);
    if (found == outgoing_.end() || found->second->primary != from) {
        if (type == kCreditDown || type == kOutput) frame(from, kGoneUp, stream, {});
        return;
    }
    Outgoing& out = *found->second;
    uint64_t number = 0;
    if (payload.size() == sizeof(number)) memcpy(&number, payload.data(), sizeof(number));
    if (type == kCreditDown) out.on_credit(number);
    if (type == kOutput) out.client->send(payload);
    if (type == kFinish) out.client->finish();
    if (type == kRefused || type == kGoneDown) end_outgoing(stream);
    if (type == kClose) {
        ClientConnection* client = out.client;
        outgoing_.erase(found);
        client->close();
    }
}

/// Cut between frames, so that a message is always whole.
void Relay::make_ready(Link& link) {
    size_t end = link.taken;
    while (end < link.gathered.size() && end - link.taken < kMessageBytes) {
        FrameHeader header;
        memcpy(&header, link.gathered.data() + end, sizeof(header));
        end += sizeof(header) + header.bytes;
    }
    if (link.incarnation == 0) link.incarnation = next_incarnation_++;
    const MessageHeader head{link.incarnation, link.sequence++};
    link.ready.assign(reinterpret_cast<const char*>(&head), sizeof(head));
    link.ready.append(link.gathered, link.taken, end - link.taken);
    link.taken = end;
}

void Relay::end_turn() {
    for (auto& [peer, link] : links_) {
        while (!link.ready.empty() || link.taken < link.gathered.size()) {
            if (link.ready.empty()) make_ready(link);
            if (!send_(peer, link.ready)) break;
            link.ready.clear();
        }
        // What is gone is cut off when it is the larger part: no byte is moved more than once.
        if (link.taken < link.gathered.size() - link.taken) continue;
        link.gathered.erase(0, link.taken);
        link.taken = 0;
    }
}

}  // namespace crane::proxy
