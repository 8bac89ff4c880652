#include "proxy/listeners.hpp"

#include <arpa/inet.h>
#include <errno.h>
#include <event2/event.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <spdlog/spdlog.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

namespace crane::proxy {

namespace {

constexpr int kBacklog = 4096;
constexpr int kAcceptsPerTurn = 64;
constexpr timeval kRetry{1, 0};
constexpr timeval kOutOfDescriptors{0, 100'000};

/// A listening socket, or -1 with `error` set.
int open_listener(const std::string& address, uint16_t port, std::string& error) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
    addrinfo* found = nullptr;
    const int failed = getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found);
    if (failed != 0) {
        error = "client_address " + address + ": " + gai_strerror(failed);
        return -1;
    }
    const int fd = socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    const int on = 1;
    if (fd >= 0) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    const bool listening =
        fd >= 0 && bind(fd, found->ai_addr, found->ai_addrlen) == 0 && ::listen(fd, kBacklog) == 0;
    if (!listening) {
        error = "cannot listen on " + address + ":" + std::to_string(port) + ": " + strerror(errno);
        if (errno == EADDRINUSE) error += "; stop what uses the port, or move it with [port_map]";
        if (errno == EACCES) error += "; ports below 1024 need root, or move it with [port_map]";
    }
    freeaddrinfo(found);
    if (listening) return fd;
    if (fd >= 0) close(fd);
    return -1;
}

/// A numeric address of this host alone.
bool is_loopback(const std::string& address) {
    in_addr four{};
    in6_addr six{};
    if (inet_pton(AF_INET, address.c_str(), &four) == 1) return ntohl(four.s_addr) >> 24 == 127;
    if (inet_pton(AF_INET6, address.c_str(), &six) != 1) return address == "localhost";
    return IN6_IS_ADDR_LOOPBACK(&six) || (IN6_IS_ADDR_V4MAPPED(&six) && six.s6_addr[12] == 127);
}

/// Where the server would leave a client that says nothing to its kernel, this machine's kernel keeps it.
void defer_accept(int fd, int seconds) {
    if (fd >= 0) setsockopt(fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, &seconds, sizeof(seconds));
}

}  // namespace

/// Outlives its port while clients hold places.
struct Listeners::Gate {
    Port* port;
    size_t held = 0;
    void release();
};

struct Listeners::Port {
    Listeners& all;
    uint16_t port;
    uint16_t client_port;
    int users = 0;  ///< sockets of the server that listen on it
    int fd = -1;
    event* accept_event = nullptr;
    event* retry_event = nullptr;
    std::string error = {};
    int defer_accept_s = 0;
    std::shared_ptr<Gate> gate = std::make_shared<Gate>(Gate{this});

    ~Port() {
        gate->port = nullptr;
        if (accept_event) event_free(accept_event);
        if (retry_event) event_free(retry_event);
        if (fd >= 0) close(fd);
    }
};

void Listeners::Gate::release() {
    const bool was_shut = held-- == kPlaces;
    if (was_shut && port && port->accept_event) event_add(port->accept_event, nullptr);
}

Listeners::Listeners(event_base* base, std::string address, std::map<uint16_t, uint16_t> port_map,
                     Accepted accepted)
    : base_(base),
      address_(std::move(address)),
      port_map_(std::move(port_map)),
      accepted_(std::move(accepted)) {}

Listeners::~Listeners() = default;

bool Listeners::is_private(const timebubble::ListenRecord& record) const {
    if (port_map_.count(record.port)) return false;
    char text[INET6_ADDRSTRLEN] = {};
    inet_ntop(record.family, record.address, text, sizeof(text));
    return is_loopback(text) && !is_loopback(address_);
}

void Listeners::listen(const timebubble::ListenRecord& record) {
    if (is_private(record)) {
        spdlog::info(
            "the server's port {} is for its own host alone and is not served on {}; a port_map for it would",
            record.port, address_);
        return;
    }
    auto& slot = ports_[record.port];
    if (!slot) {
        const auto mapped = port_map_.find(record.port);
        const uint16_t client_port = mapped == port_map_.end() ? record.port : mapped->second;
        slot.reset(new Port{*this, record.port, client_port});
        slot->retry_event = evtimer_new(base_, &Listeners::on_retry, slot.get());
        slot->defer_accept_s = record.defer_accept_s;
        try_open(*slot);
    }
    ++slot->users;
}

void Listeners::change(const timebubble::ListenRecord& record) {
    const auto found = ports_.find(record.port);
    if (found == ports_.end() || is_private(record)) return;
    found->second->defer_accept_s = record.defer_accept_s;
    defer_accept(found->second->fd, record.defer_accept_s);
}

void Listeners::unlisten(const timebubble::ListenRecord& record) {
    const auto found = ports_.find(record.port);
    if (found == ports_.end() || is_private(record) || --found->second->users > 0) return;
    spdlog::info("the server no longer listens on port {}", record.port);
    ports_.erase(found);
}

void Listeners::close_all() {
    ports_.clear();
}

void Listeners::try_open(Port& port) {
    std::string error;
    port.fd = open_listener(address_, port.client_port, error);
    if (port.fd < 0) {
        if (error != port.error) spdlog::error("{} (tried again every second)", error);
        port.error = error;
        evtimer_add(port.retry_event, &kRetry);
        return;
    }
    port.error.clear();
    defer_accept(port.fd, port.defer_accept_s);
    port.accept_event = event_new(base_, port.fd, EV_READ | EV_PERSIST, &Listeners::on_accept, &port);
    event_add(port.accept_event, nullptr);
    spdlog::info("clients of the server's port {} are served on {}:{}", port.port, address_,
                 port.client_port);
}

void Listeners::on_retry(int, short, void* port) {
    auto& self = *static_cast<Port*>(port);
    if (self.fd < 0) {
        self.all.try_open(self);
    } else {
        if (self.gate->held < kPlaces) event_add(self.accept_event, nullptr);
    }
}

void Listeners::on_accept(int, short, void* port) {
    auto& self = *static_cast<Port*>(port);
    self.all.accept_some(self);
}

void Listeners::accept_some(Port& port) {
    const std::shared_ptr<Gate> gate = port.gate;
    for (int i = 0; i < kAcceptsPerTurn; ++i) {
        if (gate->held == kPlaces) {
            event_del(port.accept_event);  // until a place is free
            return;
        }
        const int fd = accept4(port.fd, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            ++gate->held;
            accepted_(fd, port.port, Place(gate.get(), [gate](void*) { gate->release(); }));
            continue;
        }
        if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
            spdlog::warn("cannot accept a client on port {}: {}; raise the limit of open files",
                         port.client_port, strerror(errno));
            event_del(port.accept_event);
            evtimer_add(port.retry_event, &kOutOfDescriptors);
        }
        return;
    }
}

std::vector<Listeners::State> Listeners::states() const {
    std::vector<State> out;
    for (const auto& [number, port] : ports_) {
        out.push_back({number, port->client_port, port->fd >= 0, port->error});
    }
    return out;
}

}  // namespace crane::proxy
