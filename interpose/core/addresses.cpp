#include "interpose/core/addresses.hpp"

#include <netinet/in.h>

#include <cerrno>
#include <cstring>

#include "interpose/core/own_addresses.hpp"
#include "interpose/core/user_memory.hpp"

namespace crane::interpose {

namespace {

constexpr uint8_t kMappedPrefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

}  // namespace

int address_from_sockaddr(const sockaddr* given, socklen_t length, Address& out) {
    if (length < sizeof(sa_family_t)) return -EINVAL;
    out = {given->sa_family, 0, {}};
    if (given->sa_family == AF_INET && length >= sizeof(sockaddr_in)) {
        const auto* in = reinterpret_cast<const sockaddr_in*>(given);
        out.port = ntohs(in->sin_port);
        std::memcpy(out.bytes, &in->sin_addr, 4);
        return 0;
    }
    if (given->sa_family == AF_INET6 && length >= sizeof(sockaddr_in6)) {
        const auto* in = reinterpret_cast<const sockaddr_in6*>(given);
        out.port = ntohs(in->sin6_port);
        std::memcpy(out.bytes, &in->sin6_addr, 16);
        return 0;
    }
    return given->sa_family == AF_INET || given->sa_family == AF_INET6 ? -EINVAL : -EAFNOSUPPORT;
}

int address_to_sockaddr(const Address& address, sockaddr* out, socklen_t* length) {
    socklen_t room;
    if (!fetch(room, length)) return -EFAULT;
    if (static_cast<int>(room) < 0) return -EINVAL;
    sockaddr_in6 six{};
    sockaddr_in four{};
    const void* from = &four;
    socklen_t size = sizeof(four);
    if (address.family == AF_INET6) {
        six.sin6_family = AF_INET6;
        six.sin6_port = htons(address.port);
        std::memcpy(&six.sin6_addr, address.bytes, 16);
        from = &six;
        size = sizeof(six);
    } else {
        four.sin_family = AF_INET;
        four.sin_port = htons(address.port);
        std::memcpy(&four.sin_addr, address.bytes, 4);
    }
    if (crane_copy(out, from, room < size ? room : size) != 0 || !store(length, size)) return -EFAULT;
    return 0;
}

Address plain(const Address& address) {
    if (address.family != AF_INET6 || std::memcmp(address.bytes, kMappedPrefix, sizeof(kMappedPrefix)) != 0)
        return address;
    Address four{AF_INET, address.port, {}};
    std::memcpy(four.bytes, address.bytes + sizeof(kMappedPrefix), 4);
    return four;
}

Address as_family(const Address& address, uint16_t family) {
    if (family != AF_INET6 || address.family != AF_INET) return address;
    Address mapped{AF_INET6, address.port, {}};
    std::memcpy(mapped.bytes, kMappedPrefix, sizeof(kMappedPrefix));
    std::memcpy(mapped.bytes + sizeof(kMappedPrefix), address.bytes, 4);
    return mapped;
}

bool is_any(const Address& address) {
    static const uint8_t any[16] = {};
    return std::memcmp(address.bytes, any, sizeof(any)) == 0;
}

bool is_loopback(const Address& address) {
    if (address.family == AF_INET) return address.bytes[0] == 127;
    static const uint8_t loopback[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
    return std::memcmp(address.bytes, loopback, sizeof(loopback)) == 0;
}

bool is_here(const Address& address) {
    if (is_loopback(address)) return true;
    return own_addresses().has(address.family, address.bytes);
}

Address near_to(const Address& here) {
    if (is_loopback(here)) return loopback_of(here.family);
    Address address = here;
    address.port = 0;
    return address;
}

bool is_group(const Address& address) {
    return address.family == AF_INET6 ? address.bytes[0] == 0xff : (address.bytes[0] & 0xf0) == 0xe0;
}

bool is_for_many(const Address& address) {
    static const uint8_t broadcast[4] = {0xff, 0xff, 0xff, 0xff};
    return is_group(address) ||
           (address.family == AF_INET && std::memcmp(address.bytes, broadcast, sizeof(broadcast)) == 0);
}

Address own_address_of(uint16_t family, uint16_t port) {
    Address address{family, port, {}};
    if (const OwnAddress* own = own_addresses().first(family))
        std::memcpy(address.bytes, own->bytes, own->size());
    return address;
}

Address loopback_of(uint16_t family) {
    Address address{family, 0, {}};
    if (family == AF_INET) address.bytes[0] = 127;
    address.bytes[family == AF_INET ? 3 : 15] = 1;
    return address;
}

bool same_host(const Address& one, const Address& other) {
    return one.family == other.family && std::memcmp(one.bytes, other.bytes, sizeof(one.bytes)) == 0;
}

uint16_t next_free_port() {
    return static_cast<uint16_t>(49152 + domain().next_port++ % kFreePorts);
}

}  // namespace crane::interpose
