#include "interpose/core/frame_state.hpp"

#include <cstring>

namespace crane::interpose {

Registers registers_of(const ucontext_t& context) {
    constexpr int kOrder[kGeneralRegisters] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                                               REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                                               REG_R12, REG_R13, REG_R14, REG_R15};
    const greg_t* const all = context.uc_mcontext.gregs;
    Registers found{};
    for (size_t i = 0; i < kGeneralRegisters; ++i) found.general[i] = static_cast<uint64_t>(all[kOrder[i]]);
    found.instruction = static_cast<uint64_t>(all[REG_RIP]);
    found.flags = static_cast<uint64_t>(all[REG_EFL]);
    return found;
}

/// The kernel says behind the oldest part how large the whole is.
VectorState vectors_of(const ucontext_t& context) {
    constexpr size_t kOldestBytes = 512, kWordsAt = 464;
    constexpr uint32_t kMore = 0x46505853;
    const auto* const at = reinterpret_cast<const uint8_t*>(context.uc_mcontext.fpregs);
    struct {
        uint32_t magic, with_end;
        uint64_t features;
        uint32_t bytes;
    } words;
    memcpy(&words, at + kWordsAt, sizeof(words));
    return {at, words.magic == kMore ? words.bytes : kOldestBytes};
}

uint64_t thread_base() {
    uint64_t base = 0;
    asm("mov %%fs:0, %0" : "=r"(base));
    return base;
}

}  // namespace crane::interpose
