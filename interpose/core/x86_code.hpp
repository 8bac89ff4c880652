// What has to be known of x86-64 machine code to put a jump in the place of an instruction: which of those
// behind it may stand elsewhere, and whether anybody jumps into their midst. Pure.
//
// Rules:
//  - an instruction that is not known for certain is not moved: refusing costs time, and moving one wrongly
//    costs the server;
//  - what reaches memory relative to its own place reaches the same from the new one.
#pragma once

#include <cstddef>
#include <cstdint>

namespace crane::interpose {

constexpr size_t kMostMovedBytes = 32;

struct MovedCode {
    uint8_t bytes[kMostMovedBytes];
    size_t size = 0;
};

/// Length of the instruction at `code` if it may be moved, else 0. `relative`: where in it a displacement
/// from its own end stands, 0: it has none.
size_t movable_length(const uint8_t* code, size_t bytes, size_t& relative);

/// Moves instructions from `code`, which stands at `from`, to the address `to`: so many that they are `least`
/// bytes or more. False, if they cannot be moved.
bool move_code(const uint8_t* code, size_t bytes, uint64_t from, uint64_t to, size_t least, MovedCode& moved);

/// Whether some bytes of `code`, which stands at `address`, are a jump or call to a place in first..last.
/// What only looks like one counts as well; loop and jrcxz do not, which no compiler makes.
bool jumps_into(const uint8_t* code, size_t bytes, uint64_t address, uint64_t first, uint64_t last);

}  // namespace crane::interpose
