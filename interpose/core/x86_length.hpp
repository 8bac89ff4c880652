// How long an instruction of x86-64 is: what one needs to walk through a function from its first byte. Pure.
//
// Rules:
//  - what is no instruction in 64-bit mode, or not known, has length 0: whoever walks stops there;
//  - every encoding is known that compilers and assemblers make for the processors of today (VEX, EVEX).
#pragma once

#include <cstddef>
#include <cstdint>

namespace crane::interpose {

constexpr size_t kLongestInstructionBytes = 15;

/// What an instruction consists of.
struct InstructionParts {
    enum class Form : uint8_t { kLegacy, kVex, kEvex };
    Form form = Form::kLegacy;
    uint8_t map = 0;  ///< of its opcode: 0: one byte, 1: behind 0f, 2: behind 0f 38, 3: behind 0f 3a, …
    uint8_t opcode = 0;
    uint8_t opcode_at = 0;
    uint8_t operand_at = 0;  ///< of ModRM; 0: it has none
    bool locks = false, repeats = false, short_operands = false, short_addresses = false;
    uint8_t segment = 0;      ///< prefix 64 (fs) or 65 (gs)
    bool wide = false;        ///< REX.W
    bool high_index = false;  ///< REX.X
    bool high_base = false;   ///< REX.B
};

/// The instruction's length, as below, and what it consists of.
size_t read_instruction(const uint8_t* code, size_t bytes, InstructionParts& out);

/// Length of the instruction at `code`, of which there are `bytes` bytes; 0: none that is known.
size_t instruction_length(const uint8_t* code, size_t bytes);

/// Whether walking from `begin`, instruction by instruction, comes exactly to `at`.
bool walk_reaches(const uint8_t* begin, const uint8_t* at);

}  // namespace crane::interpose
