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

/// What the kernel says to an array of buffers before it looks into them: 0, -EINVAL or -EFAULT.
long check_vector(const iovec* vector, size_t count);

/// A fault of crane_copy: the context goes on with what is left. False for any other instruction.
bool leave_bad_copy(ucontext_t& context);

}  // namespace crane::interpose
