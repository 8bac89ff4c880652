// The addresses that a server has beside the loopback ones, the same on all hosts: where its clients come to
// is different on each. What listens at one of them alone is meant for clients of the cluster. The operator
// says which (those that clients come to, say), or they are two that stand for all. One of each family, since
// libc's look-ups leave out the family that has none: the one that is set aside for what needs an address and
// has none (RFC 7600), and one that nobody is reached at (RFC 6666).
#pragma once

#include <arpa/inet.h>
#include <sys/socket.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace crane {

constexpr size_t kMaxOwnAddresses = 16;

/// Plain, so that it can lie in memory that processes share.
struct OwnAddress {
    uint16_t family;  ///< AF_INET or AF_INET6
    uint16_t prefix;  ///< bits of its network
    uint8_t bytes[16];

    size_t size() const { return family == AF_INET ? 4 : 16; }
    /// The one `bytes` of that family.
    bool is(uint16_t other, const uint8_t* there) const {
        return other == family && std::memcmp(bytes, there, size()) == 0;
    }
};

/// Where the operator names none of that family.
constexpr OwnAddress kUsualAddress{AF_INET, 24, {192, 0, 0, 8}};
constexpr OwnAddress kUsualAddressSix{AF_INET6, 128, {1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8}};

/// All of a server's: at least one of each family.
struct OwnAddresses {
    uint32_t count;
    OwnAddress list[kMaxOwnAddresses + 2];

    /// The first of that family; nothing: there is none.
    const OwnAddress* first(uint16_t family) const {
        const OwnAddress* found = std::find_if(
            list, list + count, [family](const OwnAddress& own) { return own.family == family; });
        return found == list + count ? nullptr : found;
    }
    bool has(uint16_t family, const uint8_t* bytes) const {
        return std::any_of(list, list + count, [&](const OwnAddress& own) { return own.is(family, bytes); });
    }
    void add(const OwnAddress& own) { list[count++] = own; }
};

constexpr OwnAddresses kUsualAddresses{2, {kUsualAddress, kUsualAddressSix}};

/// "10.0.0.5/24", "2001:db8::5/64": nothing for what is none, or what no host has as its own beside loopback.
inline std::optional<OwnAddress> parse_own_address(std::string_view text) {
    const size_t slash = text.find('/');
    if (slash == std::string_view::npos) return std::nullopt;
    const std::string host(text.substr(0, slash));
    const std::string_view bits = text.substr(slash + 1);
    OwnAddress own{};
    own.family = host.find(':') == std::string::npos ? AF_INET : AF_INET6;
    if (::inet_pton(own.family, host.c_str(), own.bytes) != 1) return std::nullopt;
    const auto end = std::from_chars(bits.data(), bits.data() + bits.size(), own.prefix);
    const bool whole = end.ec == std::errc{} && end.ptr == bits.data() + bits.size();
    if (!whole || own.prefix < 1 || own.prefix > own.size() * 8) return std::nullopt;
    static constexpr uint8_t kNone[16] = {};
    static constexpr uint8_t kLoopbackSix[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
    static constexpr uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    if (own.family == AF_INET && (own.bytes[0] == 0 || own.bytes[0] == 127 || own.bytes[0] >= 224))
        return std::nullopt;
    if (own.family == AF_INET6 &&
        (own.is(AF_INET6, kNone) || own.is(AF_INET6, kLoopbackSix) || own.bytes[0] == 0xff ||
         std::equal(std::begin(kMapped), std::end(kMapped), own.bytes)))
        return std::nullopt;
    return own;
}

/// As the operator names them, which parse_own_address() has understood; more than kMaxOwnAddresses are left
/// out.
inline OwnAddresses own_addresses_of(const std::vector<std::string>& given) {
    OwnAddresses all{};
    for (const std::string& text : given) {
        const auto own = parse_own_address(text);
        if (own && all.count < kMaxOwnAddresses) all.add(*own);
    }
    if (!all.first(AF_INET)) all.add(kUsualAddress);
    if (!all.first(AF_INET6)) all.add(kUsualAddressSix);
    return all;
}

}  // namespace crane
