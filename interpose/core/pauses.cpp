#include "interpose/core/pauses.hpp"

#include <gnu/libc-version.h>
#include <link.h>
#include <sys/auxv.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "interpose/core/code_stubs.hpp"
#include "interpose/core/entropy.hpp"
#include "interpose/core/environment.hpp"
#include "interpose/core/moved_loops.hpp"
#include "interpose/core/random_instructions.hpp"
#include "interpose/core/spin_loops.hpp"
#include "interpose/core/trap_sites.hpp"
#include "interpose/core/user_memory.hpp"

namespace crane::interpose {

namespace {

constexpr uint8_t kTrap = 0xcc;
constexpr uint8_t kReturn = 0xc3, kLongJump = 0xe9;
constexpr uint8_t kLandingPad[] = {0xf3, 0x0f, 0x1e, 0xfa};
constexpr uint64_t kPageBytes = 4096;
constexpr size_t kMostObjects = 1024;
/// Between two yields of one spin; the first pause of a spin is one.
constexpr uint32_t kPausesAYield = 16;
/// Of a loop that counts its rounds: how often it gives way in vain before it is let run to its end, which
/// may be a million rounds away. Behind that stands what its thread sleeps at. One where nobody else can ever
/// change anything is let run as well: it is a request that computes for ever, which has its own end
/// (setting endless_s).
constexpr uint32_t kMostWays = 16;

struct Object {
    const link_map* map;
    const void* dynamic;
    CodeRange code;
};

/// What the program's headers say of an object.
struct Layout {
    CodeRange code;
    const uint8_t* functions = nullptr;  ///< .eh_frame_hdr
    int protection = 0;
};

/// Of this process, with its code: a forked child goes on with a copy of both.
/// They hold something before constructors run, which must not clear them.
constinit Object objects[kMostObjects] = {};
size_t object_count;
PauseSites pauses;
RandomSites randoms;
JumpSites jumps;
/// One of them is a jump for now, in code that can be written: a thread runs through its loop that has the
/// turn.
struct Untrapped {
    uint64_t at;  ///< 0: none is
    int protection;
};
Untrapped untrapped;
bool loops_are_trapped;
bool loops_stay;
/// Jumps that a thread once waited at, and that were no wait too often since (an interpreter's: all that it
/// runs comes by there). They are looked for anew each time.
constexpr size_t kMostReleased = 256;
uint64_t released[kMostReleased];
size_t released_count;
uint64_t loader_hook;  ///< where the loader says that objects have come or gone

bool protect(uint64_t begin, uint64_t end, int protection) {
    const uint64_t first = begin & ~(kPageBytes - 1);
    return raw(SYS_mprotect, first, end - first, protection) == 0;
}

Layout layout_of(const ElfW(Phdr) * headers, size_t count, uint64_t base) {
    Layout found;
    for (size_t i = 0; i < count; ++i) {
        const ElfW(Phdr)& one = headers[i];
        const uint64_t at = base + one.p_vaddr;
        if (one.p_type == PT_GNU_EH_FRAME) found.functions = reinterpret_cast<const uint8_t*>(at);
        // Linkers make one of them; of several the first is looked at.
        if (one.p_type != PT_LOAD || !(one.p_flags & PF_X) || !(one.p_flags & PF_R) || found.code.end != 0)
            continue;
        found.code = {at, at + one.p_filesz};
        found.protection = PROT_READ | PROT_EXEC | (one.p_flags & PF_W ? PROT_WRITE : 0);
    }
    return found;
}

Layout layout_of(const link_map& map, bool is_program) {
    if (is_program)
        return layout_of(reinterpret_cast<const ElfW(Phdr)*>(getauxval(AT_PHDR)), getauxval(AT_PHNUM),
                         map.l_addr);
    ElfW(Ehdr) head;
    if (!fetch(head, reinterpret_cast<const void*>(map.l_addr)) || memcmp(head.e_ident, ELFMAG, SELFMAG) != 0)
        return {};
    return layout_of(reinterpret_cast<const ElfW(Phdr)*>(map.l_addr + head.e_phoff), head.e_phnum,
                     map.l_addr);
}

void put(uint64_t at, uint8_t byte) {
    *reinterpret_cast<volatile uint8_t*>(at) = byte;
}

/// sites.all[from...] lie in one object, and become traps, but for those that cannot be changed.
template <typename Sites>
void set_traps(Sites& sites, size_t from, int protection) {
    const auto page_of = [&](size_t i) { return sites.all[i].at & ~(kPageBytes - 1); };
    size_t kept = from;
    for (size_t i = from; i < sites.count;) {
        const uint64_t page = page_of(i);
        const bool changes = protect(page, page + kPageBytes, protection | PROT_WRITE);
        for (; i < sites.count && page_of(i) == page; ++i) {
            if (!changes) continue;
            put(sites.all[i].at, kTrap);
            sites.all[kept++] = sites.all[i];
        }
        if (changes) protect(page, page + kPageBytes, protection);
    }
    sites.count = kept;
    sites.sort();
}

void trap_loops_in(const Layout& layout) {
    const size_t before = jumps.count;
    find_jumps(layout.code, layout.protection, FunctionTable(layout.functions), jumps);
    set_traps(jumps, before, layout.protection);
}

/// Pauses and what draws are found before one is changed: the walk through a function comes by the others. By
/// a pause that is a trap it comes as well.
void set_traps_in(const Layout& layout) {
    const size_t pauses_before = pauses.count, randoms_before = randoms.count;
    const FunctionTable functions(layout.functions);
    if (domain().trap_randoms) find_randoms(layout.code, functions, randoms);
    if (domain().trap_pauses) find_pauses(layout.code, functions, pauses);
    if (loops_are_trapped) trap_loops_in(layout);
    set_traps(randoms, randoms_before, layout.protection);
    set_traps(pauses, pauses_before, layout.protection);
}

bool holds(CodeRange code, uint64_t address) {
    return address >= code.begin && address < code.end;
}

bool is_left_alone(CodeRange code) {
    return holds(code, reinterpret_cast<uint64_t>(&gnu_get_libc_version)) ||
           holds(code, reinterpret_cast<uint64_t>(&trap_pauses)) || holds(code, _r_debug.r_brk);
}

bool is_loaded(const Object& one) {
    for (const link_map* map = _r_debug.r_map; map; map = map->l_next)
        if (map == one.map && map->l_ld == one.dynamic) return true;
    return false;
}

void forget_unloaded() {
    size_t kept = 0;
    for (size_t i = 0; i < object_count; ++i) {
        if (is_loaded(objects[i])) {
            objects[kept++] = objects[i];
            continue;
        }
        pauses.forget(objects[i].code);
        randoms.forget(objects[i].code);
        jumps.forget(objects[i].code);
        const auto is_gone = [&](uint64_t at) { return holds(objects[i].code, at); };
        released_count =
            static_cast<size_t>(std::remove_if(released, released + released_count, is_gone) - released);
        if (holds(objects[i].code, untrapped.at)) untrapped = {};
    }
    object_count = kept;
}

bool is_known(const link_map& map) {
    return std::any_of(objects, objects + object_count, [&](const Object& one) { return one.map == &map; });
}

bool may_be_changed(const Layout& layout) {
    return layout.code.end != 0 && layout.functions && !is_left_alone(layout.code);
}

/// The loader stands still meanwhile: it is called by it, or before any other thread is.
void look_at_objects() {
    const uint64_t kernels = getauxval(AT_SYSINFO_EHDR);
    forget_unloaded();
    for (const link_map* map = _r_debug.r_map; map; map = map->l_next) {
        if (object_count == kMostObjects) return;
        if (is_known(*map) || (kernels != 0 && map->l_addr == kernels)) continue;
        const Layout layout = layout_of(*map, map == _r_debug.r_map);
        objects[object_count++] = {map, map->l_ld, layout.code};
        if (may_be_changed(layout)) set_traps_in(layout);
    }
}

/// The loader calls an empty function of its own for debuggers, when objects are mapped and none of their
/// code has run.
void trap_loader() {
    const auto at = static_cast<uint64_t>(_r_debug.r_brk);
    const auto* code = reinterpret_cast<const uint8_t*>(at);
    const bool pad = memcmp(code, kLandingPad, sizeof(kLandingPad)) == 0;
    if (code[pad ? sizeof(kLandingPad) : 0] != kReturn) return;
    if (!protect(at, at + 1, PROT_READ | PROT_WRITE | PROT_EXEC)) return;
    *reinterpret_cast<volatile uint8_t*>(at) = kTrap;
    protect(at, at + 1, PROT_READ | PROT_EXEC);
    loader_hook = at;
}

/// As its only instruction does.
void return_from_hook(ucontext_t& context) {
    greg_t* registers = context.uc_mcontext.gregs;
    registers[REG_RIP] = *reinterpret_cast<const greg_t*>(registers[REG_RSP]);
    registers[REG_RSP] += sizeof(greg_t);
}

/// In the midst of an operation, or unscheduled, nobody else is in the way. (Under `parallel` another thread
/// may be at work.)
uint64_t draw() {
    uint64_t value = 0;
    if (!self.active) {
        raw(SYS_getrandom, &value, sizeof(value), 0);
    } else if (serial() && scheduler().is_at_work()) {
        fill_random(&value, sizeof(value));
    } else {
        Operation turn(Op::kEntropy, own_key());
        fill_random(&value, sizeof(value));
    }
    return value;
}

bool take_random(uint64_t at, ucontext_t& context) {
    const RandomSite* const site = randoms.find(at);
    if (!site) return false;
    const RandomInstruction instruction = site->instruction;
    give_random(instruction, at, draw(), context);
    return true;
}

void spin() {
    if (self.spins.pauses != 0 && self.spins.pauses < kPausesAYield) {
        ++self.spins.pauses;
        return;
    }
    make_way(Awaited::kMemory);
    self.spins.pauses = 1;
}

bool may_spin() {
    // In the midst of an operation only the program's allocator comes here, called by libc: it has the turn.
    return self.active && !scheduler().is_at_work();
}

/// Up to the thread's next operation. None of the others runs before that.
void let_run(const JumpSite& site) {
    trap_again();
    if (!protect(site.at, site.at + 1, site.protection | PROT_WRITE)) return;
    put(site.at, site.opcode);
    untrapped = {site.at, site.protection};
    self.spins.untrapped = true;
}

/// Of all that a loop which counts nothing could go by, but for memory.
uint64_t round_of(const greg_t* registers) {
    constexpr uint64_t kPrime = 0x9e3779b97f4a7c15;
    uint64_t sum = kPrime;
    for (int i = REG_R8; i <= REG_RIP; ++i) {
        sum = (sum ^ static_cast<uint64_t>(registers[i])) * kPrime;
        sum ^= sum >> 29;
    }
    return sum;
}

/// Programs have such jumps that are no loop's in truth: only a thread that is back as it was waits. One that
/// waits in two loops by turns is never quite as it was.
bool is_back(uint64_t round) {
    constexpr uint32_t kMostOthers = 256;
    if (round == self.spins.round) return true;
    self.spins.round = round;
    return ++self.spins.other_rounds % kMostOthers == 0;
}

bool is_released(uint64_t at) {
    return std::find(released, released + released_count, at) != released + released_count;
}

/// A jump that somebody waited at, and who comes by now may not: seldom in the way, and after many such times
/// no trap any more. True: it waits.
bool waits_at(JumpSite& site, uint64_t round) {
    constexpr uint16_t kMostOthers = 4096, kSeldom = 64;
    const bool back = round == site.round || round == self.spins.round;
    site.round = round;
    site.others = back ? 0 : site.others + 1;
    if (site.others < kMostOthers || released_count == kMostReleased) return site.others % kSeldom == 0;
    if (!protect(site.at, site.at + 1, site.protection | PROT_WRITE)) return true;
    put(site.at, site.opcode);
    protect(site.at, site.at + 1, site.protection);
    released[released_count++] = site.at;
    jumps.forget({site.at, site.at + 1});
    return false;
}

/// That the jump closes, a short one that was found beforehand.
CodeRange loop_of(const JumpSite& site) {
    return {target_of_jump(site.at, reinterpret_cast<const uint8_t*>(site.at)[1]), site.at};
}

/// The loop that the jump closes is moved, as it is passed again and again. When does not matter to the
/// schedule: a further round meets the trap of the copy as it would have met this one. It matters to where
/// memory is free, so each pass counts, also one in a search (endless_rounds.hpp).
void move_away(const JumpSite& site) {
    // One that may be left half way stays where it is; and a page that is open for another one stays open.
    const bool may_move = untrapped.at == 0 && !loops_stay && !jumps.full();
    const uint64_t trap = put_elsewhere(loop_of(site), site.opcode, may_move);
    if (trap == 0) return;
    JumpSite moved = site;
    moved.at = trap;
    moved.moved_from = site.at;
    moved.opcode = kLongJump;
    moved.length = kStubJumpBytes;
    moved.protection = PROT_READ | PROT_EXEC;
    jumps.add(moved);
    jumps.sort();
}

void note_passed(JumpSite& site) {
    constexpr uint16_t kPassedBefore = 64;
    if (site.passed == kPassedBefore || site.was_waited_in || site.moved_from != 0 || !may_spin()) return;
    if (++site.passed == kPassedBefore) move_away(site);
}

bool take_jump(uint64_t at, ucontext_t& context) {
    JumpSite* const site = jumps.find(at);
    if (!site) return false;
    greg_t* registers = context.uc_mcontext.gregs;
    uint8_t code[kLongestJumpBytes];
    Jump jump{};
    read_trapped_jump(at, code, jump);
    const bool taken = jump.is_taken(static_cast<uint64_t>(registers[REG_EFL]));
    registers[REG_RIP] = static_cast<greg_t>(taken ? jump.target(at) : at + jump.length);
    if (!taken) note_passed(*site);
    if (!taken || !may_spin()) return true;
    const uint64_t round = round_of(registers);
    if (site->was_waited_in ? !waits_at(*site, round) : !site->counts && !is_back(round)) {
        self.spins.round = round;
        return true;
    }
    const bool in_vain = self.spins.in_vain >= kMostWays;
    if (in_vain && (site->counts || (site->was_waited_in && !others_may_come())))
        let_run(*site);
    else
        make_way(Awaited::kMemory);  // each time: nobody else runs while it looks
    self.spins.round = round;
    return true;
}

}  // namespace

void trap_again() {
    if (untrapped.at != 0) {
        put(untrapped.at, kTrap);
        protect(untrapped.at, untrapped.at + 1, untrapped.protection);
    }
    untrapped = {};
    self.spins.untrapped = false;
}

bool is_to_be_real(char** environment, const char* name) {
    const char* wanted = find_variable(environment, name);
    return wanted && strcmp(wanted, "real") == 0;
}

void choose_pauses(char** environment) {
    domain().trap_pauses = serial() && !is_to_be_real(environment, "CRANE_PAUSE");
    domain().trap_randoms = !is_to_be_real(environment, "CRANE_RDRAND");
}

void trap_pauses() {
    if (!domain().trap_pauses && !domain().trap_randoms) return;
    look_at_objects();
    trap_loader();
}

void leave_loops_in_place(uint64_t at) {
    const auto holds_it = [&](const JumpSite& site) {
        return site.moved_from == 0 && !site.was_waited_in && at <= site.at && at > loop_of(site).begin;
    };
    loops_stay = loops_stay || std::any_of(jumps.all, jumps.all + jumps.count, holds_it);
}

void trap_loops() {
    if (loops_are_trapped || !domain().trap_pauses) return;
    loops_are_trapped = true;
    forget_unloaded();
    for (size_t i = 0; i < object_count; ++i) {
        const Layout layout = layout_of(*objects[i].map, objects[i].map == _r_debug.r_map);
        if (may_be_changed(layout)) trap_loops_in(layout);
    }
}

bool read_trapped_jump(uint64_t at, uint8_t (&code)[kLongestJumpBytes], Jump& jump) {
    const JumpSite* const site = jumps.find(at);
    if (!site) return false;
    code[0] = site->opcode;
    memcpy(code + 1, reinterpret_cast<const uint8_t*>(at) + 1, site->length - size_t{1});
    return read_jump(code, site->length, jump);
}

void pass_trapped_jump(uint64_t at) {
    if (JumpSite* const site = jumps.find(at)) note_passed(*site);
}

bool trap_jump_at(uint64_t at) {
    trap_loops();  // which looks at code without traps
    if (jumps.find(at)) return true;
    if (is_released(at)) return false;
    Jump jump{};
    if (jumps.full() || !read_jump(reinterpret_cast<const uint8_t*>(at), kLongestJumpBytes, jump))
        return false;
    for (size_t i = 0; i < object_count; ++i) {
        if (!holds(objects[i].code, at)) continue;
        const Layout layout = layout_of(*objects[i].map, objects[i].map == _r_debug.r_map);
        if (!may_be_changed(layout)) return false;
        const size_t before = jumps.count;
        jumps.add({at, *reinterpret_cast<const uint8_t*>(at), jump.length, false, true,
                   static_cast<uint8_t>(layout.protection), 0, 0, 0, 0});
        set_traps(jumps, before, layout.protection);
        return jumps.count > before;
    }
    return false;
}

bool take_pause(const siginfo_t& info, ucontext_t& context) {
    if (info.si_code != SI_KERNEL) return false;
    const auto at = static_cast<uint64_t>(context.uc_mcontext.gregs[REG_RIP]) - 1;
    if (at == loader_hook && loader_hook != 0) {
        if (_r_debug.r_state == r_debug::RT_CONSISTENT) look_at_objects();
        return_from_hook(context);
        return true;
    }
    if (take_random(at, context)) return true;
    if (take_jump(at, context)) return true;
    if (!pauses.find(at)) return false;
    if (may_spin()) spin();
    return true;
}

}  // namespace crane::interpose
