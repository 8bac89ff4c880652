#include "interpose/core/tsc_patch.hpp"

#include "base/check.hpp"
#include "interpose/core/code_stubs.hpp"
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
constexpr size_t kMostSites = 256;

struct Site {
    uint64_t at;
    uint32_t faults;
};

/// Of this process, with its code: a forked child goes on with a copy of both.
Site sites[kMostSites];

/// Writes the piece of code that stands for the instruction, with what is moved behind that.
void write_stub(uint64_t stub, bool clears_rcx, const MovedCode& moved, size_t moved_at, uint64_t back_to) {
    constexpr uint8_t kEnter[] = {0x48, 0x8d, 0x64, 0x24,
                                  0x80, 0x9c, 0xfc};  // lea -128(%rsp),%rsp; pushfq; cld
    constexpr uint8_t kLoad[] = {0x48, 0xb8};         // mov $…,%rax
    constexpr uint8_t kCall[] = {0xff, 0xd0};         // call *%rax
    constexpr uint8_t kLeave[] = {0x9d, 0x48, 0x8d, 0xa4, 0x24, 0x80, 0, 0, 0};  // popfq; lea 128(%rsp),%rsp
    constexpr uint8_t kClearRcx[] = {0xb9, 0, 0, 0, 0};                          // mov $0,%ecx
    CodeWriter out(stub);
    const auto reader = reinterpret_cast<uint64_t>(&crane_read_tsc);
    out.put(kEnter);
    out.put(kLoad);
    out.put(&reader, sizeof(reader));
    out.put(kCall);
    out.put(kLeave);
    if (clears_rcx) out.put(kClearRcx);
    CRANE_CHECK(out.size() <= moved_at);
    out.fill(moved_at);
    out.put(moved.bytes, moved.size);
    out.put_jump(back_to);
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
    if (!move_code(here + bytes, kMostMovedBytes, at + bytes, stub + kMovedAt, kStubJumpBytes - bytes, moved))
        return false;
    const uint64_t behind = at + bytes + moved.size;
    if (is_jumped_into(code, at + 1, behind - 1)) return false;
    if (!open_code(stub, kStubBytes)) return false;
    write_stub(stub, bytes == 3, moved, kMovedAt, behind);
    close_code(stub, kStubBytes);
    if (!open_code(at, bytes + moved.size)) return false;
    CodeWriter out(at);
    out.put_jump(stub);
    out.fill(bytes + moved.size);
    close_code(at, out.size());
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
