#include "proxy/client_connection.hpp"

#include <arpa/inet.h>
#include <errno.h>
#include <event2/buffer.h>
#include <event2/event.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/clock.hpp"

namespace crane::proxy {

namespace {

constexpr uint64_t kLingerNs = 10ULL * 1'000'000'000;
constexpr uint64_t kLookNs = 1'000'000'000;
constexpr int kReadRounds = 2;
constexpr uint32_t kKernelIdleSeconds = 7200;  // what a server gets that only turns keepalive on
constexpr size_t kReadBytes = 64 * 1024;

void set_option(int fd, int level, int name, int value) {
    setsockopt(fd, level, name, &value, sizeof(value));
}

bool same(const KeepAlive& one, const KeepAlive& other) {
    return one.idle_s == other.idle_s && one.interval_s == other.interval_s && one.probes == other.probes;
}

/// What is configured, and what the server has set goes before.
KeepAlive with(KeepAlive keepalive, const timebubble::ProbeRecord& wanted) {
    if (!wanted.keepalive) return keepalive;
    if (keepalive.idle_s == 0) keepalive.idle_s = kKernelIdleSeconds;
    if (wanted.idle_s) keepalive.idle_s = wanted.idle_s;
    if (wanted.interval_s) keepalive.interval_s = wanted.interval_s;
    if (wanted.probes) keepalive.probes = wanted.probes;
    return keepalive;
}

/// A client whose host or network is gone says nothing more, and would be kept for ever.
void probe_silence(int fd, const KeepAlive& keepalive) {
    set_option(fd, SOL_SOCKET, SO_KEEPALIVE, keepalive.idle_s != 0);
    if (keepalive.idle_s == 0) return;
    set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, static_cast<int>(keepalive.idle_s));
    set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, static_cast<int>(keepalive.interval_s));
    set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, static_cast<int>(keepalive.probes));
}

}  // namespace

void ClientConnection::probe(const timebubble::ProbeRecord& wanted) {
    // Servers set one after the other, for each client: no system call for what is so already.
    const timebubble::ProbeRecord before = std::exchange(probes_, wanted);
    const KeepAlive now = with(pool_.keepalive(), wanted);
    if (!same(now, with(pool_.keepalive(), before))) probe_silence(fd_, now);
    if (wanted.user_timeout_ms != before.user_timeout_ms)
        set_option(fd_, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(wanted.user_timeout_ms));
}

ClientConnection::ClientConnection(ClientPool& pool, uint64_t key, int fd,
                                   const timebubble::ConnectPayload& addresses)
    : pool_(pool),
      key_(key),
      fd_(fd),
      addresses_(addresses),
      read_event_(event_new(pool.base(), fd, EV_READ | EV_PERSIST, &ClientConnection::on_readable, this)),
      write_event_(event_new(pool.base(), fd, EV_WRITE | EV_PERSIST, &ClientConnection::on_writable, this)),
      output_(evbuffer_new()) {}

ClientConnection::~ClientConnection() {
    stop_lingering();
    event_free(read_event_);
    event_free(write_event_);
    evbuffer_free(output_);
    ::close(fd_);
}

void ClientConnection::on_readable(int, short, void* self) {
    static_cast<ClientConnection*>(self)->read_some();
}
void ClientConnection::on_writable(int, short, void* self) {
    static_cast<ClientConnection*>(self)->flush();
}

void ClientConnection::allow_input(bool allowed) {
    if (allowed) place_.reset();
    want_input(allowed);
}

void ClientConnection::want_input(bool wanted) {
    const bool want = wanted && !input_ended_ && !doomed_;
    if (want == reading_) return;
    reading_ = want;
    if (want) {
        event_add(read_event_, nullptr);
    } else {
        event_del(read_event_);
    }
}

