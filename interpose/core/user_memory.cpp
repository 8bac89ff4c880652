#include "interpose/core/user_memory.hpp"

#include <cerrno>
#include <climits>
#include <cstring>

extern "C" {
extern const char crane_copy_bytes[] __attribute__((visibility("hidden")));
extern const char crane_copy_left[] __attribute__((visibility("hidden")));
}

// The count stands in rcx at every byte, also when one cannot be read or written.
asm(R"(
    .pushsection .text
    .globl crane_copy
    .hidden crane_copy
    .type crane_copy, @function
    .hidden crane_copy_bytes
    .globl crane_copy_bytes
    .hidden crane_copy_left
    .globl crane_copy_left
crane_copy:
    .cfi_startproc
    mov %rdx, %rcx
crane_copy_bytes:
    rep movsb
crane_copy_left:
    mov %rcx, %rax
    ret
    .cfi_endproc
    .size crane_copy, . - crane_copy
    .popsection
)");

namespace crane::interpose {

bool leave_bad_copy(ucontext_t& context) {
    greg_t& at = context.uc_mcontext.gregs[REG_RIP];
    if (at != reinterpret_cast<greg_t>(crane_copy_bytes)) return false;
    at = reinterpret_cast<greg_t>(crane_copy_left);
    return true;
}

bool readable(const void* from, size_t bytes) {
    constexpr size_t kPage = 4096;
    const auto* at = static_cast<const char*>(from);
    for (size_t step = 0; step < bytes; step += kPage) {
        char byte;
        if (!fetch(byte, at + step)) return false;
    }
    char last;
    return bytes == 0 || fetch(last, at + bytes - 1);
}

bool writable(void* to, size_t bytes) {
    constexpr size_t kPage = 4096;
    auto* at = static_cast<char*>(to);
    for (size_t step = 0; step < bytes; step += kPage) {
        if (crane_copy(at + step, at + step, 1) != 0) return false;
    }
    return bytes == 0 || crane_copy(at + bytes - 1, at + bytes - 1, 1) == 0;
}

bool readable_text(const char* text) {
    constexpr size_t kPage = 4096;
    for (const char* at = text; at < text + PATH_MAX;) {
        const size_t here = kPage - reinterpret_cast<uintptr_t>(at) % kPage;
        if (char byte; !fetch(byte, at)) return false;
        if (memchr(at, 0, here)) return true;
        at += here;
    }
    return true;
}

bool readable_texts(char* const* list) {
    for (const char* text = nullptr; list; ++list) {
        if (!fetch(text, list)) return false;
        if (!text) return true;
        if (!readable_text(text)) return false;
    }
    return true;
}

long check_vector(const iovec* vector, size_t count) {
    if (count > IOV_MAX) return -EINVAL;
    for (size_t i = 0, total = 0; i < count; ++i) {
        iovec piece;
        if (!fetch(piece, vector + i)) return -EFAULT;
        total += piece.iov_len;
        if (piece.iov_len > SSIZE_MAX || total > SSIZE_MAX) return -EINVAL;
    }
    return 0;
}

}  // namespace crane::interpose
