// Where a server may connect to: [egress] allow. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace crane::proxy {

/// ADDRESS, ADDRESS/BITS, either with :PORT; IPv6 with a port as [ADDRESS/BITS]:PORT.
struct EgressRule {
    uint16_t family = 0;
    uint16_t port = 0;  ///< 0: any
    unsigned bits = 0;
    uint8_t address[16] = {};  ///< network order

    bool covers(uint16_t of_family, const uint8_t* to, uint16_t to_port) const;
};

/// Nothing: it is no such rule.
std::optional<EgressRule> parse_egress_rule(std::string_view text);

/// Without rules every address is allowed.
bool egress_allows(const std::vector<EgressRule>& rules, uint16_t family, const uint8_t* to, uint16_t port);

}  // namespace crane::proxy
