// rdrand and rdseed: what stands for a trap in the place of one, and what it would have done. Pure.
#pragma once

#include <ucontext.h>

#include <cstddef>
#include <cstdint>

namespace crane::interpose {

struct RandomInstruction {
    uint8_t prefixes;  ///< bytes before the opcode
    uint8_t bytes;     ///< in all
    uint8_t target;    ///< register, as the processor counts them
    uint8_t size;      ///< of what it draws: 2, 4 or 8 bytes
};

constexpr uint8_t kRandomOpcode[] = {0x0f, 0xc7};

/// Reads one whose opcode is at `opcode`, with so many bytes before it that may be prefixes. False: it is
/// another instruction, or they are none.
bool read_random_instruction(const uint8_t* opcode, size_t prefixes, RandomInstruction& out);

/// What the processor does, with `value` for its own: the register, the flags, and on behind the instruction,
/// which is at `at`.
void give_random(const RandomInstruction& instruction, uint64_t at, uint64_t value, ucontext_t& context);

}  // namespace crane::interpose
