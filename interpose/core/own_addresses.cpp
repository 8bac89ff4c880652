#include "interpose/core/own_addresses.hpp"

#include <algorithm>
#include <cstring>

#include "interpose/core/addresses.hpp"

namespace crane::interpose {
namespace {

/// A network of IPv4.
struct Route {
    uint32_t network, mask;  ///< host order
    bool operator==(const Route&) const = default;
};

constexpr char kBigDigits[] = "0123456789ABCDEF", kSmallDigits[] = "0123456789abcdef";

template <size_t kDigits>
void write_hex(Text& out, uint32_t number, const char* digits) {
    char text[kDigits + 1] = {};
    for (size_t i = kDigits; i-- > 0; number >>= 4) text[i] = digits[number & 15];
    out << static_cast<const char*>(text);
}

/// The kernel shows the bytes of an address as its processor reads them.
uint32_t as_shown(uint32_t host_order) {
    return htonl(host_order);
}

}  // namespace

int interface_of(const Address& address) {
    const Address reached = plain(address);
    const bool outer = reached.family == AF_INET && own_addresses().has(AF_INET, reached.bytes);
    return outer ? kOuterInterface : kLoopbackInterface;
}

void write_routes(Text& out) {
    const OwnAddresses& own = own_addresses();
    Route routes[std::size(own.list)];
    Route* end = routes;
    for (uint32_t i = 0; i < own.count; ++i) {
        const OwnAddress& one = own.list[i];
        if (one.family != AF_INET || one.prefix == 32) continue;
        uint32_t address = 0;
        std::memcpy(&address, one.bytes, sizeof(address));
        const uint32_t mask = UINT32_MAX << (32 - one.prefix);
        const Route route{ntohl(address) & mask, mask};
        if (std::find(routes, end, route) == end) *end++ = route;
    }
    // By what they are of, and the narrower first.
    std::sort(routes, end, [](const Route& a, const Route& b) {
        return a.network != b.network ? a.network < b.network : a.mask > b.mask;
    });
    out << "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n";
    for (const Route* route = routes; route != end; ++route) {
        out << "eth0\t";
        write_hex<8>(out, as_shown(route->network), kBigDigits);
        out << "\t00000000\t0001\t0\t0\t0\t";
        write_hex<8>(out, as_shown(route->mask), kBigDigits);
        out << "\t0\t0\t0\n";
    }
}

void write_interfaces_six(Text& out) {
    out << "00000000000000000000000000000001 01 80 10 80       lo\n";
    const OwnAddresses& own = own_addresses();
    for (uint32_t i = 0; i < own.count; ++i) {
        if (own.list[i].family != AF_INET6) continue;
        for (const uint8_t byte : own.list[i].bytes) write_hex<2>(out, byte, kSmallDigits);
        out << " 01 80 00 80       lo\n";
    }
}

}  // namespace crane::interpose
