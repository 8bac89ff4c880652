#include "paxos/link/incoming_peers.hpp"

#include <event2/event.h>
#include <event2/listener.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "base/check.hpp"
#include "paxos/link/lookup.hpp"
#include "paxos/link/strangers.hpp"
#include "paxos/link/tls.hpp"

namespace crane::paxos {

namespace {

constexpr size_t kMaxStrangers = 128;        // connections that have not said who they are
constexpr unsigned kMaxAcceptsPerTurn = 16;  // then the loop sees to others, and what was closed is freed
constexpr size_t kMaxAnswerBytes = 4096;     // on a connection that is there to be read

uint64_t now_ms() {
    timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return static_cast<uint64_t>(time.tv_sec) * 1000 + static_cast<uint64_t>(time.tv_nsec) / 1'000'000;
}

}  // namespace

struct IncomingPeers::Incoming {
    IncomingPeers* owner = nullptr;
    std::unique_ptr<Connection> connection;
    ReplicaId from = kNoReplica;  // unknown until the greeting
    std::string address;
    uint64_t source = 0;
    event* timer = nullptr;
    ~Incoming() {
        if (timer != nullptr) event_free(timer);
    }
};

IncomingPeers::IncomingPeers(event_base* base, Identity self, Versions versions, uint32_t greeting_timeout_ms,
                             IncomingEvents events)
    : base_(base),
      self_(std::move(self)),
      versions_(versions),
      greeting_timeout_{greeting_timeout_ms / 1000, greeting_timeout_ms % 1000 * 1000},
      events_(std::move(events)),
      lots_(std::random_device()()) {
    reaper_ = event_new(base_, -1, 0, on_reap, this);
    CRANE_CHECK(reaper_ != nullptr);
}

IncomingPeers::~IncomingPeers() {
    pauses_.clear();
    for (evconnlistener* listener : listeners_) evconnlistener_free(listener);
    event_free(reaper_);
}

void IncomingPeers::listen(const PeerAddress& own) {
    const AddressInfo info(own, true);
    if (!info.error.empty())
        throw std::runtime_error("cannot resolve this replica's peer address " + to_text(own) + ": " +
                                 info.error);
    int error = 0;
    bool fatal = false;
    for (size_t i = 0; i < info.count() && !fatal; ++i) {
        if (info.repeats(i)) continue;
        const addrinfo& at = info.at(i);
        evconnlistener* const listener = evconnlistener_new_bind(
            base_, on_accept, this, LEV_OPT_REUSEABLE | LEV_OPT_CLOSE_ON_EXEC | LEV_OPT_CLOSE_ON_FREE, 64,
            at.ai_addr, static_cast<int>(at.ai_addrlen));
        if (listener != nullptr) {
            listeners_.push_back(listener);
            pauses_.push_back(std::make_unique<AcceptPause>(base_, listener, "the peers' port"));
            continue;
        }
        error = errno;  // a name may have addresses that are not this host's
        fatal = error != EADDRNOTAVAIL && error != EAFNOSUPPORT;
    }
    if (!fatal && !listeners_.empty()) return;
    pauses_.clear();
    for (evconnlistener* listener : listeners_) evconnlistener_free(listener);
    listeners_.clear();
    throw std::runtime_error("cannot listen for peers on " + to_text(own) + ": " + std::strerror(error) +
                             (error == EADDRINUSE ? ": is this replica already running?" : ""));
}

bool IncomingPeers::answer(ReplicaId peer, std::string frame) {
    for (const auto& one : all_) {
        if (one->from != peer || one->connection->queued_bytes(true) > kMaxAnswerBytes) continue;
        one->connection->queue(std::move(frame), true);
        one->connection->flush();
        return true;
    }
    return false;
}

bool IncomingPeers::hears(ReplicaId peer) const {
    return std::any_of(all_.begin(), all_.end(),
                       [&](const auto& incoming) { return incoming->from == peer; });
}

void IncomingPeers::close(ReplicaId peer) {
    const auto found =
        std::find_if(all_.begin(), all_.end(), [&](const auto& incoming) { return incoming->from == peer; });
    if (found != all_.end()) close_quietly(**found);
}

void IncomingPeers::on_accept(evconnlistener* listener, int fd, sockaddr* from, int, void* self) {
    auto* const peers = static_cast<IncomingPeers*>(self);
    peers->accept(fd, from);
    if (++peers->accepts_ < kMaxAcceptsPerTurn) return;
    evconnlistener_disable(listener);  // libevent goes on as long as somebody waits
    peers->resting_.push_back(listener);
    event_active(peers->reaper_, EV_TIMEOUT, 1);
}

// For one more stranger.
void IncomingPeers::make_room() {
    std::vector<Incoming*> strangers;
    std::vector<uint64_t> sources;
    for (const auto& one : all_) {
        if (one->from != kNoReplica) continue;
        strangers.push_back(one.get());
        sources.push_back(one->source);
    }
    if (strangers.size() < kMaxStrangers) return;
    Incoming& goes = *strangers[one_too_many(sources, lots_())];
    if (refusals_.is_news("too many", now_ms()))
        spdlog::warn(
            "more than {} peer connections that do not say who they are, most from {}: of those some are "
            "closed",
            kMaxStrangers, goes.address);
    goes.connection->close();
    drop(goes);
}

void IncomingPeers::accept(int fd, const sockaddr* from) {
    make_room();
    auto incoming = std::make_unique<Incoming>();
    Incoming* raw = incoming.get();
    incoming->owner = this;
    incoming->address = to_text(from);
    incoming->source = source_of(from);
    Connection::Handlers handlers;
    handlers.on_frame = [this, raw](FrameType type, std::string_view payload) {
        return on_incoming_frame(*raw, type, payload);
    };
    handlers.on_closed = [this, raw](const std::string& reason) { lost(*raw, reason); };
    incoming->connection =
        std::make_unique<Connection>(base_, events_.make_stream(fd), false, std::move(handlers));
    incoming->timer = evtimer_new(
        base_,
        [](int, short, void* argument) {
            auto* late = static_cast<Incoming*>(argument);
            late->connection->close();
            late->owner->lost(*late, "no greeting in time");
        },
        raw);
    CRANE_CHECK(incoming->timer != nullptr);
    evtimer_add(incoming->timer, &greeting_timeout_);
    all_.push_back(std::move(incoming));
}

bool IncomingPeers::close_quietly(Incoming& incoming) {
    incoming.connection->close();
    drop(incoming);
    return true;
}

void IncomingPeers::lost(Incoming& incoming, const std::string& reason) {
    const std::string line = "a peer connection from " + incoming.address + " came to nothing: " + reason;
    if (incoming.from == kNoReplica && refusals_.is_news(line, now_ms())) spdlog::warn("{}", line);
    drop(incoming);
}

// What is wrong with a stranger's greeting. Empty: nothing.
std::string IncomingPeers::refusal(const Incoming& incoming, const Hello& hello) const {
    if (common_version(hello.versions, versions_) == 0)
        return "it speaks protocol version " + to_text(hello.versions) + ", this replica " +
               to_text(versions_) + ": replace them by a version of Crane in between first";
    if (hello.cluster_id != self_.cluster) return "another cluster's member";
    if (hello.to != self_.replica)
        return "this is replica " + std::to_string(self_.replica) + ", not " + std::to_string(hello.to);
    const Identity* const shown = incoming.connection->peer();
    std::string wrong = shown != nullptr ? identity_mismatch(*shown, {self_.cluster, hello.from}) : "";
    if (!wrong.empty()) return wrong;
    return events_.not_a_member(hello.from);
}

bool IncomingPeers::on_incoming_frame(Incoming& incoming, FrameType type, std::string_view payload) {
    if (incoming.from != kNoReplica) {
        if (type != FrameType::kProtocol && type != FrameType::kApp) return false;
        ++frames_received_;
        bytes_received_ += payload.size() + kFrameHeadBytes;
        return events_.on_frame(incoming.from, type, payload);
    }
    if (type == FrameType::kRefused &&
        incoming.connection->peer() != nullptr) {  // the certificates are ours, so its words count
        const std::string line = "the peer at " + incoming.address +
                                 " refuses this replica: " + printable(payload, kMaxReasonBytes);
        if (refusals_.is_news(line, now_ms())) spdlog::warn("{}", line);
        return close_quietly(incoming);
    }
    Hello hello;
    if (type != FrameType::kHello || !decode_hello(payload, hello)) return false;
    const std::string reason = refusal(incoming, hello);
    if (!reason.empty()) {
        const std::string line = "refused a peer connection from " + incoming.address + ": " + reason;
        if (refusals_.is_news(line, now_ms())) spdlog::warn("{}", line);
        incoming.connection->queue(make_frame(FrameType::kRefused, reason), true);
        incoming.connection->flush();
        return close_quietly(incoming);
    }
    greeted(incoming, hello.from);
    return true;
}

void IncomingPeers::greeted(Incoming& incoming, ReplicaId from) {
    for (const auto& other : all_)
        if (other->from == from) {  // a new life of the same peer: the old connection is dead
            other->connection->close();
            drop(*other);
            break;
        }
    evtimer_del(incoming.timer);
    incoming.from = from;
    incoming.connection->allow_large_frames();
    const std::string told = events_.introduction ? events_.introduction() : std::string();
    CRANE_CHECK(told.size() <= kMaxIntroductionBytes);
    incoming.connection->queue(make_frame(FrameType::kWelcome, encode_welcome({versions_.newest, told})),
                               true);
    incoming.connection->flush();
    events_.on_greeted(from);
}

void IncomingPeers::drop(Incoming& incoming) {
    const auto found =
        std::find_if(all_.begin(), all_.end(), [&](const auto& other) { return other.get() == &incoming; });
    if (found == all_.end()) return;
    evtimer_del(incoming.timer);
    const ReplicaId from = incoming.from;
    graveyard_.push_back(std::move(*found));
    all_.erase(found);
    event_active(reaper_, EV_TIMEOUT, 1);
    if (from != kNoReplica) events_.on_lost(from);
}

void IncomingPeers::on_reap(int, short, void* self) {
    auto* const peers = static_cast<IncomingPeers*>(self);
    peers->graveyard_.clear();
    peers->accepts_ = 0;
    for (evconnlistener* listener : peers->resting_) evconnlistener_enable(listener);
    peers->resting_.clear();
}

}  // namespace crane::paxos
