// The program's own memory, which it may have named wrongly: a bad address ends a call with EFAULT, as the
// kernel's copies do, and not the process that has the turn in hand.
//
// Nothing is probed beforehand: one instruction does the copying, and a fault at that instruction
// (core/signals.cpp) goes on behind it.
#pragma once

#include <sys/ucontext.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>

namespace crane::interpose {

/// Copies `bytes`; either side may be the program's. Returns how many are left: 0 unless an address is bad.
extern "C" __attribute__((visibility("hidden"))) size_t crane_copy(void* to, const void* from,
                                                                   size_t bytes) noexcept;

template <typename T>
inline bool fetch(T& value, const void* from) {
    return crane_copy(&value, from, sizeof(T)) == 0;
}
template <typename T>
inline bool store(void* to, const T& value) {
    return crane_copy(to, &value, sizeof(T)) == 0;
}

/// Whether every page of it can be read, or also written: where the bytes themselves are handled elsewhere.
bool readable(const void* from, size_t bytes);
bool writable(void* to, size_t bytes);
/// An address that no program may name: refused before anything is looked at.
inline bool is_kernels(const void* address) {
    return reinterpret_cast<uintptr_t>(address) >> 63 != 0;
}
/// Whether a text can be read to its end, or for as long as any path is.
bool readable_text(const char* text);
/// The same of every text in a list that ends with null; a list that is null has none.
bool readable_texts(char* const* list);
/// Of what need not be given: whether it is not, or holds a T.
template <typename T>
inline bool readable_if_given(const T* from) {
    return !from || readable(from, sizeof(T));
}
template <typename T>
inline bool writable_if_given(T* to) {
    return !to || writable(to, sizeof(T));
}

/// What the kernel says to an array of buffers before it looks into them: 0, -EINVAL or -EFAULT.
long check_vector(const iovec* vector, size_t count);

/// A fault of crane_copy: the context goes on with what is left. False for any other instruction.
bool leave_bad_copy(ucontext_t& context);

}  // namespace crane::interpose
