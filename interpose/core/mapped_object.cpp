#include "interpose/core/mapped_object.hpp"

#include <fcntl.h>

#include <cstdlib>
#include <cstring>

#include "interpose/core/raw.hpp"

namespace crane::interpose {

namespace {

/// A line of /proc/self/maps: "begin-end perms offset device inode path". False: the address is not in it.
bool take_line(const char* line, uint64_t address, char* name, size_t room, uint64_t& offset) {
    char* rest = nullptr;
    const uint64_t begin = strtoull(line, &rest, 16);
    if (*rest != '-') return false;
    const uint64_t end = strtoull(rest + 1, &rest, 16);
    if (address < begin || address >= end || strlen(rest) < 6) return false;
    offset = strtoull(rest + 6, &rest, 16) + (address - begin);
    const char* path = strrchr(rest, '/');
    if (!path) path = strrchr(rest, '[');
    const size_t bytes = path ? strnlen(path, room - 1) : 0;
    std::memcpy(name, path, bytes);
    name[bytes] = 0;
    if (*name == '/') std::memmove(name, name + 1, bytes);
    return true;
}

}  // namespace

bool find_mapped_object(uint64_t address, char* name, size_t room, uint64_t& offset) {
    const auto fd = static_cast<int>(raw(SYS_openat, AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC, 0));
    if (fd < 0) return false;
    char text[4096];
    size_t kept = 0;
    bool found = false;
    *name = 0;
    while (!found) {
        const long got = raw(SYS_read, fd, text + kept, sizeof(text) - 1 - kept);
        if (got <= 0) break;
        kept += static_cast<size_t>(got);
        text[kept] = 0;
        char* line = text;
        for (char* end = nullptr; !found && (end = strchr(line, '\n')); line = end + 1) {
            *end = 0;
            found = take_line(line, address, name, room, offset);
        }
        kept -= static_cast<size_t>(line - text);
        if (kept == sizeof(text) - 1) kept = 0;  // a path longer than that: its end is no line
        std::memmove(text, line, kept);
    }
    raw(SYS_close, fd);
    return found && *name != 0;
}

}  // namespace crane::interpose
