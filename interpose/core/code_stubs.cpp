#include "interpose/core/code_stubs.hpp"

#include <fcntl.h>
#include <sys/mman.h>

#include <cstdlib>

#include "interpose/core/raw.hpp"
#include "interpose/core/x86_code.hpp"

namespace crane::interpose {

namespace {

constexpr size_t kMostPages = 16, kPageBytes = 4096;
constexpr uint64_t kFirstDistanceBytes = 1 << 20, kLongestDistanceBytes = 1 << 30;

struct StubPage {
    uint64_t begin;
    size_t stubs;
};

/// Of this process, with its code: a forked child goes on with a copy of both.
StubPage pages[kMostPages];

/// A line of /proc/self/maps: "begin-end perms offset device inode path".
Mapping parse_mapping(const char* line) {
    Mapping found;
    char* rest = nullptr;
    found.begin = strtoull(line, &rest, 16);
    if (*rest != '-') return {};
    found.end = strtoull(rest + 1, &rest, 16);
    if (strncmp(rest, " r-xp ", 6) != 0) return found;
    strtoull(rest + 6, &rest, 16);                          // offset
    rest = *rest == ' ' ? strchr(rest + 1, ' ') : nullptr;  // device
    if (rest) found.inode = strtoull(rest + 1, nullptr, 10);
    return found;
}

/// Lines of /proc/self/maps in their order, until `take` says that it has what it wants.
template <typename Take>
void each_mapping(Take take) {
    const auto fd = static_cast<int>(raw(SYS_openat, AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC, 0));
    if (fd < 0) return;
    char text[1024];
    size_t kept = 0;
    bool done = false;
    while (!done) {
        const long got = raw(SYS_read, fd, text + kept, sizeof(text) - 1 - kept);
        if (got <= 0) break;
        kept += static_cast<size_t>(got);
        text[kept] = '\0';
        char* line = text;
        for (char* end = nullptr; !done && (end = strchr(line, '\n')); line = end + 1) {
            *end = '\0';
            done = take(parse_mapping(line));
        }
        kept -= static_cast<size_t>(line - text);
        if (kept == sizeof(text) - 1) kept = 0;  // a path longer than that: its end is no line
        memmove(text, line, kept);
    }
    raw(SYS_close, fd);
}

bool protect(uint64_t begin, size_t bytes, int protection) {
    const uint64_t first = begin & ~(kPageBytes - 1);
    const uint64_t last = (begin + bytes - 1) & ~(kPageBytes - 1);
    return raw(SYS_mprotect, first, last - first + kPageBytes, protection) == 0;
}

bool is_near(uint64_t one, uint64_t other) {
    return (one > other ? one - other : other - one) < kLongestDistanceBytes;
}

}  // namespace

bool find_code(uint64_t at, Mapping& found) {
    found = {};
    each_mapping([&](const Mapping& one) {
        if (one.begin == found.end && one.inode == found.inode)
            found.end = one.end;
        else if (found.end > at)
            return true;
        else
            found = one;
        return false;
    });
    return found.inode != 0 && at >= found.begin && at < found.end;
}

uint64_t room_for_stub(const Mapping& code) {
    for (StubPage& page : pages) {
        if (page.begin != 0 && is_near(page.begin, code.begin) && is_near(page.begin, code.end) &&
            page.stubs < kPageBytes / kStubBytes)
            return page.begin + kStubBytes * page.stubs++;
        if (page.begin != 0) continue;
        for (uint64_t away = kFirstDistanceBytes; away < kLongestDistanceBytes && away < code.begin;
             away += away) {
            const uint64_t wanted = (code.begin - away) & ~(kPageBytes - 1);
            const long got = raw(SYS_mmap, wanted, kPageBytes, PROT_READ | PROT_EXEC,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
            if (got < 0) continue;
            if (static_cast<uint64_t>(got) != wanted) {  // a kernel that does not know the flag
                raw(SYS_munmap, got, kPageBytes);
                continue;
            }
            page = {wanted, 1};
            return wanted;
        }
        return 0;
    }
    return 0;
}

bool is_jumped_into(const Mapping& code, uint64_t first, uint64_t last) {
    const auto* const all = reinterpret_cast<const uint8_t*>(code.begin);
    if (jumps_into(all, code.end - code.begin, code.begin, first, last)) return true;
    for (const StubPage& page : pages) {
        const auto* const stubs = reinterpret_cast<const uint8_t*>(page.begin);
        if (page.begin != 0 && jumps_into(stubs, kStubBytes * page.stubs, page.begin, first, last))
            return true;
    }
    return false;
}

bool open_code(uint64_t begin, size_t bytes) {
    return protect(begin, bytes, PROT_READ | PROT_WRITE | PROT_EXEC);
}

void close_code(uint64_t begin, size_t bytes) {
    protect(begin, bytes, PROT_READ | PROT_EXEC);
}

}  // namespace crane::interpose
