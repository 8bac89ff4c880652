// Where in memory an instruction of x86-64 writes, as the registers are before it. Pure.
//
// Rules:
//  - whoever asks keeps what is there, to compare it later: a place that is only read, or larger than what is
//    written, does no harm, one that is missed does;
//  - an instruction that does more than compute (a system call, a trap, what the processor draws or counts),
//    or whose writes are not known for certain, is not known here.
#pragma once

#include <cstddef>
#include <cstdint>

namespace crane::interpose {

constexpr size_t kGeneralRegisters = 16;
constexpr unsigned kStackRegister = 4;

/// In the order in which the processor counts them.
struct Registers {
    uint64_t general[kGeneralRegisters];
    uint64_t instruction;
    uint64_t flags;

    uint64_t stack() const { return general[kStackRegister]; }
};

struct Written {
    uint64_t at = 0;
    uint32_t bytes = 0;  ///< 0: nothing is
};

/// `thread_base`: of the segment fs. False: not known, see above.
bool find_written(const uint8_t* code, size_t bytes, const Registers& registers, uint64_t thread_base,
                  Written& out);

}  // namespace crane::interpose
