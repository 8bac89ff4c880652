// How a server wants silent clients to be found. Its own socket is nowhere on the network: craned's is.
#include <netinet/tcp.h>

#include "interpose/core/socket_table.hpp"
#include "interpose/core/sockets.hpp"

namespace crane::interpose {

namespace {

using timebubble::OutputKind;
using timebubble::ProbeRecord;

// Linux's own, for what nobody has set.
constexpr int kIdleSeconds = 7200, kIntervalSeconds = 75, kProbes = 9;
constexpr int kMostSeconds = 32767, kMostProbes = 127;

int set_within(uint32_t& field, int value, int most) {
    if (value < 1 || value > most) return -EINVAL;
    field = static_cast<uint32_t>(value);
    return 0;
}

int set_field(ProbeRecord& probes, int level, int name, int value) {
    if (level == SOL_SOCKET) return probes.keepalive = value != 0, 0;
    switch (name) {
        case TCP_KEEPIDLE:
            return set_within(probes.idle_s, value, kMostSeconds);
        case TCP_KEEPINTVL:
            return set_within(probes.interval_s, value, kMostSeconds);
        case TCP_KEEPCNT:
            return set_within(probes.probes, value, kMostProbes);
        default:
            if (value < 0) return -EINVAL;
            probes.user_timeout_ms = static_cast<uint32_t>(value);
            return 0;
    }
}

int or_default(uint32_t field, int otherwise) {
    return field ? static_cast<int>(field) : otherwise;
}

}  // namespace

bool is_probe_option(int level, int name) {
    if (level == SOL_SOCKET) return name == SO_KEEPALIVE;
    return level == IPPROTO_TCP &&
           (name == TCP_KEEPIDLE || name == TCP_KEEPINTVL || name == TCP_KEEPCNT || name == TCP_USER_TIMEOUT);
}

void tell_probes(const VirtualSocket& s) {
    emit(OutputKind::kProbes, s.connection, 0, &s.probes, sizeof(s.probes), false);
}

int socket_set_probe(uint32_t socket, int level, int name, int value) {
    VirtualSocket& s = socket_at(socket);
    ProbeRecord wanted = s.probes;
    const int rc = set_field(wanted, level, name, value);
    if (rc < 0 || wanted == s.probes) return rc;
    s.probes = wanted;
    if (s.connection) tell_probes(s);
    return 0;
}

int socket_get_probe(uint32_t socket, int level, int name) {
    const ProbeRecord& probes = socket_at(socket).probes;
    if (level == SOL_SOCKET) return static_cast<int>(probes.keepalive);
    switch (name) {
        case TCP_KEEPIDLE:
            return or_default(probes.idle_s, kIdleSeconds);
        case TCP_KEEPINTVL:
            return or_default(probes.interval_s, kIntervalSeconds);
        case TCP_KEEPCNT:
            return or_default(probes.probes, kProbes);
        default:
            return static_cast<int>(probes.user_timeout_ms);
    }
}

}  // namespace crane::interpose
