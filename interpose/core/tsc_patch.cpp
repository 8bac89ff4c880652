#include "interpose/core/tsc_patch.hpp"

#include <fcntl.h>
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

#include "base/check.hpp"
#include "interpose/core/raw.hpp"
#include "interpose/core/runtime.hpp"
#include "interpose/core/x86_code.hpp"

// The counter as r() gives it, in rax; changes no other register and, but for the flags, nothing that the
// program could see. The caller has stepped over the red zone and keeps the flags.
__asm__(
    ".text\n"
    ".type crane_read_tsc, @function\n"
    "crane_read_tsc:\n"
    "push %rcx\n push %rdx\n push %rsi\n push %rdi\n push %r8\n push %r9\n push %r10\n push %r11\n push "
    "%rbx\n"
    "mov %rsp, %rbx\n"
    "sub $512, %rsp\n"
    "and $-64, %rsp\n"
    "fxsave64 (%rsp)\n"
    "call *crane_tsc_reader(%rip)\n"
    "fxrstor64 (%rsp)\n"
    "mov %rbx, %rsp\n"
    "pop %rbx\n pop %r11\n pop %r10\n pop %r9\n pop %r8\n pop %rdi\n pop %rsi\n pop %rdx\n pop %rcx\n"
    "mov %rax, %rdx\n"
    "shr $32, %rdx\n"
    "mov %eax, %eax\n"
    "ret\n"
    ".size crane_read_tsc, .-crane_read_tsc\n");

extern "C" {
__attribute__((visibility("hidden"))) void crane_read_tsc();
__attribute__((visibility("hidden"))) crane::interpose::TscReader crane_tsc_reader = nullptr;
}

namespace crane::interpose {

namespace {

constexpr uint32_t kFaultsBefore = 16;
constexpr size_t kMostSites = 256, kMostPages = 16;
constexpr size_t kPageBytes = 4096, kStubBytes = 128, kJumpBytes = 5;
constexpr uint64_t kFirstDistanceBytes = 1 << 20, kLongestDistanceBytes = 1 << 30;

constexpr uint8_t kNop[] = {0x90};

struct Site {
    uint64_t at;
    uint32_t faults;
};

struct StubPage {
    uint64_t begin;
    size_t stubs;
};

/// Of this process, with its code: a forked child goes on with a copy of both.
Site sites[kMostSites];
StubPage pages[kMostPages];

struct Mapping {
    uint64_t begin = 0, end = 0;
    uint64_t inode = 0;  ///< 0: no code of a file
};

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

/// The code of a file that `at` is in. A page that was patched is a mapping of its own from then on: what
/// lies side by side is one.
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

bool protect(uint64_t begin, size_t bytes, int protection) {
    const uint64_t first = begin & ~(kPageBytes - 1);
    const uint64_t last = (begin + bytes - 1) & ~(kPageBytes - 1);
    return raw(SYS_mprotect, first, last - first + kPageBytes, protection) == 0;
}

bool is_near(uint64_t one, uint64_t other) {
    return (one > other ? one - other : other - one) < kLongestDistanceBytes;
}

/// Room for a stub that a jump from `code` reaches; 0: none. Below it, where no heap grows.
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

class Writer {
  public:
    explicit Writer(uint8_t* to) : to_(to) {}
    void put(const void* bytes, size_t size) {
        memcpy(to_ + size_, bytes, size);
        size_ += size;
    }
    template <size_t N>
    void put(const uint8_t (&bytes)[N]) {
        put(bytes, N);
    }
    void put_jump(uint64_t from, uint64_t to) {
        const uint8_t opcode = 0xe9;
        const auto distance = static_cast<int32_t>(to - (from + kJumpBytes));
        put(&opcode, 1);
        put(&distance, sizeof(distance));
    }
    size_t size() const { return size_; }

