#include "interpose/core/handler_frames.hpp"

namespace crane::interpose {

asm(R"(
    .text
    .p2align 4
    .globl crane_call_on_stack
    .hidden crane_call_on_stack
    .type crane_call_on_stack, @function
crane_call_on_stack:
    .cfi_startproc
    endbr64
    pushq %rbp
    .cfi_def_cfa_offset 16
    .cfi_offset %rbp, -16
    movq %rsp, %rbp
    .cfi_def_cfa_register %rbp
    testq %rdi, %rdi
    cmovnzq %rdi, %rsp
    movq %rsi, %rax
    movl %edx, %edi
    movq %rcx, %rsi
    movq %r8, %rdx
    call *%rax
    leave
    .cfi_def_cfa %rsp, 8
    ret
    .cfi_endproc
    .size crane_call_on_stack, . - crane_call_on_stack
)");

void* stack_for_handler(uint64_t flags) {
    if (!(flags & SA_ONSTACK)) return nullptr;
    stack_t stack{};
    if (raw(SYS_sigaltstack, nullptr, &stack) != 0 || (stack.ss_flags & (SS_DISABLE | SS_ONSTACK)))
        return nullptr;
    return reinterpret_cast<void*>((reinterpret_cast<uint64_t>(stack.ss_sp) + stack.ss_size) & ~uint64_t{15});
}

void leave_handlers(uint64_t target) {
    if (self.handler_depth == 0) return;
    stack_t stack{};
    raw(SYS_sigaltstack, nullptr, &stack);
    const auto low = reinterpret_cast<uint64_t>(stack.ss_sp);
    const auto on_alternate = [&](uint64_t address) {
        return !(stack.ss_flags & SS_DISABLE) && address >= low && address - low < stack.ss_size;
    };
    while (self.handler_depth > 0) {
        const uint32_t last = self.handler_depth - 1;
        if (last < kMostFrames) {
            const uint64_t frame = self.handler_frames[last];
            const bool left =
                on_alternate(frame) == on_alternate(target) ? frame < target : on_alternate(frame);
            if (!left) return;
        }
        self.handler_depth = last;
    }
}

}  // namespace crane::interpose
