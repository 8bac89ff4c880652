#include "interpose/core/jumps.hpp"

#include <cstring>

namespace crane::interpose {

namespace {

constexpr uint8_t kAlways = 0xeb;

constexpr bool is_condition(uint8_t opcode, uint8_t first) {
    return (opcode & 0xf0) == first;
}

int32_t far_distance(const uint8_t* at) {
    int32_t distance = 0;
    memcpy(&distance, at, sizeof(distance));
    return distance;
}

}  // namespace

bool Jump::is_taken(uint64_t flags) const {
    return interpose::is_taken(condition, flags);
}

bool read_jump(const uint8_t* code, size_t bytes, Jump& out) {
    if (bytes >= 2 && (code[0] == kAlways || is_condition(code[0], 0x70))) {
        out = {code[0], 2, static_cast<int8_t>(code[1])};
    } else if (bytes >= 5 && code[0] == 0xe9) {
        out = {kAlways, 5, far_distance(code + 1)};
    } else if (bytes >= 6 && code[0] == 0x0f && is_condition(code[1], 0x80)) {
        out = {static_cast<uint8_t>(code[1] - 0x10), 6, far_distance(code + 2)};
    } else {
        return false;
    }
    return true;
}

bool is_taken(uint8_t opcode, uint64_t flags) {
    if (opcode == kAlways) return true;
    const bool carry = flags & 0x1, parity = flags & 0x4, zero = flags & 0x40, sign = flags & 0x80,
               overflow = flags & 0x800;
    const bool holds[] = {
        overflow, carry, zero, carry || zero, sign, parity, sign != overflow, zero || sign != overflow};
    // An odd condition is the opposite of the one before it.
    return holds[opcode >> 1 & 7] != ((opcode & 1) != 0);
}

}  // namespace crane::interpose
