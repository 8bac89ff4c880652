// Loops that only look at memory, found in machine code; and what their jumps do.
#include <link.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <vector>

#include "interpose/core/jumps.hpp"
#include "interpose/core/spin_loops.hpp"
#include "interpose/core/trap_sites.hpp"
#include "interpose/core/x86_code.hpp"
#include "interpose/core/x86_effects.hpp"

using namespace crane::interpose;

// Two loops, one of them with `pause`; and a number that looks like both.
__asm__(
    ".text\n"
    ".type crane_test_waits, @function\n"
    "crane_test_waits:\n"
    ".cfi_startproc\n"
    "movabs $0xfa74c085078b90f3, %rax\n"
    "1: mov (%rdi), %eax\n test %eax, %eax\n"
    "crane_test_jump: je 1b\n"
    "2: pause\n cmp %eax, (%rdi)\n je 2b\n"
    "ret\n"
    ".cfi_endproc\n"
    "crane_test_waits_end:\n"
    ".size crane_test_waits, .-crane_test_waits\n");
extern "C" {
extern const uint8_t crane_test_waits[], crane_test_jump[], crane_test_waits_end[];
}

namespace {

using Code = std::vector<uint8_t>;

/// A loop whose jump back is its last instruction, with other code around it.
LoopKind kind_of(Code loop) {
    constexpr size_t kAround = 80;
    loop.push_back(static_cast<uint8_t>(-static_cast<int>(loop.size()) - 1));  // the jump's distance
    Code code(kAround, 0x90);
    code.insert(code.end(), loop.begin(), loop.end());
    code.insert(code.end(), kAround, 0x90);
    const auto jump = reinterpret_cast<uint64_t>(code.data() + kAround + loop.size() - 2);
    REQUIRE(may_jump_back(loop[loop.size() - 2], loop.back()));
    REQUIRE(target_of_jump(jump, loop.back()) == reinterpret_cast<uint64_t>(code.data() + kAround));
    return loop_closed_by(jump);
}

bool spins(const Code& loop) {
    return kind_of(loop) == LoopKind::kLooks;
}
bool other(const Code& loop) {
    return kind_of(loop) == LoopKind::kOther;
}
bool counts(const Code& loop) {
    return kind_of(loop) == LoopKind::kCounts;
}

int find_functions(dl_phdr_info* info, size_t, void* header) {
    for (int i = 0; i < info->dlpi_phnum; ++i)
        if (info->dlpi_phdr[i].p_type == PT_GNU_EH_FRAME)
            *static_cast<uint64_t*>(header) = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
    return 1;  // the first is the program
}

}  // namespace

TEST_CASE("spin loops: in a program's code they are found where they are instructions") {
    uint64_t header = 0;
    dl_iterate_phdr(find_functions, &header);
    const FunctionTable functions(reinterpret_cast<const uint8_t*>(header));
    const auto address = [](const uint8_t* code) { return reinterpret_cast<uint64_t>(code); };
    const CodeRange code{address(crane_test_waits), address(crane_test_waits_end)};
    static JumpSites jumps;
    static PauseSites pauses;
    CHECK(loop_closed_by(code.begin + 8) == LoopKind::kLooks);  // in the number
    find_jumps(code, 5, functions, jumps);
    REQUIRE(jumps.count == 1);
    CHECK(jumps.all[0].at == address(crane_test_jump));
    CHECK(jumps.all[0].opcode == 0x74);
    CHECK_FALSE(jumps.all[0].counts);
    CHECK(jumps.find(address(crane_test_jump)) == &jumps.all[0]);
    CHECK(jumps.find(address(crane_test_jump) + 1) == nullptr);
    find_pauses(code, functions, pauses);
    REQUIRE(pauses.count == 1);
    CHECK(pauses.all[0].at == address(crane_test_jump) + 2);
    jumps.forget({code.begin, jumps.all[0].at});
    CHECK(jumps.count == 1);
    jumps.forget(code);
    CHECK(jumps.count == 0);
}

