// The program's memory is its own affair, but for what the shim has in it (core/own_memory.hpp): that stays.
#include <stdarg.h>
#include <sys/mman.h>

#include "interpose/core/machine.hpp"
#include "interpose/core/own_memory.hpp"
#include "interpose/plain_call.hpp"

using namespace crane::interpose;

namespace {

/// What lies beyond is no process's, and a call that names it is refused whole.
constexpr uintptr_t kUserEnd = 0x7fff'ffff'f000;

/// What the kernel refuses or passes over anyway is left to it.
bool concerns_shim(const void* place, size_t bytes) {
    const bool whole = reinterpret_cast<uintptr_t>(place) % kPageBytes == 0 && bytes != 0;
    return whole && active() && is_own_memory(place, bytes);
}

long refuse(int error) {
    errno = error;
    return -1;
}

template <typename... Args>
long counted(long number, Args... args) {
    count_plain_call();
    return plain(number, args...);
}

/// All but the shim's own.
int unmap_around(void* place, size_t bytes) {
    OwnRange own[kOwnRanges];
    own_ranges(own);
    auto from = reinterpret_cast<uintptr_t>(place);
    const uintptr_t to = from + bytes;
    for (int i = 0; i <= kOwnRanges && from < to; ++i) {
        const uintptr_t end = i < kOwnRanges && own[i].from < to ? own[i].from : to;
        if (from < end && counted(SYS_munmap, from, end - from) != 0) return -1;
        if (i < kOwnRanges && own[i].to > from) from = own[i].to;
    }
    return 0;
}

void* map(void* place, size_t bytes, int protection, int flags, int fd, off_t offset) {
    if ((flags & MAP_FIXED) != 0 && concerns_shim(place, bytes))
        return reinterpret_cast<void*>(refuse(ENOMEM));
    return reinterpret_cast<void*>(counted(SYS_mmap, place, bytes, protection, flags, fd, offset));
}

}  // namespace

CRANE_EXPORT void* mmap(void* place, size_t bytes, int protection, int flags, int fd, off_t offset) noexcept {
    return map(place, bytes, protection, flags, fd, offset);
}
CRANE_EXPORT void* mmap64(void* place, size_t bytes, int protection, int flags, int fd,
                          off64_t offset) noexcept {
    return map(place, bytes, protection, flags, fd, offset);
}
CRANE_EXPORT int munmap(void* place, size_t bytes) noexcept {
    const auto from = reinterpret_cast<uintptr_t>(place);
    const bool possible = from < kUserEnd && bytes <= kUserEnd - from;
    if (possible && concerns_shim(place, bytes)) return unmap_around(place, bytes);
    return static_cast<int>(counted(SYS_munmap, place, bytes));
}
CRANE_EXPORT int mprotect(void* place, size_t bytes, int protection) noexcept {
    if (concerns_shim(place, bytes)) return static_cast<int>(refuse(EACCES));
    return static_cast<int>(counted(SYS_mprotect, place, bytes, protection));
}
CRANE_EXPORT int madvise(void* place, size_t bytes, int advice) noexcept {
    if (concerns_shim(place, bytes)) return static_cast<int>(refuse(EINVAL));
    return static_cast<int>(counted(SYS_madvise, place, bytes, advice));
}
CRANE_EXPORT void* mremap(void* place, size_t bytes, size_t bytes_then, int flags, ...) noexcept {
    void* other = nullptr;
    if ((flags & (MREMAP_FIXED | MREMAP_DONTUNMAP)) != 0) {
        va_list list;
        va_start(list, flags);
        other = va_arg(list, void*);
        va_end(list);
    }
    const bool onto_shim = (flags & MREMAP_FIXED) != 0 && concerns_shim(other, bytes_then);
    // Of no bytes: a second mapping of what is there.
    if (onto_shim || concerns_shim(place, bytes != 0 ? bytes : 1))
        return reinterpret_cast<void*>(refuse(EFAULT));
    return reinterpret_cast<void*>(counted(SYS_mremap, place, bytes, bytes_then, flags, other));
}
CRANE_EXPORT int remap_file_pages(void* place, size_t bytes, int protection, size_t page,
                                  int flags) noexcept {
    if (concerns_shim(place, bytes)) return static_cast<int>(refuse(EINVAL));
    return static_cast<int>(counted(SYS_remap_file_pages, place, bytes, protection, page, flags));
}
CRANE_EXPORT int pkey_mprotect(void* place, size_t bytes, int protection, int key) noexcept {
    if (concerns_shim(place, bytes)) return static_cast<int>(refuse(EACCES));
    return static_cast<int>(counted(SYS_pkey_mprotect, place, bytes, protection, key));
}
