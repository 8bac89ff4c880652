#include "proxy/listeners.hpp"

#include <errno.h>
#include <event2/event.h>
#include <netinet/tcp.h>
#include <spdlog/spdlog.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>

#include "base/clock.hpp"
#include "paxos/link/lookup.hpp"
#include "paxos/link/peer_address.hpp"
#include "proxy/datagram_socket.hpp"

namespace crane::proxy {

namespace {

constexpr int kBacklog = 4096;
constexpr int kAcceptsPerTurn = 64;
constexpr timeval kRetry{1, 0};
constexpr timeval kOutOfDescriptors{0, 100'000};
/// Nobody has waited in vain for so long.
constexpr uint64_t kCalmNs = 1'000'000'000;
constexpr uint64_t kSayEveryNs = 60ULL * 1'000'000'000;

const sockaddr* plain(const sockaddr_storage& address) {
    return reinterpret_cast<const sockaddr*>(&address);
}

bool is_six(const sockaddr_storage& address) {
    return address.ss_family == AF_INET6;
}

/// All addresses, IPv4 ones included.
bool is_any_six(const sockaddr_storage& address) {
    return is_six(address) &&
           IN6_IS_ADDR_UNSPECIFIED(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr);
}

bool is_same(const sockaddr_storage& one, const sockaddr_storage& other) {
    return paxos::to_text(plain(one)) == paxos::to_text(plain(other));
}

/// A listening socket, or one for datagrams; or -1 with `error` set, and errno.
int open_listener(sockaddr_storage address, uint16_t port, bool datagrams, std::string& error) {
    const int on = 1;
    const int type = datagrams ? SOCK_DGRAM : SOCK_STREAM;
    const int fd = socket(address.ss_family, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd >= 0 && datagrams) {
        prepare_datagram_socket(fd, address.ss_family);
    } else if (fd >= 0) {
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    }
    socklen_t length = sizeof(sockaddr_in);
    if (is_six(address)) {
        length = sizeof(sockaddr_in6);
        reinterpret_cast<sockaddr_in6&>(address).sin6_port = htons(port);
        // IPv4 has a socket of its own: whether there is one does not depend on the system's settings.
        if (fd >= 0) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
    } else {
        reinterpret_cast<sockaddr_in&>(address).sin_port = htons(port);
    }
    if (fd >= 0 && bind(fd, plain(address), length) == 0 && (datagrams || ::listen(fd, kBacklog) == 0))
        return fd;
    const int code = errno;
    error = "cannot listen on " + paxos::to_text(plain(address)) + ":" + std::to_string(port) +
            (datagrams ? "/udp: " : ": ") + strerror(code);
    if (code == EADDRINUSE) error += "; stop what uses the port, or move it with [port_map]";
    if (code == EACCES) error += "; ports below 1024 need root, or move it with [port_map]";
    if (fd >= 0) close(fd);
    errno = code;
    return -1;
}

/// Where the server would leave a client that says nothing to its kernel, this machine's kernel keeps it.
void defer_accept(int fd, int seconds) {
    setsockopt(fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, &seconds, sizeof(seconds));
}

}  // namespace

/// One address of a port.
struct Listeners::Socket {
    Port& port;
    sockaddr_storage address;
    int fd;
    event* accept_event = nullptr;

    ~Socket() {
        if (accept_event) event_free(accept_event);
        close(fd);
    }
};

/// Outlives its port while clients hold places.
struct Listeners::Gate {
    Port* port;
    size_t held = 0;
    void release();
};

struct Listeners::Port {
    Listeners& all;
    bool datagrams;
    uint16_t port;
    uint16_t client_port;
    int users = 0;         ///< sockets of the server that listen on it
    int users_six = 0;     ///< of those, IPv6 ones
    bool changed = false;  ///< in changed_
    bool serves_six = false;
    std::vector<std::unique_ptr<Socket>> sockets = {};
    event* retry_event = nullptr;
    std::string error = {};
    int defer_accept_s = 0;
    std::shared_ptr<Gate> gate = std::make_shared<Gate>(Gate{this});
    bool starved = false;     ///< `error` says that no client could be accepted
    uint64_t said_ns = 0;     ///< when that was said
    uint64_t refused_ns = 0;  ///< when it was so last

