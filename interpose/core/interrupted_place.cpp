#include "interpose/core/interrupted_place.hpp"

#include <sys/syscall.h>

#include <cstddef>
#include <cstring>

#include "interpose/core/runtime.hpp"
#include "interpose/core/signal_masks.hpp"

namespace crane::interpose {

static_assert(offsetof(ucontext_t, uc_mcontext.gregs) == 40 && REG_R12 == 4 && REG_R15 == 7 &&
              REG_RBP == 10 && REG_RBX == 11 && REG_RSP == 15 && REG_RIP == 16 && REG_EFL == 17);

asm(R"(
    .text
    .p2align 4
    .globl crane_mark_place
    .hidden crane_mark_place
    .type crane_mark_place, @function
crane_mark_place:
    .cfi_startproc
    endbr64
    movq %r12, 40+8*4(%rdi)
    movq %r13, 40+8*5(%rdi)
    movq %r14, 40+8*6(%rdi)
    movq %r15, 40+8*7(%rdi)
    movq %rbp, 40+8*10(%rdi)
    movq %rbx, 40+8*11(%rdi)
    leaq 8(%rsp), %rax
    movq %rax, 40+8*15(%rdi)
    movq (%rsp), %rax
    movq %rax, 40+8*16(%rdi)
    ret
    .cfi_endproc
    .size crane_mark_place, . - crane_mark_place

    .p2align 4
    .globl crane_go_on
    .hidden crane_go_on
    .type crane_go_on, @function
crane_go_on:
    .cfi_startproc
    endbr64
    movq %rdi, %rsp
    movl $15, %eax
    syscall
    ud2
    .cfi_endproc
    .size crane_go_on, . - crane_go_on
)");

extern "C" [[noreturn, gnu::visibility("hidden")]] void crane_go_on(ucontext_t* context);

namespace {

void compute_by(uint16_t control_word, uint32_t control_and_status) {
    asm volatile("fldcw %0\n\tldmxcsr %1" : : "m"(control_word), "m"(control_and_status));
}

constexpr uint16_t kFirstControlWord = 0x37f;
constexpr uint32_t kFirstControlAndStatus = 0x1f80;
constexpr greg_t kFlags = 0x202;                                    // interrupts are on, as always
constexpr greg_t kSegments = 0x33 | greg_t{0x2b} << 48;             // cs and ss of programs of 64 bits
constexpr unsigned long kStackSegmentIsThere = 0x2, kStrictly = 4;  // UC_SIGCONTEXT_SS, UC_STRICT_RESTORE_SS

}  // namespace

InterruptedPlace::InterruptedPlace(uint64_t mask) {
    context_.uc_flags = kStackSegmentIsThere | kStrictly;
    raw(SYS_sigaltstack, nullptr, &context_.uc_stack);
    context_.uc_mcontext.gregs[REG_EFL] = kFlags;
    context_.uc_mcontext.gregs[REG_CSGSFS] = kSegments;
    context_.uc_mcontext.fpregs = &numbers_;
    asm volatile("fnstcw %0\n\tstmxcsr %1" : "=m"(control_word_), "=m"(control_and_status_));
    numbers_.cwd = control_word_;
    numbers_.mxcsr = control_and_status_;
    numbers_.mxcr_mask = 0xffff;
    mask_to(mask, &context_.uc_sigmask);
    compute_by(kFirstControlWord, kFirstControlAndStatus);
}

InterruptedPlace::~InterruptedPlace() {
    if (!gone_on_) compute_by(control_word_, control_and_status_);
}

void InterruptedPlace::marked() {
    std::memcpy(marked_, context_.uc_mcontext.gregs, sizeof(marked_));
}

bool InterruptedPlace::is_changed() const {
    return std::memcmp(marked_, context_.uc_mcontext.gregs, sizeof(marked_)) != 0 ||
           context_.uc_mcontext.fpregs != &numbers_ || numbers_.cwd != control_word_ ||
           numbers_.mxcsr != control_and_status_;
}

uint64_t InterruptedPlace::mask() const {
    return mask_from(&context_.uc_sigmask);
}

void InterruptedPlace::go_on() {
    gone_on_ = true;
    // The kernel's mask is not the program's, and stays.
    raw(SYS_rt_sigprocmask, SIG_SETMASK, nullptr, &context_.uc_sigmask, sizeof(uint64_t));
    raw(SYS_sigaltstack, nullptr, &context_.uc_stack);
    context_.uc_stack.ss_flags &= ~SS_ONSTACK;
    crane_go_on(&context_);
}

}  // namespace crane::interpose