void ClientConnection::read_some() {
    for (int round = 0; round < kReadRounds && reading_ && !doomed_; ++round) {
        const size_t most = user_ ? std::min<uint64_t>(kReadBytes, user_->input_room()) : kReadBytes;
        if (most == 0) {
            want_input(false);  // until its user has room again, and says so
            return;
        }
        const ssize_t got = ::recv(fd_, pool_.scratch_, most, 0);
        if (got > 0) {
            pool_.bytes_in_ += static_cast<uint64_t>(got);
            if (user_) user_->on_input({pool_.scratch_, static_cast<size_t>(got)});
            if (static_cast<size_t>(got) < most) return;
        } else if (got == 0) {
            input_ended_ = true;
            event_del(read_event_);
            reading_ = false;
            if (user_) {
                user_->on_input_end();
            } else if (closing_) {
                start_lingering();  // both ends are done: this frees it once flushed
            }
            return;
        } else {
            if (errno != EAGAIN && errno != EINTR) fail();
            return;
        }
    }
}

void ClientConnection::send(std::string_view bytes) {
    if (doomed_ || finish_wanted_) return;
    evbuffer_add(output_, bytes.data(), bytes.size());
    mark_dirty();
}

void ClientConnection::finish() {
    finish_wanted_ = true;
    mark_dirty();
}

void ClientConnection::close() {
    user_ = nullptr;
    closing_ = true;
    finish_wanted_ = true;
    mark_dirty();
}

void ClientConnection::reset() {
    user_ = nullptr;
    const linger abort{1, 0};
    setsockopt(fd_, SOL_SOCKET, SO_LINGER, &abort, sizeof(abort));
    doom();
}

void ClientConnection::mark_dirty() {
    if (dirty_ || doomed_) return;
    dirty_ = true;
    pool_.dirty_.push_back(key_);
}

void ClientConnection::flush() {
    if (doomed_) return;
    size_t taken = 0;
    while (evbuffer_get_length(output_) > 0) {
        const int wrote = evbuffer_write(output_, fd_);
        if (wrote > 0) {
            taken += static_cast<size_t>(wrote);
            continue;
        }
        if (wrote < 0 && errno != EAGAIN && errno != EINTR) {
            fail();
            return;
        }
        break;
    }
    if (taken != 0) {
        pool_.bytes_out_ += taken;
        if (linger_since_ns_ != 0) count_lingering();
        if (user_) user_->on_taken(taken);
    }
    if (doomed_) return;
    if (evbuffer_get_length(output_) > 0) {
        event_add(write_event_, nullptr);
        if (closing_) start_lingering();
    } else {
        event_del(write_event_);
        after_flush();
    }
}

void ClientConnection::after_flush() {
    if (finish_wanted_ && !finished_) {
        finished_ = true;
        ::shutdown(fd_, SHUT_WR);
    }
    if (closing_) start_lingering();
}

/// Closing at once would turn bytes the client still sends into an RST that destroys what it has not read
/// yet.
void ClientConnection::start_lingering() {
    if (finished_ && input_ended_) {
        doom();
        return;
    }
    place_.reset();
    if (linger_since_ns_ == 0) count_lingering();
    if (!doomed_) want_input(true);
}

/// Begins to linger, or goes on: its client has just taken something.
void ClientConnection::count_lingering() {
    stop_lingering();
    linger_since_ns_ = monotonic_ns();
    linger_bytes_ = evbuffer_get_length(output_);
    pool_.lingering_bytes_ += linger_bytes_;
    linger_place_ = pool_.lingering_.insert(pool_.lingering_.end(), this);
    while (pool_.lingering_bytes_ > pool_.lingering_limit_bytes_) pool_.lingering_.front()->reset();
}

void ClientConnection::stop_lingering() {
    if (linger_since_ns_ == 0) return;
    linger_since_ns_ = 0;
    pool_.lingering_bytes_ -= linger_bytes_;
    pool_.lingering_.erase(linger_place_);
}

void ClientConnection::fail() {
    EndpointUser* user = user_;
    user_ = nullptr;
    doom();
    if (user) user->on_gone();
}