    ~Port() {
        gate->port = nullptr;
        if (retry_event) event_free(retry_event);
    }
    void count(const timebubble::ListenRecord& record, int by) {
        users += by;
        if (record.family == AF_INET6) users_six += by;
    }
    void fed() {
        if (starved) error.clear();
        starved = false;
    }
    void accept_all(bool accept) {
        for (const auto& socket : sockets) {
            if (accept) {
                event_add(socket->accept_event, nullptr);
            } else {
                event_del(socket->accept_event);
            }
        }
    }
};

void Listeners::Gate::release() {
    const bool was_shut = held-- == kPlaces;
    if (was_shut && port) port->accept_all(true);
}

Listeners::Listeners(event_base* base, std::string address, std::map<uint16_t, uint16_t> port_map,
                     Accepted accepted, Readable readable)
    : base_(base),
      address_(std::move(address)),
      port_map_(std::move(port_map)),
      accepted_(std::move(accepted)),
      readable_(std::move(readable)) {
    // No name server is asked for those.
    if (paxos::is_numeric(address_)) found({{0, address_, 0}, true});
}

Listeners::~Listeners() = default;

/// A name is looked up without waiting for it; then all ports are tried.
void Listeners::look_up() {
    if (looking_) return;
    const auto done = [this](const paxos::AddressInfo& info) {
        looking_ = false;
        found(info);
        for (auto& [key, port] : ports_) try_open(*port);
    };
    try {
        lookup_ = std::make_unique<paxos::Lookup>(base_, paxos::PeerAddress{0, address_, 0}, done);
        looking_ = true;
    } catch (const std::exception& error) {  // no thread, no descriptor: the next try looks again
        lookup_error_ = "client_address " + address_ + ": " + error.what();
    }
}

void Listeners::found(const paxos::AddressInfo& info) {
    if (!info.error.empty()) {
        lookup_error_ = "client_address " + address_ + ": " + info.error;
        return;
    }
    lookup_error_.clear();
    addresses_.clear();
    for (size_t i = 0; i < info.count(); ++i) {
        sockaddr_storage one{};
        memcpy(&one, info.at(i).ai_addr, std::min<size_t>(info.at(i).ai_addrlen, sizeof(one)));
        if (info.repeats(i)) continue;
        addresses_.push_back(one);
        if (!is_any_six(one)) continue;
        sockaddr_storage any_four{};
        any_four.ss_family = AF_INET;
        addresses_.push_back(any_four);
    }
}

bool Listeners::is_private(const timebubble::ListenRecord& record) const {
    if (port_map_.count(record.port)) return false;
    sockaddr_storage address{};
    address.ss_family = record.family;
    if (record.family == AF_INET6) {
        memcpy(&reinterpret_cast<sockaddr_in6&>(address).sin6_addr, record.address, sizeof(in6_addr));
    } else {
        memcpy(&reinterpret_cast<sockaddr_in&>(address).sin_addr, record.address, sizeof(in_addr));
    }
    return paxos::is_loopback(plain(address)) && !paxos::is_loopback(address_);
}

void Listeners::listen(const timebubble::ListenRecord& record) {
    if (is_private(record)) {
        spdlog::info(
            "the server's port {} is for its own host alone and is not served on {}; a port_map for it would",
            record.port, address_);
        return;
    }
    auto& slot = ports_[key_of(record)];
    if (!slot) {
        const auto mapped = port_map_.find(record.port);
        const uint16_t client_port = mapped == port_map_.end() ? record.port : mapped->second;
        slot.reset(new Port{*this, record.protocol != 0, record.port, client_port});
        slot->defer_accept_s = record.defer_accept_s;
    }
    slot->count(record, 1);
    note_change(*slot);
}

void Listeners::change(const timebubble::ListenRecord& record) {
    const auto found = ports_.find(key_of(record));
    if (found == ports_.end() || is_private(record)) return;
    found->second->defer_accept_s = record.defer_accept_s;
    for (const auto& socket : found->second->sockets) defer_accept(socket->fd, record.defer_accept_s);
}

void Listeners::unlisten(const timebubble::ListenRecord& record) {
    const auto found = ports_.find(key_of(record));
    if (found == ports_.end() || is_private(record)) return;
    found->second->count(record, -1);
    note_change(*found->second);
}

void Listeners::note_change(Port& port) {
    if (!port.changed) changed_.push_back({port.datagrams ? IPPROTO_UDP : 0, port.port});
    port.changed = true;
}

void Listeners::settle(const Key& key) {
    const auto found = ports_.find(key);
    if (found == ports_.end() || !found->second->changed) return;
    Port& port = *found->second;
    port.changed = false;
    const bool had_six = port.serves_six;
    port.serves_six = port.users_six > 0;
    if (port.users <= 0) {
        if (port.retry_event) spdlog::info("the server no longer listens on port {}", key.second);
        ports_.erase(found);
    } else if (!port.retry_event) {
        port.retry_event = evtimer_new(base_, &Listeners::on_retry, &port);
        try_open(port);
    } else if (port.serves_six && !had_six) {
        try_open(port);
    } else if (had_six && !port.serves_six) {
        std::erase_if(port.sockets, [](const auto& socket) { return is_six(socket->address); });
    }
}

void Listeners::end_turn() {
    for (const Key& key : changed_) settle(key);
    changed_.clear();
}

void Listeners::close_all() {
    ports_.clear();
    changed_.clear();
}

void Listeners::try_open(Port& port) {
    if (!port.retry_event) return;  // at the end of this turn
    if (addresses_.empty() && lookup_error_.empty()) {
        look_up();
        if (lookup_error_.empty()) return;
    }
    std::string error = lookup_error_;
    bool wanted = false;
    for (const sockaddr_storage& address : addresses_) {
        // An IPv6 client of a server that knows only IPv4 is refused by the kernel, as it would be there.
        if (is_six(address) && !port.serves_six) continue;
        wanted = true;
        open(port, address, error);
    }
    if (!wanted && error.empty())
        error = "client_address " + address_ + " has IPv6 addresses only, and the server listens on port " +
                std::to_string(port.port) + " with IPv4 only: give it an IPv4 address, or ::";
    if (!error.empty()) {
        if (error != port.error) spdlog::error("{} (tried again every second)", error);
        evtimer_add(port.retry_event, &kRetry);
    }
    port.error = error;
}

void Listeners::open(Port& port, const sockaddr_storage& address, std::string& error) {
    const auto is_open = [&](const auto& socket) { return is_same(socket->address, address); };
    if (std::any_of(port.sockets.begin(), port.sockets.end(), is_open)) return;
    std::string why;
    const int fd = open_listener(address, port.client_port, port.datagrams, why);
    if (fd < 0) {
        // A machine without IPv6 has no IPv6 clients.
        const bool without =
            is_six(address) && addresses_.size() > 1 && (errno == EAFNOSUPPORT || errno == EADDRNOTAVAIL);
        if (!without && error.empty()) error = why;
        return;
    }
    if (!port.datagrams) defer_accept(fd, port.defer_accept_s);
    auto& socket = port.sockets.emplace_back(new Socket{port, address, fd});
    const auto ready = port.datagrams ? &Listeners::on_datagrams : &Listeners::on_accept;
    socket->accept_event = event_new(base_, fd, EV_READ | EV_PERSIST, ready, socket.get());
    if (port.gate->held < kPlaces) event_add(socket->accept_event, nullptr);
    spdlog::info("clients reach the server's port {}{} at {}:{}", port.port, port.datagrams ? "/udp" : "",
                 paxos::to_text(plain(address)), port.client_port);
}

void Listeners::on_retry(int, short, void* port) {
    auto& self = *static_cast<Port*>(port);
    if (self.gate->held < kPlaces) self.accept_all(true);
    if (self.starved && monotonic_ns() - self.refused_ns < kCalmNs) {
        evtimer_add(self.retry_event, &kRetry);
        return;
    }
    self.fed();  // and an address that found no descriptor to be opened with has waited for this
    if (self.all.lookup_error_.empty()) {
        self.all.try_open(self);
    } else {
        self.all.look_up();
        evtimer_add(self.retry_event, &kRetry);
    }
}

void Listeners::on_accept(int, short, void* socket) {
    auto& self = *static_cast<Socket*>(socket);
    self.port.all.accept_some(self);
}

void Listeners::on_datagrams(int fd, short, void* socket) {
    auto& self = *static_cast<Socket*>(socket);
    self.port.all.readable_(fd, self.port.port);
}

int Listeners::datagram_socket(uint16_t port, uint16_t family, const uint8_t* address) {
    const auto found = ports_.find({IPPROTO_UDP, port});
    if (found == ports_.end()) return -1;
    // One that answers each client from a port of its own sends as soon as it has the port.
    const Port& wanted = *found->second;
    const bool to_open = !wanted.retry_event || (family == AF_INET6 && !wanted.serves_six);
    if (wanted.users > 0 && to_open) settle(found->first);
    int any = -1;
    for (const auto& socket : found->second->sockets) {
        if (socket->address.ss_family != family) continue;
        const bool six = is_six(socket->address);
        const void* own =
            six ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in6&>(socket->address).sin6_addr)
                : &reinterpret_cast<const sockaddr_in&>(socket->address).sin_addr;
        const size_t bytes = six ? sizeof(in6_addr) : sizeof(in_addr);
        static const uint8_t none[sizeof(in6_addr)] = {};
        if (memcmp(own, address, bytes) == 0) return socket->fd;
        if (memcmp(own, none, bytes) == 0) any = socket->fd;
    }
    return any;
}

void Listeners::accept_some(Socket& socket) {
    Port& port = socket.port;
    const std::shared_ptr<Gate> gate = port.gate;
    for (int i = 0; i < kAcceptsPerTurn; ++i) {
        if (gate->held == kPlaces) {
            port.accept_all(false);  // until a place is free
            return;
        }
        const int fd = accept4(socket.fd, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            ++gate->held;
            port.fed();
            accepted_(fd, port.port, Place(gate.get(), [gate](void*) { gate->release(); }));
            continue;
        }
        if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
            // Ten times a second it is tried again: said when it begins, and then once in a while.
            port.error = "cannot accept clients on port " + std::to_string(port.client_port) + ": " +
                         strerror(errno) + "; raise the limit of open files (ulimit -n)";
            const uint64_t now = monotonic_ns();
            if (port.said_ns == 0 || now - port.said_ns > kSayEveryNs) {
                spdlog::error("{}", port.error);
                port.said_ns = now;
            }
            port.starved = true;
            port.refused_ns = now;
            event_del(socket.accept_event);
            evtimer_add(port.retry_event, &kOutOfDescriptors);
        } else {
            port.fed();
        }
        return;
    }
}

size_t Listeners::sockets() const {
    size_t all = 0;
    for (const auto& [key, port] : ports_) all += port->sockets.size();
    return all;
}

std::vector<Listeners::State> Listeners::states() const {
    std::vector<State> out;
    for (const auto& [key, port] : ports_) {
        out.push_back({key.first, key.second, port->client_port, !port->sockets.empty(), port->error});
    }
    return out;
}

}  // namespace crane::proxy
