#include "interpose/core/x86_code.hpp"

#include <cstring>

namespace crane::interpose {

namespace {

/// What follows an opcode: a ModRM byte, and so many bytes of immediate.
struct Form {
    bool known = false;
    bool modrm = false;
    size_t immediate_bytes = 0;
};

int32_t read_int32(const uint8_t* at) {
    int32_t value = 0;
    std::memcpy(&value, at, sizeof(value));
    return value;
}

/// Arithmetic between register and memory, in the eight groups that the first opcodes are.
bool is_arithmetic(uint8_t opcode) {
    return opcode < 0x40 && ((opcode & 7) == 1 || (opcode & 7) == 3);
}

Form form_of(uint8_t opcode, bool wide, uint8_t modrm) {
    const uint8_t group = modrm >> 3 & 7;
    if (is_arithmetic(opcode)) return {true, true, 0};
    if (opcode < 0x40 && (opcode & 7) == 5) return {true, false, 4};
    if (opcode >= 0xb8 && opcode <= 0xbf) return {true, false, wide ? size_t{8} : size_t{4}};
    switch (opcode) {
        case 0x63:  // movslq
        case 0x85:  // test
        case 0x89:
        case 0x8b:  // mov
        case 0x8d:  // lea
        case 0xd1:
        case 0xd3:  // shifts
            return {true, true, 0};
        case 0x6b:
        case 0x83:
        case 0xc1:
            return {true, true, 1};
        case 0x69:
        case 0x81:
            return {true, true, 4};
        case 0xc7:
            return {group == 0, true, 4};
        case 0xa9:
            return {true, false, 4};
        case 0xf7:
            return {group != 1, true, group == 0 ? size_t{4} : size_t{0}};
        default:
            return {};
    }
}

Form two_byte_form_of(uint8_t opcode) {
    const bool extends = opcode == 0xb6 || opcode == 0xb7 || opcode == 0xbe || opcode == 0xbf;
    const bool moves_if = opcode >= 0x40 && opcode <= 0x4f;
    return {extends || moves_if || opcode == 0xaf || opcode == 0x1f, true, 0};
}

/// Bytes of ModRM, SIB and displacement. `relative`: the place in them of a displacement from the
/// instruction's end.
size_t operand_bytes(const uint8_t* code, size_t bytes, size_t& relative) {
    const uint8_t mod = code[0] >> 6, rm = code[0] & 7;
    if (mod == 3) return 1;
    size_t size = 1;
    if (rm == 4) {
        if (bytes < 2) return 0;
        ++size;
        if (mod == 0 && (code[1] & 7) == 5) size += 4;
    } else if (mod == 0 && rm == 5) {
        relative = 1;
        size += 4;
    }
    return size + (mod == 1 ? 1 : mod == 2 ? 4 : 0);
}

}  // namespace

size_t movable_length(const uint8_t* code, size_t bytes, size_t& relative) {
    relative = 0;
    size_t at = 0;
    bool wide = false;
    if (bytes > 0 && (code[0] & 0xf0) == 0x40) {
        wide = code[0] & 8;
        at = 1;
    }
    if (bytes < at + 3) return 0;
    const bool two_byte = code[at] == 0x0f;
    const Form form = two_byte ? two_byte_form_of(code[at + 1]) : form_of(code[at], wide, code[at + 1]);
    if (!form.known) return 0;
    at += two_byte ? 2 : 1;
    if (form.modrm) {
        if (at >= bytes) return 0;
        size_t place = 0;
        const size_t operand = operand_bytes(code + at, bytes - at, place);
        if (operand == 0) return 0;
        if (place != 0) relative = at + place;
        at += operand;
    }
    at += form.immediate_bytes;
    return at <= bytes ? at : 0;
}

bool move_code(const uint8_t* code, size_t bytes, uint64_t from, uint64_t to, size_t least,
               MovedCode& moved) {
    moved.size = 0;
    while (moved.size < least) {
        size_t relative = 0;
        const size_t at = moved.size;
        const size_t length = movable_length(code + at, bytes - at, relative);
        if (length == 0 || at + length > kMostMovedBytes) return false;
        std::memcpy(moved.bytes + at, code + at, length);
        if (relative != 0) {
            const int64_t distance = read_int32(code + at + relative) + static_cast<int64_t>(from - to);
            const auto fits = static_cast<int32_t>(distance);
            if (fits != distance) return false;
            std::memcpy(moved.bytes + at + relative, &fits, sizeof(fits));
        }
        moved.size += length;
    }
    return true;
}

bool jumps_into(const uint8_t* code, size_t bytes, uint64_t address, uint64_t first, uint64_t last) {
    constexpr uint64_t kShortReach = 130;
    const auto hits = [&](uint64_t target) { return target - first <= last - first; };
    for (size_t i = 0; i + 1 < bytes; ++i) {
        const uint64_t at = address + i;
        // All that a jump over 32 bits could be is looked at for where it goes first, which is the quicker
        // way.
        if (i + 5 <= bytes && hits(at + 5 + static_cast<uint64_t>(int64_t{read_int32(code + i + 1)}))) {
            const uint8_t opcode = code[i];
            // Of a jump on a condition the last byte of the opcode is 80 to 8f.
            const bool on_condition = (opcode & 0xf0) == 0x80 && i > 0 && code[i - 1] == 0x0f;
            if (opcode == 0xe8 || opcode == 0xe9 || on_condition) return true;
        }
        if (at + kShortReach < first || at > last + kShortReach) continue;
        // Of one that is a trap (pauses.hpp) the distance is in its place.
        const bool short_jump = code[i] == 0xeb || (code[i] & 0xf0) == 0x70 || code[i] == 0xcc;
        if (short_jump && hits(at + 2 + static_cast<uint64_t>(int64_t{static_cast<int8_t>(code[i + 1])})))
            return true;
    }
    return false;
}

}  // namespace crane::interpose
