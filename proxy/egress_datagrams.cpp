#include "proxy/egress_datagrams.hpp"

#include <event2/event.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

#include "base/clock.hpp"
#include "proxy/datagram_socket.hpp"

namespace crane::proxy {

namespace {

constexpr uint64_t kIdleNs = 60ULL * 1'000'000'000;

}  // namespace

struct EgressDatagrams::Socket {
    EgressDatagrams& all;
    const uint16_t port;  ///< the server's
    const int fd;
    event* readable;
    uint64_t used_ns = 0;

    Socket(EgressDatagrams& owner, const Key& key, int socket)
        : all(owner),
          port(key.first),
          fd(socket),
          readable(event_new(
              owner.base_, socket, EV_READ | EV_PERSIST,
              [](int, short, void* self) {
                  auto& one = *static_cast<Socket*>(self);
                  receive_datagrams(one.fd, one.port, one.all.received_);
              },
              this)) {
        event_add(readable, nullptr);
    }
    ~Socket() {
        event_free(readable);
        ::close(fd);
    }
    Socket(const Socket&) = delete;
    Socket& operator=(const Socket&) = delete;
};

EgressDatagrams::EgressDatagrams(event_base* base, std::function<void(std::string payload)> received)
    : base_(base), received_(std::move(received)) {}

EgressDatagrams::~EgressDatagrams() = default;

EgressDatagrams::Socket* EgressDatagrams::socket_for(const Key& key) {
    if (const auto found = sockets_.find(key); found != sockets_.end()) return found->second.get();
    const int fd = socket(key.second, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return nullptr;
    prepare_datagram_socket(fd, key.second);
    sockaddr_storage any{};
    any.ss_family = key.second;
    if (bind(fd, reinterpret_cast<sockaddr*>(&any), sizeof(any)) != 0) {
        ::close(fd);
        return nullptr;
    }
    if (sockets_.size() >= kMostSockets) drop_oldest();
    return (sockets_[key] = std::make_unique<Socket>(*this, key, fd)).get();
}

void EgressDatagrams::drop_oldest() {
    sockets_.erase(std::min_element(sockets_.begin(), sockets_.end(), [](const auto& one, const auto& other) {
        return one.second->used_ns < other.second->used_ns;
    }));
}

bool EgressDatagrams::send(const timebubble::DatagramRecord& to, std::string_view bytes) {
    Socket* const from = socket_for({to.port, to.family});
    if (!from) return false;
    from->used_ns = monotonic_ns();
    timebubble::DatagramPayload peer{};
    peer.family = to.family;
    peer.peer_port = to.peer_port;
    memcpy(peer.peer, to.peer, sizeof(peer.peer));
    return send_datagram(from->fd, peer, bytes);
}

void EgressDatagrams::close(uint16_t port) {
    std::erase_if(sockets_, [port](const auto& one) { return port == 0 || one.first.first == port; });
}

void EgressDatagrams::reap(uint64_t now_ns) {
    std::erase_if(sockets_, [now_ns](const auto& one) { return one.second->used_ns + kIdleNs < now_ns; });
}

}  // namespace crane::proxy
