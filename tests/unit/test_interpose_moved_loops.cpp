// Loops that look at memory, moved so that passing them meets no trap.
#include <signal.h>
#include <ucontext.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <vector>

#include "interpose/core/loop_move.hpp"
#include "interpose/core/moved_loops.hpp"
#include "interpose/core/spin_loops.hpp"

using namespace crane::interpose;

// Each is a function of an address, whose loop begins at …_head and is closed at …_jump.
#define LOOP(name, before, body, behind) \
    __asm__(".text\n" name ": " before "\n" name "_head: " body "\n " behind "\n ret\n .skip 8, 0x90\n")
LOOP("crane_test_case", "xor %eax, %eax",
     "cmpl $0xc, 0x2c(%rdi)\n crane_test_case_jump: ja crane_test_case_head", "mov 0x2c(%rdi), %eax");
LOOP("crane_test_relative", "xor %eax, %eax",
     "mov crane_test_word(%rip), %eax\n test %eax, %eax\n"
     "crane_test_relative_jump: jne crane_test_relative_head",
     "mov $7, %eax");
LOOP("crane_test_exits", "mov $1, %eax",
     "mov (%rdi), %ecx\n cmp $3, %ecx\n je 1f\n cmp $4, %ecx\n je 2f\n"
     "crane_test_exits_jump: jmp crane_test_exits_head",
     "1: inc %eax\n 2: inc %eax");
LOOP("crane_test_inner", "mov $1, %eax",
     "mov (%rdi), %ecx\n test %ecx, %ecx\n js 1f\n mov 4(%rdi), %ecx\n 1: test %ecx, %ecx\n"
     "crane_test_inner_jump: jne crane_test_inner_head",
     "add $4, %eax");
LOOP("crane_test_short", "xor %eax, %eax",
     "test %eax, (%rdi)\n crane_test_short_jump: jne crane_test_short_head", "");
LOOP("crane_test_entered", "jmp 1f",
     "nop\n 1: mov (%rdi), %eax\n test %eax, %eax\n crane_test_entered_jump: jne crane_test_entered_head",
     "");

extern "C" {
uint32_t crane_test_word;
#define DECLARE(name)          \
    int name(const uint32_t*); \
    extern const uint8_t name##_head[], name##_jump[];
DECLARE(crane_test_case)
DECLARE(crane_test_relative)
DECLARE(crane_test_exits)
DECLARE(crane_test_inner)
DECLARE(crane_test_short)
DECLARE(crane_test_entered)
}

namespace {

CodeRange loop_of(const uint8_t* head, const uint8_t* jump) {
    return {reinterpret_cast<uint64_t>(head), reinterpret_cast<uint64_t>(jump)};
}

/// Ends the round that the trap was met in, as somebody else would.
uint64_t trap_at, head_at;
uint32_t* awaited;
uint32_t awaited_value;
int traps;

void on_trap(int, siginfo_t*, void* given) {
    greg_t* registers = static_cast<ucontext_t*>(given)->uc_mcontext.gregs;
    if (static_cast<uint64_t>(registers[REG_RIP]) - 1 != trap_at) abort();
    registers[REG_RIP] = static_cast<greg_t>(head_at);
    if (++traps == 3) *awaited = awaited_value;
}

struct Trapping {
    Trapping() {
        struct sigaction action {};
        action.sa_sigaction = on_trap;
        action.sa_flags = SA_SIGINFO;
        sigaction(SIGTRAP, &action, &before);
    }
    ~Trapping() { sigaction(SIGTRAP, &before, nullptr); }
    struct sigaction before;
};

struct Moved {
    int (*function)(const uint32_t*);
    const uint8_t *head, *jump;
    std::vector<uint32_t> passes, waits;
    size_t word;  ///< of those, that somebody else changes
    uint32_t change;
};

}  // namespace

TEST_CASE("moved loops: they are passed without a trap, and each further round meets one", "[interpose]") {
#define NAMED(name) name, name##_head, name##_jump
    std::vector<uint32_t> at_case(16), beyond(16);
    at_case[11] = 5;
    beyond[11] = 13;
    const std::vector<Moved> all = {
        {NAMED(crane_test_case), at_case, beyond, 11, 12},
        {NAMED(crane_test_exits), {3}, {9}, 0, 3},
        {NAMED(crane_test_exits), {4}, {9}, 0, 4},
        {NAMED(crane_test_inner), {1, 0}, {1, 1}, 1, 0},
        {NAMED(crane_test_inner), {1, 0}, {0x80000000, 0}, 0, 1},
    };
    const Trapping trapping;
    const uint8_t* moved_last = nullptr;
    for (const Moved& one : all) {
        std::vector<uint32_t> memory = one.passes;
        const int expected = one.function(memory.data());
        if (one.head != moved_last) {
            REQUIRE(loop_closed_by(reinterpret_cast<uint64_t>(one.jump)) == LoopKind::kLooks);
            CHECK(put_elsewhere(loop_of(one.head, one.jump), *one.jump, false) == 0);
            trap_at = put_elsewhere(loop_of(one.head, one.jump), *one.jump);
            REQUIRE(trap_at != 0);
        }
        moved_last = one.head;
        head_at = reinterpret_cast<uint64_t>(one.head);
        traps = 0;
        CHECK(one.function(memory.data()) == expected);
        CHECK(traps == 0);
        memory = one.waits;
        awaited = &memory[one.word];
        awaited_value = one.change;
        const int after = one.function(memory.data());
        CHECK(traps == 3);
        CHECK(after == one.function(memory.data()));
    }
}

TEST_CASE("moved loops: what is named relative to the code is the same from elsewhere", "[interpose]") {
    const Trapping trapping;
    crane_test_word = 0;
    trap_at =
        put_elsewhere(loop_of(crane_test_relative_head, crane_test_relative_jump), *crane_test_relative_jump);
    REQUIRE(trap_at != 0);
    head_at = reinterpret_cast<uint64_t>(crane_test_relative_head);
    CHECK(crane_test_relative(nullptr) == 7);
    crane_test_word = 1;
    awaited = &crane_test_word;
    awaited_value = 0;
    traps = 0;
    CHECK(crane_test_relative(nullptr) == 7);
    CHECK(traps == 3);
}

TEST_CASE("moved loops: where there is no room for a jump, or one into it, they stay", "[interpose]") {
    CHECK(put_elsewhere(loop_of(crane_test_short_head, crane_test_short_jump), *crane_test_short_jump) == 0);
    CHECK(put_elsewhere(loop_of(crane_test_entered_head, crane_test_entered_jump),
                        *crane_test_entered_jump) == 0);
    const uint8_t trapped[] = {0x8b, 0x07, 0xcc, 0x90, 0x85, 0xc0, 0x74, 0xf8};
    const auto at = reinterpret_cast<uint64_t>(trapped);
    MovedLoop moved;
    CHECK_FALSE(move_loop({at, at + 6}, 0x74, at, moved));
    const std::vector<uint8_t> nothing(100, 0x90);
    const auto begin = reinterpret_cast<uint64_t>(nothing.data());
    CHECK_FALSE(move_loop({begin, begin + 40}, 0x74, begin, moved));
}
