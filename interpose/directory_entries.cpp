// getdents64, and the older getdents: what was read whole is handed out piece by piece.
#include <cstdlib>
#include <cstring>

#include "interpose/core/blocking.hpp"
#include "interpose/core/shared_operation.hpp"
#include "interpose/core/user_memory.hpp"
#include "interpose/directories.hpp"

using namespace crane::interpose;

namespace {

constexpr size_t kMostUnderWay = 64;
/// Directories that were read in part; of those that are left so the oldest is forgotten. A descriptor that
/// stands at the beginning is read anew.
struct UnderWay {
    int fd;
    bool used;
    Directory directory;
} under_way[kMostUnderWay];
size_t next_under_way = 0;

void forget(UnderWay& one) {
    free(one.directory.bytes);
    free(one.directory.offsets);
    one = {};
}

/// nullptr: it stands in the middle, and who brought it there was not this process.
UnderWay* find_under_way(int fd, bool anew) {
    for (UnderWay& one : under_way) {
        if (!one.used || one.fd != fd) continue;
        if (!anew) return &one;
        forget(one);
    }
    if (!anew) return nullptr;
    UnderWay& one = under_way[next_under_way++ % kMostUnderWay];
    forget(one);
    one.fd = fd;
    one.used = true;
    return &one;
}

struct OldEntry {
    unsigned long d_ino, d_off;
    unsigned short d_reclen;
    char d_name[];  ///< and the type in the entry's last byte
};

/// How an entry looks to who asks, which is the number of the call.
struct Shape {
    long number;

    size_t bytes(const struct dirent64& entry) const {
        if (number == SYS_getdents64) return entry.d_reclen;
        constexpr size_t kWhole = sizeof(long);
        const size_t used = offsetof(OldEntry, d_name) + strlen(entry.d_name) + 2;
        return (used + kWhole - 1) / kWhole * kWhole;
    }
    bool put(char* place, const struct dirent64& entry) const {
        if (number == SYS_getdents64) return crane_copy(place, &entry, entry.d_reclen) == 0;
        const size_t whole = bytes(entry);
        char text[sizeof(struct dirent64)] = {};
        OldEntry head{};
        head.d_ino = entry.d_ino;
        head.d_off = static_cast<unsigned long>(entry.d_off);
        head.d_reclen = static_cast<unsigned short>(whole);
        std::memcpy(text, &head, offsetof(OldEntry, d_name));
        strcpy(text + offsetof(OldEntry, d_name), entry.d_name);
        text[whole - 1] = static_cast<char>(entry.d_type);
        return crane_copy(place, text, whole) == 0;
    }
};

long take_entries(Directory& d, Shape shape, char* place, size_t room) {
    size_t used = 0;
    while (d.at < d.count) {
        const struct dirent64& entry = *entry_at(d, d.at);
        const size_t bytes = shape.bytes(entry);
        if (bytes > room - used) break;
        if (!shape.put(place + used, entry)) return -EFAULT;
        used += bytes;
        ++d.at;
    }
    return used == 0 && d.at < d.count ? -EINVAL : static_cast<long>(used);
}

long read_entries(Shape shape, int fd, char* place, size_t room) {
    const SharedOperation turn(Op::kFile, descriptor_key(fd));
    const long at = raw(SYS_lseek, fd, 0, SEEK_CUR);
    if (at < 0) return at == -ESPIPE ? -ENOTDIR : at;
    UnderWay* const one = find_under_way(fd, at == 0);
    if (!one) return raw(shape.number, fd, place, room);
    if (at == 0) {
        one->directory.fd = fd;
        const int error = load_directory(one->directory);
        if (error != 0) {
            forget(*one);
            return error;
        }
    }
    const long taken = take_entries(one->directory, shape, place, room);
    if (taken == 0) forget(*one);
    return taken;
}

}  // namespace

CRANE_EXPORT ssize_t getdents64(int fd, void* place, size_t room) noexcept {
    const long rc = active() ? read_entries({SYS_getdents64}, fd, static_cast<char*>(place), room)
                             : raw(SYS_getdents64, fd, place, room);
    if (rc >= 0) return rc;
    errno = static_cast<int>(-rc);
    return -1;
}

namespace crane::interpose {

long read_old_entries(int fd, char* place, size_t room) {
    return read_entries({SYS_getdents}, fd, place, room);
}

}  // namespace crane::interpose