TEST_CASE("spin loops: what looks at the same place until it has changed") {
    const std::vector<Code> found = {
        {0x8b, 0x05, 1, 2, 0, 0, 0x85, 0xc0, 0x74},  // mov …(%rip),%eax; test %eax,%eax; je
        {0x83, 0x3d, 1, 2, 0, 0, 0, 0x75},           // cmpl $0,…(%rip); jne
        {0x39, 0x1f, 0x7e},                          // cmp %ebx,(%rdi); jle
        {0x48, 0x8b, 0x45, 0, 0x48, 0x8b, 0x40, 8, 0x48, 0x39, 0xd8, 0x75},  // a pointer, and what it is to
        {0x8b, 0x07, 0x90, 0xeb},  // who waits for a signal, for ever
        {0x0f, 0xb6, 0x07, 0x84, 0xc0, 0x0f, 0x94, 0xc2, 0x84, 0xd2, 0x75},  // movzbl; test; sete; test; jne
        {0x8b, 0x07, 0x0f, 0xae, 0xe8, 0x85, 0xc0, 0x74},                    // with lfence
        {0x64, 0x8b, 0x04, 0x25, 8, 0, 0, 0, 0x85, 0xc0, 0x74},              // %fs:8
        {0xf3, 0x0f, 0x1e, 0xfa, 0x8b, 0x07, 0x85, 0xc0, 0x74},              // endbr64
        {0x8b, 0x07, 0x66, 0x0f, 0x1f, 0x44, 0, 0, 0x0f, 0xa3, 0xc8, 0x73},  // bt %ecx,%eax; jae
    };
    for (const Code& one : found) {
        CAPTURE(one);
        CHECK(spins(one));
    }
}

TEST_CASE("spin loops: what a round has read may decide the next one") {
    // cmp $1,%esi; jle out; lea …(%rip),%rdx; mov $1,%eax; xor %ecx,%ecx; nopl;
    // inner: add $1,%eax; add $64,%rdx; mov -64(%rdx),%rsi; add %rsi,%rcx; mov …(%rip),%esi; cmp %eax,%esi;
    // jg inner; test %rcx,%rcx; jne
    const Code sum_of_all = {0x83, 0xfe, 0x01, 0x7e, 0x33, 0x48, 0x8d, 0x15, 0xf4, 0xf4, 0x1c, 0,    0xb8,
                             1,    0,    0,    0,    0x31, 0xc9, 0x0f, 0x1f, 0x44, 0,    0,    0x83, 0xc0,
                             1,    0x48, 0x83, 0xc2, 0x40, 0x48, 0x8b, 0x72, 0xc0, 0x48, 0x01, 0xf1, 0x8b,
                             0x35, 0x58, 0xa1, 0x1b, 0,    0x39, 0xc6, 0x7f, 0xe8, 0x48, 0x85, 0xc9, 0x75};
    CHECK(spins(sum_of_all));
    Code goes_on = sum_of_all;  // without clearing the sum in each round
    goes_on[17] = goes_on[18] = 0x90;
    CHECK(other(goes_on));
}

TEST_CASE("spin loops: rounds may be counted") {
    CHECK(
        counts({0x83, 0xe8, 1, 0x74, 9, 0x48, 0x8b, 0x55, 0, 0x48, 0x85, 0xd2, 0x74}));  // sub $1; je; mov; …
    CHECK(
        counts({0xff, 0xc0, 0x39, 0xc8, 0x7d, 7, 0x8b, 0x17, 0x85, 0xd2, 0x74}));  // inc; cmp %ecx,%eax; jge
    CHECK(counts({0x8d, 0x40, 1, 0x39, 0xc8, 0x7d, 7, 0x8b, 0x17, 0x85, 0xd2, 0x74}));  // lea 1(%rax),%eax
    CHECK(other({0xff, 0xc0, 0x8b, 0x14, 0x87, 0x85, 0xd2, 0x74}));  // an array is searched
    CHECK(other({0xff, 0xc0, 0x8b, 0x17, 0x39, 0xc2, 0x75}));        // the number is looked for in memory
    CHECK(other({0x01, 0xd8, 0x8b, 0x17, 0x85, 0xd2, 0x74}));        // a sum
    CHECK(other({0xff, 0xc0, 0x8d, 0x0c, 0x00, 0x8b, 0x17, 0x85, 0xd2, 0x74}));  // twice the number
}

