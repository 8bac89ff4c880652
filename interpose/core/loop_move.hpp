// A loop that looks at memory (spin_loops.hpp), rewritten to stand elsewhere, so that only a round that is
// gone through once more meets its trap, and passing by costs nothing. Pure.
//
// Servers pass such code all the time: what a compiler makes of a `switch` in an endless loop is one, of a
// case that is none. A trap costs a hundred times what such a request may.
//
// The copy ends in a jump to behind the loop, and in one back to its head, where the trap stands (trap_at).
#pragma once

#include <cstddef>
#include <cstdint>

#include "interpose/core/function_table.hpp"

namespace crane::interpose {

constexpr size_t kMostLoopBytes = 128;

struct MovedLoop {
    uint8_t bytes[kMostLoopBytes];
    size_t size = 0;
    size_t trap_at = 0;  ///< of the jump back, in its long form
};

/// `loop`: from the head to the first byte of the jump that closes it, a short one with this opcode; the loop
/// is one that loop_closed_by() knows. `to`: where the copy is to stand. False: there is something in it that
/// cannot be moved, or it is too long.
bool move_loop(CodeRange loop, uint8_t opcode, uint64_t to, MovedLoop& moved);

}  // namespace crane::interpose