  private:
    uint8_t* to_;
    size_t size_ = 0;
};

/// Writes the piece of code that stands for the instruction, with what is moved behind that.
void write_stub(uint64_t stub, bool clears_rcx, const MovedCode& moved, size_t moved_at, uint64_t back_to) {
    constexpr uint8_t kEnter[] = {0x48, 0x8d, 0x64, 0x24,
                                  0x80, 0x9c, 0xfc};  // lea -128(%rsp),%rsp; pushfq; cld
    constexpr uint8_t kLoad[] = {0x48, 0xb8};         // mov $…,%rax
    constexpr uint8_t kCall[] = {0xff, 0xd0};         // call *%rax
    constexpr uint8_t kLeave[] = {0x9d, 0x48, 0x8d, 0xa4, 0x24, 0x80, 0, 0, 0};  // popfq; lea 128(%rsp),%rsp
    constexpr uint8_t kClearRcx[] = {0xb9, 0, 0, 0, 0};                          // mov $0,%ecx
    Writer out(reinterpret_cast<uint8_t*>(stub));
    const auto reader = reinterpret_cast<uint64_t>(&crane_read_tsc);
    out.put(kEnter);
    out.put(kLoad);
    out.put(&reader, sizeof(reader));
    out.put(kCall);
    out.put(kLeave);
    if (clears_rcx) out.put(kClearRcx);
    CRANE_CHECK(out.size() <= moved_at);
    while (out.size() < moved_at) out.put(kNop);
    out.put(moved.bytes, moved.size);
    out.put_jump(stub + out.size(), back_to);
    CRANE_CHECK(out.size() <= kStubBytes);
}

/// The instructions behind the one at `at` that have to make room for the jump.
bool patch(uint64_t at, size_t bytes) {
    constexpr size_t kMovedAt = 40;
    Mapping code;
    if (!find_code(at, code) || at + bytes + kMostMovedBytes > code.end) return false;
    const auto* here = reinterpret_cast<const uint8_t*>(at);
    const uint64_t stub = room_for_stub(code);
    if (stub == 0) return false;
    MovedCode moved;
    if (!move_code(here + bytes, kMostMovedBytes, at + bytes, stub + kMovedAt, kJumpBytes - bytes, moved))
        return false;
    const uint64_t behind = at + bytes + moved.size;
    // All of it: what is rarely done stands far from the function that it belongs to.
    if (jumps_into(reinterpret_cast<const uint8_t*>(code.begin), code.end - code.begin, code.begin, at + 1,
                   behind - 1))
        return false;
    if (!protect(stub, kStubBytes, PROT_READ | PROT_WRITE | PROT_EXEC)) return false;
    write_stub(stub, bytes == 3, moved, kMovedAt, behind);
    protect(stub, kStubBytes, PROT_READ | PROT_EXEC);
    if (!protect(at, bytes + moved.size, PROT_READ | PROT_WRITE | PROT_EXEC)) return false;
    Writer out(reinterpret_cast<uint8_t*>(at));
    out.put_jump(at, stub);
    while (out.size() < bytes + moved.size) out.put(kNop);
    protect(at, out.size(), PROT_READ | PROT_EXEC);
    return true;
}

/// For craned to tell. All processes count together: their programs lie at the same places, mostly.
timebubble::TscSite* counted(uint64_t at) {
    timebubble::TscFaults& faults = runtime.view.control->tsc;
    faults.all.fetch_add(1, std::memory_order_relaxed);
    for (timebubble::TscSite& site : faults.sites) {
        uint64_t free = 0;
        if (site.at.load(std::memory_order_relaxed) != at && !site.at.compare_exchange_strong(free, at))
            continue;
        site.faults.fetch_add(1, std::memory_order_relaxed);
        return &site;
    }
    return nullptr;
}

}  // namespace

bool note_tsc_fault(uint64_t at, size_t bytes, TscReader read) {
    timebubble::TscSite* const told = runtime.view.control ? counted(at) : nullptr;
    const size_t first = (at * 0x9e3779b97f4a7c15) >> 56;
    for (size_t i = 0; i < kMostSites; ++i) {
        Site& site = sites[(first + i) % kMostSites];
        if (site.at != at && site.at != 0) continue;
        site.at = at;
        if (++site.faults != kFaultsBefore || !runtime.domain ||
            runtime.domain->scheduler.policy != dmt::Policy::kSerial)
            return false;
        crane_tsc_reader = read;
        const bool patched = patch(at, bytes);
        if (patched && told) told->patched.store(1, std::memory_order_relaxed);
        return patched;
    }
    return false;
}

}  // namespace crane::interpose
