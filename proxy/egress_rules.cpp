#include "proxy/egress_rules.hpp"

#include <arpa/inet.h>
#include <sys/socket.h>

#include <algorithm>
#include <charconv>

namespace crane::proxy {

namespace {

/// The whole text as a number up to `most`.
std::optional<unsigned> number(std::string_view text, unsigned most) {
    unsigned out = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
    if (text.empty() || error != std::errc{} || end != text.data() + text.size() || out > most)
        return std::nullopt;
    return out;
}

/// ADDRESS or ADDRESS/BITS.
bool read_network(std::string_view text, EgressRule& rule) {
    const size_t slash = text.find('/');
    const std::string address(text.substr(0, slash));
    rule.family = address.find(':') == std::string::npos ? AF_INET : AF_INET6;
    if (inet_pton(rule.family, address.c_str(), rule.address) != 1) return false;
    const unsigned all = rule.family == AF_INET ? 32 : 128;
    const auto bits = slash == std::string_view::npos ? all : number(text.substr(slash + 1), all);
    if (!bits) return false;
    rule.bits = *bits;
    return true;
}

}  // namespace

bool EgressRule::covers(uint16_t of_family, const uint8_t* to, uint16_t to_port) const {
    if (of_family != family || (port != 0 && port != to_port)) return false;
    const unsigned whole = bits / 8, rest = bits % 8;
    if (!std::equal(address, address + whole, to)) return false;
    return rest == 0 || ((address[whole] ^ to[whole]) >> (8 - rest)) == 0;
}

std::optional<EgressRule> parse_egress_rule(std::string_view text) {
    EgressRule rule;
    std::string_view network = text, port;
    if (!text.empty() && text[0] == '[') {
        const size_t end = text.find(']');
        if (end == std::string_view::npos) return std::nullopt;
        network = text.substr(1, end - 1);
        port = text.substr(end + 1);
        if (network.find(':') == std::string_view::npos) return std::nullopt;
    } else if (std::count(text.begin(), text.end(), ':') == 1) {
        network = text.substr(0, text.find(':'));
        port = text.substr(text.find(':'));
    }
    if (!port.empty()) {
        const auto given = port[0] == ':' ? number(port.substr(1), 65535) : std::nullopt;
        if (!given || *given == 0) return std::nullopt;
        rule.port = static_cast<uint16_t>(*given);
    }
    if (!read_network(network, rule)) return std::nullopt;
    return rule;
}

bool egress_allows(const std::vector<EgressRule>& rules, uint16_t family, const uint8_t* to, uint16_t port) {
    return rules.empty() || std::any_of(rules.begin(), rules.end(),
                                        [&](const EgressRule& one) { return one.covers(family, to, port); });
}

}  // namespace crane::proxy
