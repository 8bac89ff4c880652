#include "paxos/link/strangers.hpp"

#include <netinet/in.h>

#include <algorithm>
#include <cstring>
#include <map>

namespace crane::paxos {

uint64_t source_of(const sockaddr* address) {
    if (address->sa_family == AF_INET) return reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr;
    if (address->sa_family != AF_INET6) return 0;
    const in6_addr& six = reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
    if (IN6_IS_ADDR_V4MAPPED(&six)) {
        uint32_t four = 0;
        std::memcpy(&four, &six.s6_addr[12], sizeof four);
        return four;
    }
    uint64_t network = 0;
    std::memcpy(&network, &six, sizeof network);
    return network;
}

size_t one_too_many(const std::vector<uint64_t>& sources, uint64_t lot) {
    std::map<uint64_t, size_t> counts;
    for (const uint64_t source : sources) ++counts[source];
    size_t most = 0;
    for (const auto& [source, count] : counts) most = std::max(most, count);
    std::vector<size_t> places;
    for (size_t i = 0; i < sources.size(); ++i)
        if (counts[sources[i]] == most) places.push_back(i);
    return places[lot % places.size()];
}

}  // namespace crane::paxos
