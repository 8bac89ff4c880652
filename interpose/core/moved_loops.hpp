// Puts a loop that looks at memory where passing it meets no trap (loop_move.hpp): its copy into a stub, and
// a jump to that at its head.
#pragma once

#include <cstdint>

#include "interpose/core/function_table.hpp"

namespace crane::interpose {

/// Room for the copy is taken whatever comes of it, and also where the loop may not move now, which depends
/// on who was looked at when: where later mappings can lie is to be the same in all replicas.
///
/// `loop`: from the head to the jump that closes it, of which `opcode` was the first byte before it became a
/// trap. Nobody is in the midst of it. Returns where the trap stands that a further round meets; 0: the loop
/// stays as it is, since it cannot be moved or somebody may jump to behind its first byte.
uint64_t put_elsewhere(CodeRange loop, uint8_t opcode, bool may_move = true);

}  // namespace crane::interpose
