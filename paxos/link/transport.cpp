#include "paxos/link/transport.hpp"

#include <event2/event.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "base/check.hpp"
#include "paxos/link/lookup.hpp"

namespace crane::paxos {
namespace {

constexpr size_t kQuietFailures = 8;  // a peer that does not listen yet, at the start
constexpr uint32_t kFirstPauseMs = 10, kMaxPauseMs = 500, kDialTimeoutMs = 2000;
constexpr uint32_t kTlsLookMs = 5000;  // at the certificate files, when no connection is made

timeval to_timeval(uint32_t ms) {
    return {static_cast<time_t>(ms / 1000), static_cast<suseconds_t>(ms % 1000 * 1000)};
}

}  // namespace

struct Transport::Link {
    Transport* owner = nullptr;
    PeerAddress address;
    std::unique_ptr<Connection> connection;
    bool up = false;
    uint32_t version = 0;  // spoken on it, also when it was up last
    size_t refusals = 0;   // since it was last up, one after the other: nobody listens at an address
    bool refused = false;  // at none of its addresses
    size_t addresses = 1;
    size_t failures = 0;  // to open it: a name may have several addresses, which take turns
    bool looking_up = false;
    uint32_t pause_ms = kFirstPauseMs;
    std::unique_ptr<Lookup> lookup;  // of the name in the address
    event* timer = nullptr;          // pause before dialling, or limit on dialling
    std::string last_reason;
    bool ever_up = false;
    ~Link() {
        if (timer != nullptr) event_free(timer);
    }
};

Transport::Transport(event_base* base, TransportConfig config, TransportCallbacks callbacks)
    : base_(base),
      config_(std::move(config)),
      callbacks_(std::move(callbacks)),
      incoming_(base, {config_.cluster_id, config_.self}, config_.versions, config_.greeting_timeout_ms,
                {[this](int fd) { return make_stream(fd, false); },
                 [this](ReplicaId from) { return not_a_member(from); }, callbacks_.on_frame,
                 callbacks_.introduction, [this](ReplicaId peer) { greeted(peer); },
                 [this](ReplicaId peer) { check_gone(peer); }}) {
    reaper_ = event_new(base_, -1, 0, on_reap, this);
    CRANE_CHECK(reaper_ != nullptr);
    for (const PeerAddress& member : config_.members) {
        if (member.id != config_.self) add_link(member);
        highest_id_ = std::max(highest_id_, member.id);
    }
    try {
        if (config_.tls.configured())
            tls_ = config_.tls.context ? config_.tls.context
                                       : std::make_shared<TlsContext>(
                                             config_.tls, Identity{config_.cluster_id, config_.self});
        const std::string exposed =
            tls_ == nullptr ? plaintext_refusal(config_.members, config_.cluster_id) : "";
        if (!exposed.empty()) throw std::runtime_error(exposed);
        incoming_.listen(own_address());
    } catch (...) {
        event_free(reaper_);
        throw;
    }
    if (tls_ == nullptr) return;
    tls_->refresh();  // warns, if there is something to warn of
    tls_timer_ = event_new(base_, -1, EV_PERSIST, on_tls_timer, this);
    CRANE_CHECK(tls_timer_ != nullptr);
    const timeval period = to_timeval(kTlsLookMs);
    evtimer_add(tls_timer_, &period);
}

Transport::~Transport() {
    event_free(reaper_);
    if (tls_timer_ != nullptr) event_free(tls_timer_);
}

void Transport::on_tls_timer(int, short, void* self) {
    static_cast<Transport*>(self)->tls_->refresh();
}

std::unique_ptr<Stream> Transport::make_stream(int fd, bool client) {
    auto plain = make_plain_stream(fd);
    if (tls_ == nullptr) return plain;
    tls_->refresh();
    return tls_->secure(std::move(plain), client);
}

const PeerAddress& Transport::own_address() const {
    for (const PeerAddress& member : config_.members)
        if (member.id == config_.self) return member;
    throw std::runtime_error("replica " + std::to_string(config_.self) + " is not among the members");
}

std::string Transport::not_a_member(ReplicaId id) const {
    if (links_.count(id) > 0) return "";
    return "replica " + std::to_string(id) +
           (id <= highest_id_ ? " has been removed from the cluster" : " is not a member");
}

/// The peer is there: no need to wait before dialling.
void Transport::greeted(ReplicaId peer) {
    Link& link = *links_.at(peer);
    if (link.up || link.connection != nullptr || link.looking_up) return;
    evtimer_del(link.timer);
    link.pause_ms = kFirstPauseMs;
    dial(link);
}

void Transport::add_link(const PeerAddress& address) {
    auto link = std::make_unique<Link>();
    link->owner = this;
    link->address = address;
    link->timer = evtimer_new(base_, on_dial_timer, link.get());
    CRANE_CHECK(link->timer != nullptr);
    links_[address.id] = std::move(link);
}

void Transport::close_link(ReplicaId id) {
    Link& link = *links_.at(id);
    if (link.connection != nullptr) bury(std::move(link.connection));
    const bool was_up = link.up;
    links_.erase(id);
    incoming_.close(id);
    if (was_up) callbacks_.on_link(id, false);
}

void Transport::set_members(const std::vector<PeerAddress>& members, ReplicaId highest_id) {
    highest_id_ = std::max(highest_id_, highest_id);
    std::vector<ReplicaId> gone;
    for (const auto& [id, link] : links_)
        if (std::none_of(members.begin(), members.end(),
                         [&link = link](const PeerAddress& member) { return member == link->address; }))
            gone.push_back(id);
    for (const ReplicaId id : gone) close_link(id);
    for (const PeerAddress& member : members) {
        if (member.id == config_.self || links_.count(member.id) > 0) continue;
        add_link(member);
        if (started_) dial(*links_.at(member.id));
    }
}

void Transport::start() {
    started_ = true;
    for (auto& [id, link] : links_) dial(*link);
}

// --- the way to a peer

void Transport::dial(Link& link) {
    CRANE_CHECK(link.connection == nullptr && !link.up);
    if (is_numeric(link.address.host)) {
        connect_to(link, AddressInfo(link.address, false));
        return;
    }
    try {
        link.lookup = std::make_unique<Lookup>(base_, link.address, [this, &link](const AddressInfo& info) {
            link.looking_up = false;
            connect_to(link, info);
        });
        link.looking_up = true;
    } catch (const std::system_error& error) {
        dial_failed(link, error.what());
    }
}

void Transport::connect_to(Link& link, const AddressInfo& info) {
    if (!info.error.empty()) {
        dial_failed(link, info.error);
        return;
    }
    link.addresses = info.count();
    const addrinfo& to = info.at(link.failures % link.addresses);
    if (tls_ == nullptr && !is_loopback(to.ai_addr)) {
        dial_failed(link, "its address is not on loopback, and no [tls] is configured here");
        return;
    }
    const int fd = socket(to.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        dial_failed(link, std::strerror(errno));
        return;
    }
    auto stream = make_stream(fd, true);
    if (connect(fd, to.ai_addr, to.ai_addrlen) != 0 && errno != EINPROGRESS) {
        const int error = errno;
        dial_failed(link, std::strerror(error), error);
        return;
    }
    Connection::Handlers handlers;
    handlers.on_frame = [this, &link](FrameType type, std::string_view payload) {
        return on_link_frame(link, type, payload);
    };
    handlers.on_closed = [this, &link](const std::string& reason) {
        dial_failed(link, reason, link.connection->connect_error());
    };
    handlers.on_ready = [this, &link] { dialled(link); };
    link.connection = std::make_unique<Connection>(base_, std::move(stream), true, std::move(handlers));
    const timeval limit = to_timeval(kDialTimeoutMs);
    evtimer_add(link.timer, &limit);
}

void Transport::dialled(Link& link) {
    const Identity* const shown = link.connection->peer();
    const std::string wrong =
        shown != nullptr ? identity_mismatch(*shown, {config_.cluster_id, link.address.id}) : "";
    if (wrong.empty()) {
        const Hello hello{config_.versions, config_.self, link.address.id, config_.cluster_id};
        link.connection->queue(make_frame(FrameType::kHello, encode_hello(hello)), true);
        return;
    }
    // The other side is to know why, too.
    link.connection->queue(make_frame(FrameType::kRefused, wrong.substr(0, kMaxReasonBytes)), true);
    link.connection->flush();
    link.pause_ms = kMaxPauseMs;
    if (link.connection != nullptr) dial_failed(link, wrong);
}

void Transport::dial_failed(Link& link, const std::string& reason, int connect_error) {
    if (link.connection != nullptr) bury(std::move(link.connection));
    // When a cluster starts, some come up before others: there is nothing to tell of unless it lasts.
    const bool starting = connect_error == ECONNREFUSED && !link.ever_up && link.failures < kQuietFailures;
    if (!starting && reason != link.last_reason) {
        spdlog::warn("link to replica {} at {}: {}; trying again", link.address.id, to_text(link.address),
                     reason);
        link.last_reason = reason;
    }
    const bool was_up = link.up;
    link.up = false;
    if (was_up) link.pause_ms = 0;  // a cut or the peer's end? Dialling tells
    dial_later(link);
    link.failures += was_up ? 0 : 1;
    link.refusals = connect_error == ECONNREFUSED ? link.refusals + 1 : 0;
    link.refused |= link.refusals > 0 && link.refusals >= link.addresses;
    if (was_up) callbacks_.on_link(link.address.id, false);
    check_gone(link.address.id);
}

// A cut connection alone says nothing of the peer: it can be dialled again, or has the peer's own beside it.
void Transport::check_gone(ReplicaId peer) {
    const auto link = links_.find(peer);
    if (link == links_.end() || !link->second->refused) return;
    if (!incoming_.hears(peer)) callbacks_.on_gone(peer);
}

void Transport::dial_later(Link& link) {
    const timeval pause = to_timeval(link.pause_ms);
    evtimer_add(link.timer, &pause);
    link.pause_ms = std::clamp(link.pause_ms * 2, kFirstPauseMs, kMaxPauseMs);
}

void Transport::on_dial_timer(int, short, void* argument) {
    Link& link = *static_cast<Link*>(argument);
    if (link.up) return;
    if (link.connection != nullptr)
        link.owner->dial_failed(link, "no answer");
    else
        link.owner->dial(link);
}

bool Transport::on_link_frame(Link& link, FrameType type, std::string_view payload) {
    if (link.up)  // nothing is sent this way after the greeting, but what answer() is for
        return type == FrameType::kProtocol && callbacks_.on_frame(link.address.id, type, payload);
    if (type == FrameType::kRefused) {
        link.pause_ms = kMaxPauseMs;
        dial_failed(link, "refused: " + printable(payload, kMaxReasonBytes));
        return true;
    }
    Welcome welcome;
    if (type != FrameType::kWelcome || !decode_welcome(payload, welcome)) return false;
    if (welcome.newest < config_.versions.oldest) return false;
    link.version = std::min(welcome.newest, config_.versions.newest);
    evtimer_del(link.timer);
    link.up = true;
    link.refused = false;
    link.refusals = 0;
    link.pause_ms = kFirstPauseMs;
    link.last_reason.clear();
    link.ever_up = true;
    spdlog::info("link to replica {} at {} is up", link.address.id, to_text(link.address));
    if (callbacks_.on_introduction) callbacks_.on_introduction(link.address.id, welcome.introduction);
    callbacks_.on_link(link.address.id, true);
    return true;
}

bool Transport::send(ReplicaId to, FrameType type, std::string frame, bool overtakes) {
    const auto found = links_.find(to);
    if (found == links_.end()) return false;
    Link& link = *found->second;
    const bool urgent = type == FrameType::kProtocol;
    const size_t limit = urgent ? config_.max_protocol_queue_bytes : config_.max_app_queue_bytes;
    if (!link.up || link.connection->queued_bytes(urgent) + frame.size() > limit) {
        ++stats_.frames_dropped;
        return false;
    }
    ++stats_.frames_sent;
    stats_.bytes_sent += frame.size();
    link.connection->queue(std::move(frame), urgent, overtakes);
    return true;
}

void Transport::answer(ReplicaId to, std::string frame) {
    if (!incoming_.answer(to, std::move(frame))) ++stats_.frames_dropped;
}

void Transport::flush() {
    for (auto& [id, link] : links_)
        if (link->up) link->connection->flush();
}

bool Transport::up(ReplicaId peer) const {
    const auto found = links_.find(peer);
    return found != links_.end() && found->second->up;
}

uint32_t Transport::version(ReplicaId peer) const {
    const auto link = links_.find(peer);
    return link == links_.end() ? 0 : link->second->version;
}

size_t Transport::queued_bytes(ReplicaId peer, FrameType type) const {
    return up(peer) ? links_.at(peer)->connection->queued_bytes(type == FrameType::kProtocol) : 0;
}

TransportStats Transport::stats() const {
    TransportStats stats = stats_;
    stats.frames_received = incoming_.frames_received();
    stats.bytes_received = incoming_.bytes_received();
    return stats;
}

void Transport::bury(std::unique_ptr<Connection> connection) {
    connection->close();
    graveyard_.push_back(std::move(connection));
    event_active(reaper_, EV_TIMEOUT, 1);
}

void Transport::on_reap(int, short, void* self) {
    static_cast<Transport*>(self)->graveyard_.clear();
}

}  // namespace crane::paxos
