// The jumps of x86-64 to a place that the instruction names: how they are read, and whether they are taken.
// Pure.
#pragma once

#include <cstddef>
#include <cstdint>

namespace crane::interpose {

constexpr size_t kLongestJumpBytes = 6;

struct Jump {
    uint8_t condition;  ///< as the opcode of its short form says it
    uint8_t length;
    int32_t distance;  ///< from its end

    bool is_taken(uint64_t flags) const;
    bool goes_back() const { return distance + length <= 0; }
    uint64_t target(uint64_t at) const { return at + length + static_cast<uint64_t>(int64_t{distance}); }
};

/// False: what stands at `code` is none, or has prefixes.
bool read_jump(const uint8_t* code, size_t bytes, Jump& out);

/// Whether a jump with this opcode, that of a short one, is taken, with these flags of the processor.
bool is_taken(uint8_t opcode, uint64_t flags);

}  // namespace crane::interpose
