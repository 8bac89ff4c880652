// The dynamic loader's doors past the wrappers: dlsym and dlopen.
//
// dlsym(RTLD_NEXT) from a library behind the shim would find libc's function, not the wrapper: jemalloc
// fetches pthread_create so. dlopen(RTLD_DEEPBIND), as PHP has it, would bind a library to libc before the
// shim. Both depend on who calls them (search order, namespace, RPATH), so the wrappers end in a jump and
// leave the caller's return address where the real function looks for it.
#include <elf.h>
#include <gnu/libc-version.h>
#include <link.h>

#include "interpose/core/runtime.hpp"

using namespace crane::interpose;

extern "C" const char __ehdr_start[] __attribute__((visibility("hidden")));
extern "C" const char _etext[] __attribute__((visibility("hidden")));

namespace {

bool is_own(const void* address) {
    const auto* at = static_cast<const char*>(address);
    return at >= __ehdr_start && at < _etext;
}

/// The C library's text, found by a function that it holds and no library replaces.
struct Range {
    uintptr_t start, end;
};

int find_range(dl_phdr_info* info, size_t, void* data) {
    auto* range = static_cast<Range*>(data);
    const uintptr_t wanted = range->start;
    for (int i = 0; i < info->dlpi_phnum; ++i) {
        const ElfW(Phdr)& ph = info->dlpi_phdr[i];
        const uintptr_t start = info->dlpi_addr + ph.p_vaddr;
        if (ph.p_type != PT_LOAD || wanted < start || wanted >= start + ph.p_memsz) continue;
        *range = {start, start + ph.p_memsz};
        return 1;
    }
    return 0;
}

bool is_libc(const void* address) {
    static Range text{};
    if (text.end == 0) {
        Range range{reinterpret_cast<uintptr_t>(&::gnu_get_libc_version), 0};
        if (dl_iterate_phdr(find_range, &range) == 0) return false;
        text = range;
    }
    const auto at = reinterpret_cast<uintptr_t>(address);
    return at >= text.start && at < text.end;
}

}  // namespace

/// Either the answer, or the function to jump to.
struct Choice {
    void* answer;
    void* jump;
};

extern "C" __attribute__((visibility("hidden"))) Choice crane_choose_symbol(void* handle, const char* name) {
    resolve_real();
    void* const jump = reinterpret_cast<void*>(real.dlsym);
    // RTLD_DEFAULT meets the wrapper first by itself.
    if (!active() || handle == RTLD_DEFAULT || !name) return {nullptr, jump};
    if (handle != RTLD_NEXT) {
        void* const found = real.dlsym(handle, name);
        if (!is_libc(found)) return {nullptr, jump};
    }
    void* const first = real.dlsym(RTLD_DEFAULT, name);
    if (is_own(first)) return {first, nullptr};
    return {nullptr, jump};
}

extern "C" __attribute__((visibility("hidden"))) void* crane_real_dlopen(const char*, int) {
    resolve_real();
    return reinterpret_cast<void*>(real.dlopen);
}

asm(R"(
    .text
    .p2align 4
    .globl dlsym
    .type dlsym, @function
dlsym:
    .cfi_startproc
    endbr64
    pushq %rdi
    .cfi_adjust_cfa_offset 8
    pushq %rsi
    .cfi_adjust_cfa_offset 8
    subq $8, %rsp
    .cfi_adjust_cfa_offset 8
    call crane_choose_symbol
    addq $8, %rsp
    .cfi_adjust_cfa_offset -8
    popq %rsi
    .cfi_adjust_cfa_offset -8
    popq %rdi
    .cfi_adjust_cfa_offset -8
    testq %rax, %rax
    jne 1f
    jmp *%rdx
1:  ret
    .cfi_endproc
    .size dlsym, .-dlsym

    .p2align 4
    .globl dlopen
    .type dlopen, @function
dlopen:
    .cfi_startproc
    endbr64
    pushq %rdi
    .cfi_adjust_cfa_offset 8
    pushq %rsi
    .cfi_adjust_cfa_offset 8
    subq $8, %rsp
    .cfi_adjust_cfa_offset 8
    call crane_real_dlopen
    addq $8, %rsp
    .cfi_adjust_cfa_offset -8
    popq %rsi
    .cfi_adjust_cfa_offset -8
    popq %rdi
    .cfi_adjust_cfa_offset -8
    andl $~8, %esi          # RTLD_DEEPBIND
    jmp *%rax
    .cfi_endproc
    .size dlopen, .-dlopen
)");
static_assert(RTLD_DEEPBIND == 8);
