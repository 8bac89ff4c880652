// What the server asks of the outside, done by this replica while it leads.
#include <errno.h>
#include <spdlog/spdlog.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.hpp"
#include "proxy/replica.hpp"

namespace crane::proxy {

Egress::Ways Replica::egress_ways() {
    return {
        [this](uint64_t id, const timebubble::EgressRecord& to) {
            if (client_limit_.admits(clients_descriptors(), monotonic_ns())) {
                dialer_.dial(id, to);
            } else {
                egress_.failed(id, EADDRNOTAVAIL);
            }
        },
        [this](uint64_t id, const std::string& name) { dialer_.resolve(id, name); },
        [this](uint64_t id) { dialer_.give_up(id); },
        [](const std::string& what) { spdlog::warn("{}", what); },
    };
}

EgressDialer::Outcomes Replica::dial_outcomes() {
    return {
        [this](uint64_t id, int fd) { on_egress_connected(id, fd); },
        [this](uint64_t id, int error) { egress_.failed(id, error); },
        [this](uint64_t id, const std::string& answer) { egress_.resolved(id, answer); },
    };
}

void Replica::on_egress_connected(uint64_t id, int fd) {
    timebubble::ConnectPayload addresses;
    if (!socket_addresses(fd, 0, addresses)) {  // reset already
        close(fd);
        egress_.failed(id, ECONNRESET);
        return;
    }
    timebubble::ConnectedPayload call{0, addresses.family, addresses.local_port, {}};
    memcpy(call.local, addresses.local, sizeof(call.local));
    ClientConnection* const connection = pool_.adopt(fd, addresses);
    if (!egress_.connected(id, connection, call)) connection->reset();
}

/// True: it is let out, by whoever leads. What the server said before this replica led, the former primary
/// has sent or nobody.
bool Replica::send_outward(const timebubble::DatagramRecord& to, std::string_view bytes) {
    if (!config_.egress || !egress_allows(config_.egress_allow, to.family, to.peer, to.peer_port))
        return false;
    const uint64_t admitted = history_.last() ? history_.last()->index : 0;
    if (sequencer_.leads() && sequencer_.ready() && serves() && admitted > lead_index_)
        egress_datagrams_.send(to, bytes);
    return true;
}

/// The server has ended: nobody is to have more of it, or to hear from it.
void Replica::end_egress() {
    egress_.close_all();
    egress_datagrams_.close();
}

}  // namespace crane::proxy
