// What an instruction of x86-64 that only computes does: which registers it reads and writes, whether it
// reads memory, where it jumps. Pure.
//
// Rules:
//  - an instruction that writes memory, calls, returns, locks, or is of another kind than compilers put into
//    a loop that looks at memory, is not known here: whoever asks gives up on the code around it;
//  - writing a part of a register counts as writing all of it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace crane::interpose {

/// A set of registers, as the processor counts them; the flags are one more.
using RegisterSet = uint32_t;
constexpr size_t kRegisters = 17;
constexpr unsigned kFlags = 16;

enum class JumpKind : uint8_t { kNone, kAlways, kIf };

struct Effects {
    RegisterSet reads = 0;      ///< operands that are values
    RegisterSet addresses = 0;  ///< registers that a place in memory is reckoned from
    RegisterSet writes = 0;
    int32_t distance = 0;  ///< of a jump, from the end of the instruction
    uint8_t length = 0;
    bool reads_memory = false;
    bool on_stack = false;  ///< what it reads, by all appearances, is the thread's own
    bool near = false;      ///< what it reads lies within a page of the only register in `addresses`
    bool steps = false;     ///< adds one to the register that it writes, or takes one off
    bool clears = false;    ///< the register that it writes is 0 then
    bool copies = false;    ///< or is what the one is that it reads
    JumpKind jump = JumpKind::kNone;
};

/// False: not known, see above.
bool read_effects(const uint8_t* code, size_t bytes, Effects& out);

}  // namespace crane::interpose