void ClientConnection::doom() {
    if (doomed_) return;
    doomed_ = true;
    reading_ = false;
    place_.reset();
    stop_lingering();
    evbuffer_drain(output_, evbuffer_get_length(output_));
    event_del(read_event_);
    event_del(write_event_);
    pool_.doomed_.push_back(key_);
}

ClientConnection* ClientPool::adopt(int fd, const timebubble::ConnectPayload& addresses) {
    set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    probe_silence(fd, keepalive_);
    const uint64_t key = next_key_++;
    auto connection = std::make_unique<ClientConnection>(*this, key, fd, addresses);
    ClientConnection* raw = connection.get();
    all_.emplace(key, std::move(connection));
    return raw;
}

void ClientPool::end_turn() {
    for (size_t i = 0; i < dirty_.size(); ++i) {
        const auto found = all_.find(dirty_[i]);
        if (found == all_.end()) continue;
        found->second->dirty_ = false;
        found->second->flush();
    }
    dirty_.clear();
    for (size_t i = 0; i < doomed_.size(); ++i) all_.erase(doomed_[i]);
    doomed_.clear();
}

void ClientPool::fail_all() {
    for (auto& [key, connection] : all_)
        if (!connection->doomed_) connection->fail();
}

void ClientPool::reap(uint64_t now_ns) {
    while (!lingering_.empty() && lingering_.front()->linger_since_ns_ + kLingerNs < now_ns)
        lingering_.front()->reset();
    if (now_ns < next_look_ns_) return;
    next_look_ns_ = now_ns + kLookNs;
    look_for_gone();
}

/// The loop hears nothing of those that are neither read nor written to.
void ClientPool::look_for_gone() {
    std::vector<pollfd> sockets;
    std::vector<ClientConnection*> unheard;
    for (const auto& [key, one] : all_) {
        if (one->reading_ || one->doomed_ || evbuffer_get_length(one->output_) != 0) continue;
        sockets.push_back({one->fd_, 0, 0});
        unheard.push_back(one.get());
    }
    if (sockets.empty() || poll(sockets.data(), sockets.size(), 0) <= 0) return;
    for (size_t i = 0; i < sockets.size(); ++i)
        if ((sockets[i].revents & POLLERR) && !unheard[i]->doomed_) unheard[i]->fail();
}

namespace {

void put_address(const sockaddr_storage& from, uint8_t* address, uint16_t& port) {
    if (from.ss_family == AF_INET) {
        const auto& v4 = reinterpret_cast<const sockaddr_in&>(from);
        memcpy(address, &v4.sin_addr, 4);
        port = ntohs(v4.sin_port);
    } else if (from.ss_family == AF_INET6) {
        const auto& v6 = reinterpret_cast<const sockaddr_in6&>(from);
        memcpy(address, &v6.sin6_addr, 16);
        port = ntohs(v6.sin6_port);
    }
}

}  // namespace

bool socket_addresses(int fd, uint16_t listen_port, timebubble::ConnectPayload& out) {
    sockaddr_storage peer{};
    sockaddr_storage local{};
    socklen_t peer_bytes = sizeof(peer);
    socklen_t local_bytes = sizeof(local);
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &peer_bytes) != 0) return false;
    if (getsockname(fd, reinterpret_cast<sockaddr*>(&local), &local_bytes) != 0) return false;
    memset(&out, 0, sizeof(out));
    out.listen_port = listen_port;
    out.family = peer.ss_family;
    put_address(peer, out.peer, out.peer_port);
    put_address(local, out.local, out.local_port);
    return true;
}

std::string address_text(uint16_t family, const uint8_t* address, uint16_t port) {
    char text[INET6_ADDRSTRLEN] = "?";
    inet_ntop(family, address, text, sizeof(text));
    const bool v6 = family == AF_INET6;
    return (v6 ? "[" : "") + std::string(text) + (v6 ? "]:" : ":") + std::to_string(port);
}

}  // namespace crane::proxy
