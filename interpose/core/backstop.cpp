#include "interpose/core/backstop.hpp"

#include <linux/prctl.h>

extern "C" {
extern const char __ehdr_start[] __attribute__((visibility("hidden")));
extern const char etext[] __attribute__((visibility("hidden")));
}

// The restorer is what unwinders know a signal's frame by: these bytes, and nothing said of them.
asm(R"(
    .pushsection .text
    nop
    .p2align 4
    .globl crane_restore
    .hidden crane_restore
    .type crane_restore, @function
crane_restore:
    movq $15, %rax
    syscall
    .size crane_restore, . - crane_restore

    .p2align 4
    .globl crane_judged_call
    .hidden crane_judged_call
    .type crane_judged_call, @function
    .globl crane_judged_call_made
    .hidden crane_judged_call_made
crane_judged_call:
    .cfi_startproc
    movq %rdi, %r11
    movq %rsi, %rax
    movq (%r11), %rdi
    movq 8(%r11), %rsi
    movq 16(%r11), %rdx
    movq 24(%r11), %r10
    movq 32(%r11), %r8
    movq 40(%r11), %r9
    syscall
crane_judged_call_made:
    ret
    .cfi_endproc
    .size crane_judged_call, . - crane_judged_call
    .popsection
)");

namespace crane::interpose {

void (*trapped_call)(siginfo_t& info, ucontext_t& context) = nullptr;

namespace {

/// As the kernel has it.
struct KernelAction {
    void (*handler)(int, siginfo_t*, void*);
    unsigned long flags;
    void (*restorer)();
    uint64_t mask;
};
constexpr unsigned long kHasRestorer = 0x04000000;  // SA_RESTORER

bool switch_on() {
    const CodeRange own = own_code();
    return raw(SYS_prctl, PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_ON, own.begin, own.end - own.begin,
               &selector) == 0;
}

}  // namespace

CodeRange own_code() {
    return {reinterpret_cast<uint64_t>(__ehdr_start), reinterpret_cast<uint64_t>(etext)};
}

long install_action(int signal, void (*handler)(int, siginfo_t*, void*), unsigned long flags) {
    const KernelAction action{handler, flags | kHasRestorer, crane_restore, 0};
    return raw(SYS_rt_sigaction, signal, &action, nullptr, sizeof(action.mask));
}

void (*installed_action(int signal))(int, siginfo_t*, void*) {
    KernelAction action{};
    raw(SYS_rt_sigaction, signal, nullptr, &action, sizeof(action.mask));
    const bool handles = reinterpret_cast<uintptr_t>(action.handler) > reinterpret_cast<uintptr_t>(SIG_IGN);
    return handles ? action.handler : nullptr;
}

void choose_backstop() {
    domain().backstop = runtime.view.control->backstop && trapped_call;
}

void start_backstop() {
    if (!domain().backstop) return;
    // An image may come to another kernel than it was taken under.
    if (!switch_on())
        refuse_domain(
            "this kernel does not hand system calls to the program (Linux 5.11 does), and the server is "
            "begun with them caught: use another kernel, or --backstop off on all replicas",
            timebubble::Attachment::kUnfit);
    selector = Selector::kTrap;
}

}  // namespace crane::interpose
