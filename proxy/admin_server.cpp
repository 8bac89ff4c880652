#include "proxy/admin_server.hpp"

#include <event2/event.h>
#include <event2/listener.h>
#include <spdlog/spdlog.h>
#include <string.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "base/check.hpp"
#include "base/clock.hpp"
#include "paxos/link/strangers.hpp"
#include "proxy/metrics/http_server.hpp"

namespace crane::proxy {

using nlohmann::json;
using paxos::FrameType;
using paxos::OperatorRole;

namespace {

constexpr int kBacklog = 16;
constexpr timeval kGreetingTimeout{5, 0};
constexpr timeval kIdleTimeout{120, 0};
constexpr uint64_t kSecondNs = 1'000'000'000;

uint64_t now_ms() {
    return monotonic_ns() / 1'000'000;
}

}  // namespace

OperatorRole role_of(const paxos::Identity& shown, const std::string& cluster) {
    if (shown.cluster != cluster) return OperatorRole::kNone;
    return shown.replica != paxos::kNoReplica ? OperatorRole::kOperate : shown.role;
}

bool only_reads(const std::string& command) {
    return command == "status" || command == "output" || command == "log" || command == "answer";
}

struct AdminServer::Client {
    AdminServer* owner = nullptr;
    std::unique_ptr<paxos::Connection> connection;
    OperatorRole role = OperatorRole::kNone;  ///< unknown until the first frame
    std::string who;
    std::string address;
    uint64_t source = 0;
    event* timer = nullptr;
    ~Client() {
        if (timer != nullptr) event_free(timer);
    }
};

AdminServer::AdminServer(event_base* base, const std::string& listen, std::shared_ptr<paxos::TlsContext> tls,
                         const paxos::Identity& self, Handler handler)
    : base_(base),
      self_(self),
      handler_(std::move(handler)),
      tls_(std::move(tls)),
      lots_(std::random_device()()) {
    sockaddr_storage address{};
    socklen_t bytes = 0;
    CRANE_CHECK(parse_listen_address(listen, address, bytes));  // the configuration was looked at
    listener_ = evconnlistener_new_bind(
        base_, on_accept, this, LEV_OPT_REUSEABLE | LEV_OPT_CLOSE_ON_EXEC | LEV_OPT_CLOSE_ON_FREE, kBacklog,
        reinterpret_cast<sockaddr*>(&address), static_cast<int>(bytes));
    if (listener_ == nullptr)
        throw std::runtime_error("cannot be administered at " + listen + ": " + strerror(errno) +
                                 ": give [admin] listen an address of this host and a port that is free");
    pause_ = std::make_unique<paxos::AcceptPause>(base_, listener_, "the administration's port");
    reaper_ = event_new(
        base_, -1, 0, [](int, short, void* own) { static_cast<AdminServer*>(own)->graveyard_.clear(); },
        this);
    CRANE_CHECK(reaper_ != nullptr);
}

AdminServer::~AdminServer() {
    pause_.reset();
    evconnlistener_free(listener_);
    event_free(reaper_);
}

void AdminServer::on_accept(evconnlistener*, int fd, sockaddr* from, int, void* self) {
    static_cast<AdminServer*>(self)->accept(fd, from);
}

/// For one more: of those who have not said who they are, or else of all.
void AdminServer::make_room() {
    if (clients_.size() < kMaxClients) return;
    std::vector<Client*> strangers;
    std::vector<uint64_t> sources;
    const bool any = std::any_of(clients_.begin(), clients_.end(),
                                 [](const auto& one) { return one->role == OperatorRole::kNone; });
    for (const auto& one : clients_) {
        if (any && one->role != OperatorRole::kNone) continue;
        strangers.push_back(one.get());
        sources.push_back(one->source);
    }
    Client& goes = *strangers[paxos::one_too_many(sources, lots_())];
    goes.connection->close();
    lost(goes, "there are more than " + std::to_string(kMaxClients) + " of them");
}

void AdminServer::accept(int fd, const sockaddr* from) {
    make_room();
    tls_->refresh();
    auto client = std::make_unique<Client>();
    Client* const raw = client.get();
    client->owner = this;
    client->address = paxos::to_text(from);
    client->source = paxos::source_of(from);
    paxos::Connection::Handlers handlers;
    handlers.on_frame = [this, raw](FrameType type, std::string_view payload) {
        return on_frame(*raw, type, payload);
    };
    handlers.on_closed = [this, raw](const std::string& reason) { lost(*raw, reason); };
    client->connection = std::make_unique<paxos::Connection>(
        base_, tls_->secure(paxos::make_plain_stream(fd), false), false, std::move(handlers));
    client->timer = evtimer_new(
        base_,
        [](int, short, void* argument) {
            auto* late = static_cast<Client*>(argument);
            late->connection->close();
            late->owner->lost(*late, "it said nothing for too long");
        },
        raw);
    CRANE_CHECK(client->timer != nullptr);
    evtimer_add(client->timer, &kGreetingTimeout);
    clients_.push_back(std::move(client));
}

/// By its certificate. False: it is told why not, and closed.
bool AdminServer::admit(Client& client) {
    const paxos::Identity* const shown = client.connection->peer();
    CRANE_CHECK(shown != nullptr);  // no frame comes before the handshake is done
    client.who = shown->cluster.empty() ? "nobody of Crane's" : paxos::to_uri(*shown);
    client.role = role_of(*shown, self_.cluster);
    if (client.role != OperatorRole::kNone) return true;
    const std::string reason = "the certificate of " + client.who + " has no role in cluster " +
                               self_.cluster +
                               ": crane ca issue --role read (or operate) --name NAME makes one that has";
    const std::string line = "refused to be administered from " + client.address + ": " + reason;
    if (refusals_.is_news(line, now_ms())) spdlog::warn("{}", line);
    client.connection->queue(paxos::make_frame(FrameType::kRefused, reason), true);
    client.connection->flush();
    client.connection->close();
    drop(client);
    return false;
}

bool AdminServer::on_frame(Client& client, FrameType type, std::string_view payload) {
    if (client.role == OperatorRole::kNone && !admit(client)) return true;
    if (type != FrameType::kApp) return false;
    evtimer_add(client.timer, &kIdleTimeout);
    const std::string text = answer(client, payload).dump(-1, ' ', false, json::error_handler_t::replace);
    client.connection->queue(paxos::make_frame(FrameType::kApp, text), true);
    client.connection->flush();
    return client.connection->closed() || client.connection->queued_bytes(true) <= kMaxQueuedBytes;
}

bool AdminServer::too_many() {
    const uint64_t second = monotonic_ns() / kSecondNs;
    if (second != second_) asked_ = 0;
    second_ = second;
    return ++asked_ > kMaxQuestionsPerS;
}

json AdminServer::answer(const Client& client, std::string_view question) {
    const json request = json::parse(question, nullptr, false);
    if (!request.is_object() || !request.contains("cmd") || !request["cmd"].is_string())
        return {{"error", "a question is one JSON object with \"cmd\""}};
    const std::string command = request["cmd"];
    if (too_many()) return {{"error", "too many questions a second are asked here; try again"}};
    if (!only_reads(command)) {
        if (client.role != OperatorRole::kOperate)
            return {{"error", "\"" + paxos::printable(command, 32) + "\" needs the role operate, and " +
                                  client.who + " has the role read"}};
        spdlog::info("{} ({}) orders: {}", client.who, client.address,
                     paxos::printable(question, paxos::kMaxReasonBytes));
    }
    try {
        return handler_(request);
    } catch (const std::exception& error) {
        return {{"error", error.what()}};
    }
}

void AdminServer::lost(Client& client, const std::string& reason) {
    const std::string line =
        "a connection for administration from " + client.address + " came to nothing: " + reason;
    if (client.role == OperatorRole::kNone && refusals_.is_news(line, now_ms())) spdlog::warn("{}", line);
    drop(client);
}

void AdminServer::drop(Client& client) {
    const auto found = std::find_if(clients_.begin(), clients_.end(),
                                    [&](const auto& other) { return other.get() == &client; });
    if (found == clients_.end()) return;
    evtimer_del(client.timer);
    graveyard_.push_back(std::move(*found));
    clients_.erase(found);
    event_active(reaper_, EV_TIMEOUT, 1);
}

}  // namespace crane::proxy
