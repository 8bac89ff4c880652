// Where a new client goes: served here, carried to the primary, or kept waiting until there is one.
#include <spdlog/spdlog.h>
#include <unistd.h>

#include "proxy/clock.hpp"
#include "proxy/replica.hpp"

namespace crane::proxy {

namespace {

constexpr size_t kMaxWaiting = 4096;
constexpr uint64_t kMaxWaitNs = 15ULL * 1'000'000'000;

}  // namespace

void Replica::on_accepted(int fd, uint16_t port, Listeners::Place place) {
    timebubble::ConnectPayload addresses;
    if (!socket_addresses(fd, port, addresses)) {
        close(fd);  // gone already
        return;
    }
    addresses.local_port = port;  // as the server knows itself, whatever port_map says
    ClientConnection* client = pool_.adopt(fd, addresses);
    client->hold(std::move(place));
    client->waits_until_ns = monotonic_ns() + kMaxWaitNs;
    route(client);
}

void Replica::route(ClientConnection* client) {
    if (stopping_ || server_ended_) {  // NOLINT(bugprone-branch-clone): the order of the questions matters
        client->reset();
    } else if (sessions_.leading()) {
        sessions_.open(client, client->addresses());
    } else if (const uint32_t primary = sequencer_.leader();
               primary != 0 && primary != config_.replica_id && peers_up_.count(primary)) {
        relay_.forward(client, primary, sequencer_.view());
    } else if (waiting_.size() >= kMaxWaiting || monotonic_ns() > client->waits_until_ns) {
        client->reset();
    } else {
        waiting_.push_back(client);
    }
}

void Replica::route_waiting() {
    std::deque<ClientConnection*> again = std::move(waiting_);
    waiting_.clear();
    for (ClientConnection* client : again) {
        if (monotonic_ns() > client->waits_until_ns) {
            client->reset();
        } else {
            route(client);
        }
    }
}

}  // namespace crane::proxy
