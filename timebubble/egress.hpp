// Connections from the server to the outside: how they are numbered, and how many there may be.
//
// The domain numbers what it asks of the outside (a connection, a name's addresses) in the order of the
// schedule, so a number is the same on every replica. It names the server that asked, too: an answer that
// comes after the server's end is for nobody.
#pragma once

#include <cstdint>

namespace crane::timebubble {

constexpr unsigned kEgressNumberBits = 48;
constexpr uint64_t kEgressBit = uint64_t{1} << 63;
constexpr uint32_t kEgressGenerations = 0x8000;

/// Of the server number `generation`, the `number`-th. Unlike any client's connection.
constexpr uint64_t egress_id(uint64_t generation, uint64_t number) {
    return kEgressBit | generation % kEgressGenerations << kEgressNumberBits | number;
}
constexpr bool is_egress(uint64_t connection) {
    return (connection & kEgressBit) != 0;
}
constexpr uint64_t egress_number(uint64_t connection) {
    return connection & ((uint64_t{1} << kEgressNumberBits) - 1);
}
constexpr bool is_of_generation(uint64_t connection, uint64_t generation) {
    return egress_id(generation, egress_number(connection)) == connection;
}

/// At once, of one server: connections, from connect() to their last descriptor's end, and names asked for.
constexpr uint32_t kMaxEgress = 1024;
constexpr uint32_t kMaxQuestions = 64;
constexpr uint32_t kMaxNameBytes = 255;

}  // namespace crane::timebubble
