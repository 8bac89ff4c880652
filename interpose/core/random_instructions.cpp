#include "interpose/core/random_instructions.hpp"

#include <cstring>

namespace crane::interpose {

namespace {

constexpr uint8_t kOperandSize = 0x66;
constexpr uint8_t kRexW = 8, kRexB = 1;
constexpr greg_t kCarry = 1, kArithmeticFlags = 0x8d5;

bool is_rex(uint8_t byte) {
    return (byte & 0xf0) == 0x40;
}

}  // namespace

bool read_random_instruction(const uint8_t* opcode, size_t prefixes, RandomInstruction& out) {
    const uint8_t target = opcode[2];
    if (memcmp(opcode, kRandomOpcode, sizeof(kRandomOpcode)) != 0 || target < 0xf0) return false;
    if (prefixes > 2) return false;
    const uint8_t* const first = opcode - prefixes;
    const uint8_t rex = prefixes != 0 && is_rex(opcode[-1]) ? opcode[-1] : 0;
    const bool narrow = prefixes != 0 && first[0] == kOperandSize;
    if (prefixes != static_cast<size_t>(rex != 0) + narrow) return false;
    out.prefixes = static_cast<uint8_t>(prefixes);
    out.bytes = static_cast<uint8_t>(prefixes + 3);
    out.target = static_cast<uint8_t>((target & 7) | (rex & kRexB ? 8 : 0));
    out.size = rex & kRexW ? 8 : narrow ? 2 : 4;
    return true;
}

void give_random(const RandomInstruction& instruction, uint64_t at, uint64_t value, ucontext_t& context) {
    constexpr int kRegisters[] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                                  REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
    greg_t* registers = context.uc_mcontext.gregs;
    greg_t& target = registers[kRegisters[instruction.target]];
    const auto old = static_cast<uint64_t>(target);
    if (instruction.size == 2) value = (old & ~uint64_t{0xffff}) | (value & 0xffff);
    if (instruction.size == 4) value &= 0xffff'ffff;
    target = static_cast<greg_t>(value);
    registers[REG_EFL] = (registers[REG_EFL] & ~kArithmeticFlags) | kCarry;
    const uint64_t next = at + instruction.bytes;
    registers[REG_RIP] = static_cast<greg_t>(next);
}

}  // namespace crane::interpose
