// Every open connection, as the decided sequence and this replica's own domain tell of it: what whoever
// becomes primary begins with, and what a checkpoint of a running server keeps. Plain values; DomainAccount
// keeps them.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "timebubble/limits.hpp"

namespace crane::proxy {

struct ConnectionState {
    uint64_t input = 0;                                   ///< bytes decided
    uint64_t sent = 0;                                    ///< bytes put out by this replica's domain
    uint64_t window_end = timebubble::kFirstWindowBytes;  ///< decided
    bool input_ended = false;
    bool output_ended = false;  ///< by this replica's domain
};

struct ConnectionTable {
    using Map = std::unordered_map<uint64_t, ConnectionState>;
    /// The highest number ever decided for a connection of each replica to each of the server's ports:
    /// connects to one port are decided in the order of their numbers, so what is not above it has come, and
    /// perhaps gone.
    using LastNumbers = std::map<std::pair<uint32_t, uint16_t>, uint64_t>;

    Map open;
    LastNumbers last_numbers;
};

/// The number that a payload of 8 bytes holds. False: it is not of that size.
inline bool read_number(std::string_view payload, uint64_t& number) {
    if (payload.size() != sizeof(number)) return false;
    memcpy(&number, payload.data(), sizeof(number));
    return true;
}

}  // namespace crane::proxy
