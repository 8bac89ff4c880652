// A new client: attached here, and served from here whoever leads.
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.hpp"
#include "proxy/datagram_socket.hpp"
#include "proxy/replica.hpp"

namespace crane::proxy {

namespace {

constexpr uint64_t kMaxWaitNs = 15ULL * 1'000'000'000;
/// A domain that is this many batches behind would let a client wait.
constexpr uint64_t kBehindBatches = 64;

}  // namespace

void Replica::on_accepted(int fd, uint16_t port, Listeners::Place place) {
    timebubble::ConnectPayload addresses;
    if (!socket_addresses(fd, port, addresses)) {
        close(fd);  // gone already
        return;
    }
    if (!client_limit_.admits(clients_descriptors(), monotonic_ns())) {
        const linger at_once{1, 0};  // a reset: whoever gets it tries another replica
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
        close(fd);
        return;
    }
    addresses.local_port = port;  // as the server knows itself, whatever port_map says
    ClientConnection* client = pool_.adopt(fd, addresses);
    client->hold(std::move(place));
    if (!serves()) {
        client->reset();
        return;
    }
    clients_.attach(client, addresses, monotonic_ns() + kMaxWaitNs);
}

void Replica::on_datagrams(int fd, uint16_t port) {
    receive_datagrams(fd, port, [this](std::string payload) { datagrams_.received(std::move(payload)); });
}

bool Replica::send_datagram(const timebubble::DatagramPayload& client, std::string_view bytes) {
    const int fd = listeners_.datagram_socket(client.port, client.family, client.local);
    return fd >= 0 && proxy::send_datagram(fd, client, bytes);
}

/// All that clients and the server can make this process have open, in whatever direction.
size_t Replica::clients_descriptors() const {
    return pool_.size() + (native_ ? native_->connections() : 0) + listeners_.sockets() + dialer_.dialing() +
           egress_datagrams_.size();
}

/// Then the primary's copy of the output is there sooner.
bool Replica::own_domain_is_behind() const {
    // A backup takes nothing any more when its disk is as good as full, and goes over to the copy before.
    const bool short_of_room = disk_.low() && sequencer_.leader() != config_.replica_id;
    if (domain_.state() != DomainState::kAttached || frozen_.frozen() || lacking_ || short_of_room)
        return true;
    const uint64_t admitted = history_.last() ? history_.last()->index : 0;
    return last_batch_index_ > admitted + kBehindBatches || delivery_paused_;
}

/// The own domain gets nothing of the log any more, or there is none.
bool Replica::own_domain_stands() const {
    const bool leads = sequencer_.leader() == config_.replica_id;
    // It is made anew after a pause, of minutes where it is lost again and again; or when a checkpoint has
    // come.
    const bool lost = domain_.state() == DomainState::kLost || lacking_;
    // Where nobody has room all wait.
    const uint64_t admitted = history_.last() ? history_.last()->index : 0;
    const bool full = disk_.critical() && standing_.others() > admitted;
    return lost || ((full || frozen_.frozen()) && !leads);
}

/// Where clients here get the output from. In the housekeeping, and before the log takes nothing any more:
/// what the primary has put out before it is asked for its copy is not in that.
void Replica::choose_output() {
    const bool leads = sequencer_.leader() == config_.replica_id;
    if (!leads && (own_domain_stands() || disk_.low() || image_.phase != ImagePhase::kNone)) {
        clients_.want_copies(true);
    } else if (leads || !own_domain_is_behind()) {
        clients_.want_copies(false);
    }
}

}  // namespace crane::proxy
