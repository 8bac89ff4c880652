// setjmp and longjmp: a jump out of a handler leaves it, and one that brings back the mask brings back the
// schedule's, not the kernel's.
//
// sigsetjmp returns twice, so no frame of ours may stand below it: it notes the mask and goes on into libc's
// own by a jump. The kernel's set has 64 signals; behind them there is room in the buffer for what is noted.
#include <csetjmp>

#include "interpose/core/backstop.hpp"
#include "interpose/core/handler_frames.hpp"
#include "interpose/core/signal_masks.hpp"
#include "interpose/core/uncancelled.hpp"

namespace crane::interpose {
namespace {

constexpr uint64_t kNoted = 0x4372'616e'654a'6d70;

uint64_t* room_in(__jmp_buf_tag* place) {
    return reinterpret_cast<uint64_t*>(&place->__saved_mask) + 1;
}

/// glibc keeps it mangled with a secret of the process (PTR_MANGLE).
uint64_t stack_pointer_of(const __jmp_buf_tag* place) {
    constexpr int kStackPointer = 6;  // JB_RSP
    constexpr int kRotation = 17;
    uint64_t guard;
    asm("movq %%fs:0x30, %0" : "=r"(guard));
    const auto mangled = static_cast<uint64_t>(place->__jmpbuf[kStackPointer]);
    return (mangled >> kRotation | mangled << (64 - kRotation)) ^ guard;
}

void before_jump(__jmp_buf_tag* place) {
    if (!active()) return;
    selector = Selector::kTrap;  // whatever is left by the jump
    leave_handlers(stack_pointer_of(place));
    Uncancelled::leave_by_jump(stack_pointer_of(place));
    const uint64_t* noted = room_in(place);
    if (!place->__mask_was_saved || noted[1] != kNoted) return;
    domain().threads[self.slot].mask = noted[0];
    mask_has_changed();
}

}  // namespace
}  // namespace crane::interpose

using namespace crane::interpose;

extern "C" {

/// libc's own, where the wrapper goes on.
__attribute__((visibility("hidden"))) void* crane_real_sigsetjmp;

__attribute__((visibility("hidden"))) void crane_note_jump(__jmp_buf_tag* place, int with_mask) {
    resolve_real();
    if (!crane_real_sigsetjmp) crane_real_sigsetjmp = real.dlsym(RTLD_NEXT, "__sigsetjmp");
    if (!with_mask) return;  // the buffer may be one without room for it
    uint64_t* noted = room_in(place);
    noted[0] = active() ? domain().threads[self.slot].mask : 0;
    noted[1] = active() ? kNoted : 0;
}
}

asm(R"(
    .text
    .p2align 4
    .globl setjmp
    .type setjmp, @function
setjmp:
    .cfi_startproc
    endbr64
    movl $1, %esi
    jmp __sigsetjmp@PLT
    .cfi_endproc
    .size setjmp, . - setjmp

    .globl _setjmp
    .type _setjmp, @function
_setjmp:
    .cfi_startproc
    endbr64
    xorl %esi, %esi
    jmp __sigsetjmp@PLT
    .cfi_endproc
    .size _setjmp, . - _setjmp

    .globl __sigsetjmp
    .type __sigsetjmp, @function
__sigsetjmp:
    .cfi_startproc
    endbr64
    cmpq $0, crane_real_sigsetjmp(%rip)
    je 1f
    testl %esi, %esi
    jz 2f
1:  pushq %rdi
    .cfi_adjust_cfa_offset 8
    pushq %rsi
    .cfi_adjust_cfa_offset 8
    subq $8, %rsp
    .cfi_adjust_cfa_offset 8
    call crane_note_jump
    addq $8, %rsp
    .cfi_adjust_cfa_offset -8
    popq %rsi
    .cfi_adjust_cfa_offset -8
    popq %rdi
    .cfi_adjust_cfa_offset -8
2:  jmpq *crane_real_sigsetjmp(%rip)
    .cfi_endproc
    .size __sigsetjmp, . - __sigsetjmp
)");

CRANE_EXPORT void siglongjmp(__jmp_buf_tag* place, int value) noexcept {
    before_jump(place);
    resolve_real();
    real.siglongjmp(place, value);
    __builtin_unreachable();
}
CRANE_EXPORT void longjmp(__jmp_buf_tag* place, int value) noexcept {
    siglongjmp(place, value);
}
CRANE_EXPORT void _longjmp(__jmp_buf_tag* place, int value) noexcept {
    siglongjmp(place, value);
}
extern "C" [[noreturn]] __attribute__((visibility("default"))) void __longjmp_chk(__jmp_buf_tag* place,
                                                                                  int value) {
    siglongjmp(place, value);
}