TEST_CASE("spin loops: loops that compute, search or do more are none") {
    const std::vector<Code> others = {
        {0x48, 0x8b, 0x00, 0x48, 0x85, 0xc0, 0x75},  // a list: mov (%rax),%rax; test; jne
        {0x48, 0xff, 0xc7, 0x80, 0x3f, 0, 0x75},     // a string's end: inc %rdi; cmpb $0,(%rdi); jne
        {0x03, 0x07, 0x48, 0x83, 0xc7, 4, 0x48, 0x39, 0xd7, 0x75},  // a sum: add (%rdi),%eax; add $4,%rdi; …
        {0x89, 0x17, 0x83, 0x3e, 0, 0x74},                 // a store: mov %edx,(%rdi); cmpl $0,(%rsi); je
        {0x83, 0x07, 1, 0x83, 0x3e, 0, 0x74},              // addl $1,(%rdi)
        {0xe8, 1, 2, 3, 4, 0x85, 0xc0, 0x74},              // a call
        {0x0f, 0x05, 0x83, 0x3f, 0, 0x74},                 // a system call
        {0x0f, 0x31, 0x83, 0x3f, 0, 0x74},                 // rdtsc
        {0xf3, 0x90, 0x83, 0x3f, 0, 0x74},                 // pause, which is a trap by itself
        {0xf0, 0x0f, 0xb1, 0x17, 0x75},                    // lock cmpxchg
        {0x87, 0x07, 0x85, 0xc0, 0x75},                    // xchg %eax,(%rdi)
        {0xff, 0xc8, 0x75},                                // dec %eax; jne: of memory there is nothing
        {0xff, 0xc0, 0x3b, 0x44, 0x24, 8, 0x75},           // a limit on the stack: cmp 8(%rsp),%eax
        {0xff, 0xc0, 0x8b, 0x4d, 0xf8, 0x39, 0xd0, 0x75},  // or in the frame: mov -8(%rbp),%ecx
        {0x8b, 0x04, 0x86, 0x85, 0xc0, 0x75},              // from table to table: mov (%rsi,%rax,4),%eax
        {0xf3, 0x0f, 0x6f, 0x07, 0x83, 0x3f, 0, 0x74},     // what is not known: movdqu
        {0x83, 0x3f, 0, 0x7f, 0xeb, 0x83, 0x3f, 0, 0x74},  // a jump to shortly before it
        {0xc3, 0x83, 0x3f, 0, 0x74},                       // ret
    };
    for (const Code& one : others) {
        CAPTURE(one);
        CHECK(other(one));
    }
}

TEST_CASE("spin loops: who goes from element to element waits for nobody") {
    // add $8,%r14; cmp %r12,%r14; je out; mov 0x28(%r15),%ecx; test %ecx,%ecx; je: each is looked for in a
    // table, which is empty.
    Code each = {0x49, 0x83, 0xc6, 8, 0x4d, 0x39, 0xe6, 0x74, 60, 0x41, 0x8b, 0x4f, 0x28, 0x85, 0xc9, 0x74};
    CHECK(other(each));
    each[3] = 1;
    CHECK(counts(each));
    CHECK(
        other({0x48, 0x8d, 0x40, 8, 0x39, 0xc8, 0x7d, 7, 0x8b, 0x17, 0x85, 0xd2, 0x74}));  // lea 8(%rax),%rax
}

TEST_CASE("spin loops: what is behind a look at address 0 is no part of a round") {
    // To the next use of a block that is a branch, or the end: xor %eax,%eax; test %esi,%esi; je out;
    // test %rax,%rax; je out; add $-1,%esi; mov 8(%rax),%rax; test %rax,%rax; je
    Code next = {0x31, 0xc0, 0x85, 0xf6, 0x74, 60,   0x48, 0x85, 0xc0, 0x74, 60,
                 0x83, 0xc6, 0xff, 0x48, 0x8b, 0x40, 0x08, 0x48, 0x85, 0xc0, 0x74};
    CHECK(other(next));
    // By another register: mov %rax,%rcx; add $-1,%esi; je out; mov 8(%rcx),%rax; test %rax,%rax; je
    CHECK(other({0x31, 0xc0, 0x48, 0x89, 0xc1, 0x83, 0xc6, 0xff, 0x74, 60, 0x48, 0x8b, 0x41, 8, 0x48, 0x85,
                 0xc0, 0x74}));
    next[0] = 0x89;  // mov %edi,%eax
    next[1] = 0xf8;
    CHECK(counts(next));
    CHECK(spins({0x31, 0xc0, 0x64, 0x8b, 0x40, 8, 0x85, 0xc0, 0x74}));        // %fs:8(%rax)
    CHECK(spins({0x31, 0xc0, 0x8b, 0x80, 0, 0, 0x60, 0, 0x85, 0xc0, 0x74}));  // 0x600000(%rax)
    CHECK(spins({0x31, 0xc0, 0x8b, 0x04, 0x07, 0x85, 0xc0, 0x74}));           // (%rdi,%rax)
}

