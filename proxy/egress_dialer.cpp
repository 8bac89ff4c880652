#include "proxy/egress_dialer.hpp"

#include <errno.h>
#include <event2/event.h>
#include <netdb.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "paxos/link/lookup.hpp"

namespace crane::proxy {

using timebubble::ResolvedAddress;
using timebubble::ResolvedPayload;

namespace {

/// Each has a thread while it waits for a name server.
constexpr size_t kLookupsAtOnce = 16;

socklen_t to_sockaddr(const timebubble::EgressRecord& to, sockaddr_storage& out) {
    out = {};
    out.ss_family = to.family;
    if (to.family == AF_INET) {
        auto& in = reinterpret_cast<sockaddr_in&>(out);
        in.sin_port = htons(to.port);
        memcpy(&in.sin_addr, to.address, sizeof(in.sin_addr));
        return sizeof(in);
    }
    auto& in = reinterpret_cast<sockaddr_in6&>(out);
    in.sin6_port = htons(to.port);
    memcpy(&in.sin6_addr, to.address, sizeof(in.sin6_addr));
    return sizeof(in);
}

std::string answer(int error, const std::vector<ResolvedAddress>& addresses) {
    const ResolvedPayload head{error, static_cast<uint32_t>(addresses.size())};
    std::string out(reinterpret_cast<const char*>(&head), sizeof(head));
    for (const ResolvedAddress& one : addresses) out.append(reinterpret_cast<const char*>(&one), sizeof(one));
    return out;
}

/// False: not an address that a server is told of.
bool read_address(const addrinfo& info, ResolvedAddress& out) {
    out = {static_cast<uint16_t>(info.ai_family), 0, {}};
    if (info.ai_family == AF_INET) {
        memcpy(out.bytes, &reinterpret_cast<const sockaddr_in*>(info.ai_addr)->sin_addr, 4);
    } else if (info.ai_family == AF_INET6) {
        memcpy(out.bytes, &reinterpret_cast<const sockaddr_in6*>(info.ai_addr)->sin6_addr, 16);
    } else {
        return false;
    }
    return true;
}

}  // namespace

/// A socket that is being connected.
struct EgressDialer::Dial {
    EgressDialer& all;
    const uint64_t id;
    int fd;
    event* writable = nullptr;

    Dial(EgressDialer& owner, uint64_t number, int socket) : all(owner), id(number), fd(socket) {}
    ~Dial() {
        if (writable) event_free(writable);
        if (fd >= 0) close(fd);
    }
    Dial(const Dial&) = delete;
    Dial& operator=(const Dial&) = delete;
};

EgressDialer::EgressDialer(event_base* base, Outcomes outcomes)
    : base_(base), outcomes_(std::move(outcomes)) {}

EgressDialer::~EgressDialer() = default;

void EgressDialer::dial(uint64_t id, const timebubble::EgressRecord& to) {
    sockaddr_storage address;
    const socklen_t bytes = to_sockaddr(to, address);
    const int fd = socket(to.family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        outcomes_.failed(id, errno);
        return;
    }
    auto dial = std::make_unique<Dial>(*this, id, fd);
    if (connect(fd, reinterpret_cast<sockaddr*>(&address), bytes) != 0 && errno != EINPROGRESS) {
        outcomes_.failed(id, errno);
        return;
    }
    dial->writable = event_new(
        base_, fd, EV_WRITE,
        [](int, short, void* self) {
            static_cast<Dial*>(self)->all.on_writable(static_cast<Dial*>(self)->id);
        },
        dial.get());
    event_add(dial->writable, nullptr);
    dials_[id] = std::move(dial);
}

void EgressDialer::on_writable(uint64_t id) {
    const std::unique_ptr<Dial> dial = std::move(dials_.at(id));
    dials_.erase(id);
    int error = 0;
    socklen_t bytes = sizeof(error);
    if (getsockopt(dial->fd, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0) error = errno;
    if (error != 0) {
        outcomes_.failed(id, error);
        return;
    }
    event_free(std::exchange(dial->writable, nullptr));
    outcomes_.connected(id, std::exchange(dial->fd, -1));
}

void EgressDialer::give_up(uint64_t id) {
    dials_.erase(id);
    if (const auto found = lookups_.find(id); found != lookups_.end()) lookups_.erase(found);
    std::erase_if(waiting_, [id](const auto& one) { return one.first == id; });
    next_lookups();
}

// --- names

void EgressDialer::resolve(uint64_t id, const std::string& name) {
    done_.clear();
    waiting_.emplace_back(id, name);
    next_lookups();
}

void EgressDialer::next_lookups() {
    while (!waiting_.empty() && lookups_.size() < kLookupsAtOnce) {
        const auto [id, name] = std::move(waiting_.front());
        waiting_.pop_front();
        try {
            lookups_[id] = std::make_unique<paxos::Lookup>(
                base_, paxos::PeerAddress{0, name, 1},
                [this, id = id](const paxos::AddressInfo& info) { on_found(id, info); });
        } catch (const std::system_error&) {
            lookups_.erase(id);
            outcomes_.resolved(id, answer(EAI_AGAIN, {}));
        }
    }
}

void EgressDialer::on_found(uint64_t id, const paxos::AddressInfo& info) {
    done_.push_back(std::move(lookups_.at(id)));
    lookups_.erase(id);
    std::vector<ResolvedAddress> addresses;
    for (size_t i = 0; i < info.count() && addresses.size() < timebubble::kMaxResolved; ++i) {
        ResolvedAddress one;
        if (!info.repeats(i) && read_address(info.at(i), one)) addresses.push_back(one);
    }
    outcomes_.resolved(id, answer(info.code, addresses));
    next_lookups();
}

}  // namespace crane::proxy
