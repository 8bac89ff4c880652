// A directory as the program reads it: whole, and sorted by name.
#pragma once

#include <dirent.h>

#include <cstddef>
#include <cstdint>

namespace crane::interpose {

/// A real DIR begins with its descriptor and a lock, which never look like this.
constexpr uint64_t kDirectoryMagic = 0xc7a9'e0d1'7ec7'0a1dULL;

struct Directory {
    uint64_t magic;
    int fd;
    char* bytes;        ///< what the kernel gave, entry after entry
    uint32_t* offsets;  ///< of the entries, sorted by name
    size_t count, at;
    bool unread;  ///< as the descriptor stands: it is read when the first entry is asked for
};

/// What the kernel writes is what libc hands out.
static_assert(sizeof(struct dirent) == sizeof(struct dirent64));
static_assert(offsetof(struct dirent, d_name) == offsetof(struct dirent64, d_name));

inline struct dirent64* entry_at(const Directory& d, size_t index) {
    return reinterpret_cast<struct dirent64*>(d.bytes + d.offsets[index]);
}

/// Replaces what `d` holds by the directory as it is now. 0 or -errno.
int load_directory(Directory& d);

/// getdents, which libc has no function for.
long read_old_entries(int fd, char* place, size_t room);

}  // namespace crane::interpose