TEST_CASE("spin loops: a jump is taken where the processor takes it") {
    const auto processor_takes = [](uint8_t opcode, uint64_t flags) {
        bool taken = false;
        switch (opcode & 0xf) {
#define CONDITION(number, name)                                                                           \
    case number:                                                                                          \
        __asm__ volatile("push %1\n popfq\n set" name " %0" : "=r"(taken) : "r"(flags) : "cc", "memory"); \
        break;
            CONDITION(0, "o")
            CONDITION(1, "no")
            CONDITION(2, "b")
            CONDITION(3, "ae")
            CONDITION(4, "e")
            CONDITION(5, "ne")
            CONDITION(6, "be")
            CONDITION(7, "a")
            CONDITION(8, "s")
            CONDITION(9, "ns")
            CONDITION(10, "p")
            CONDITION(11, "np")
            CONDITION(12, "l")
            CONDITION(13, "ge")
            CONDITION(14, "le")
            CONDITION(15, "g")
#undef CONDITION
        }
        return taken;
    };
    const uint64_t each[] = {0x1, 0x4, 0x40, 0x80, 0x800};
    for (unsigned chosen = 0; chosen < 32; ++chosen) {
        uint64_t flags = 0x202;
        for (unsigned i = 0; i < 5; ++i) flags |= chosen >> i & 1 ? each[i] : 0;
        for (uint8_t opcode = 0x70; opcode < 0x80; ++opcode) {
            CAPTURE(opcode, flags);
            CHECK(is_taken(opcode, flags) == processor_takes(opcode, flags));
        }
        CHECK(is_taken(0xeb, flags));
    }
}

TEST_CASE("spin loops: what instructions read and write") {
    const auto effects = [](Code code) {
        Effects out;
        code.resize(code.size() + 16, 0x90);
        REQUIRE(read_effects(code.data(), code.size(), out));
        return out;
    };
    const auto one = [](unsigned number) { return RegisterSet{1} << number; };
    const Effects load = effects({0x4a, 0x8b, 0x7c, 0xa3, 8});  // mov 8(%rbx,%r12,4),%rdi
    CHECK(load.length == 5);
    CHECK(load.reads_memory);
    CHECK_FALSE(load.on_stack);
    CHECK(load.addresses == (one(3) | one(12)));
    CHECK(load.reads == 0);
    CHECK(load.writes == one(7));
    CHECK(effects({0x8b, 0x44, 0x24, 8}).on_stack);                          // mov 8(%rsp),%eax
    CHECK(effects({0x8b, 0x85, 0xf8, 0xff, 0xff, 0xff}).on_stack);           // mov -8(%rbp),%eax
    CHECK_FALSE(effects({0x8b, 0x45, 8}).on_stack);                          // mov 8(%rbp),%eax
    CHECK(effects({0x8a, 0x27}).writes == one(0));                           // mov (%rdi),%ah
    CHECK(effects({0x40, 0x8a, 0x27}).writes == one(4));                     // mov (%rdi),%spl
    CHECK(effects({0x31, 0xc9}).reads == 0);                                 // xor %ecx,%ecx
    CHECK(effects({0x11, 0xc8}).reads == (one(0) | one(1) | one(kFlags)));   // adc %ecx,%eax
    CHECK(effects({0x49, 0xbf, 1, 2, 3, 4, 5, 6, 7, 8}).writes == one(15));  // mov $…,%r15
    CHECK(effects({0x41, 0x83, 0xc4, 1}).steps);                             // add $1,%r12d
    CHECK(effects({0x75, 0xfe}).distance == -2);
    CHECK(effects({0x0f, 0x85, 0, 1, 0, 0}).distance == 256);
}

TEST_CASE("spin loops: a jump back that is a trap keeps others from moving what it goes to") {
    Code code(64, 0x90);
    code[40] = 0xcc;
    code[41] = static_cast<uint8_t>(-20);  // to 22
    CHECK(jumps_into(code.data(), code.size(), 0x1000, 0x1000 + 21, 0x1000 + 25));
}
