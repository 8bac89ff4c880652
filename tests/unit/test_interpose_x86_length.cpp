// Walking through machine code, and the tables that say where functions are.
#include <link.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <vector>

#include "interpose/core/function_table.hpp"
#include "interpose/core/x86_length.hpp"

using namespace crane::interpose;

namespace {

using Code = std::vector<uint8_t>;

size_t length_of(Code code) {
    code.resize(code.size() + kLongestInstructionBytes, 0x90);
    return instruction_length(code.data(), code.size());
}

/// This program's own table, and its code.
struct Own {
    const uint8_t* header = nullptr;
    CodeRange code;
};

int find_own(dl_phdr_info* info, size_t, void* data) {
    Own& own = *static_cast<Own*>(data);
    for (int i = 0; i < info->dlpi_phnum; ++i) {
        const ElfW(Phdr)& one = info->dlpi_phdr[i];
        const uint64_t at = info->dlpi_addr + one.p_vaddr;
        if (one.p_type == PT_GNU_EH_FRAME) own.header = reinterpret_cast<const uint8_t*>(at);
        if (one.p_type == PT_LOAD && (one.p_flags & PF_X)) own.code = {at, at + one.p_filesz};
    }
    return 1;  // the first is the program
}

}  // namespace

TEST_CASE("machine code: the lengths of instructions of every form") {
    const std::vector<Code> whole = {
        {0xc3},                                            // ret
        {0xf3, 0x90},                                      // pause
        {0xf3, 0x0f, 0x1e, 0xfa},                          // endbr64
        {0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0},     // nopw
        {0xe8, 1, 2, 3, 4},                                // call
        {0xeb, 0xfe},                                      // jmp
        {0x0f, 0x84, 1, 2, 3, 4},                          // je
        {0xf0, 0x48, 0x0f, 0xb1, 0x17},                    // lock cmpxchg %rdx,(%rdi)
        {0x48, 0xb8, 1, 2, 3, 4, 5, 6, 7, 8},              // mov $…,%rax
        {0x66, 0xb8, 1, 2},                                // mov $…,%ax
        {0x66, 0x81, 0x3d, 1, 2, 3, 4, 5, 6},              // cmpw $…,…(%rip)
        {0x48, 0xa1, 1, 2, 3, 4, 5, 6, 7, 8},              // movabs …,%rax
        {0xf6, 0x45, 0xfc, 0x01},                          // testb $1,-4(%rbp)
        {0xf6, 0x5d, 0xfc},                                // negb -4(%rbp)
        {0xf7, 0x04, 0x25, 1, 2, 3, 4, 5, 6, 7, 8},        // testl $…,…
        {0xc8, 1, 2, 3},                                   // enter
        {0x64, 0x48, 0x8b, 0x04, 0x25, 0x28, 0, 0, 0},     // mov %fs:40,%rax
        {0x66, 0x0f, 0x3a, 0x0f, 0xc1, 0x08},              // palignr
        {0x66, 0x0f, 0x38, 0x00, 0xc1},                    // pshufb
        {0x0f, 0xc6, 0xc1, 0x1b},                          // shufps
        {0xc5, 0xf8, 0x77},                                // vzeroupper
        {0xc5, 0xfd, 0x6f, 0x06},                          // vmovdqa (%rsi),%ymm0
        {0xc4, 0xe3, 0x7d, 0x39, 0xc1, 0x01},              // vextracti128
        {0xc4, 0xe2, 0x7d, 0x59, 0x05, 1, 2, 3, 4},        // vpbroadcastq …(%rip),%ymm0
        {0x62, 0xf1, 0x7c, 0x48, 0x10, 0x44, 0x24, 0x01},  // vmovups 64(%rsp),%zmm0
        {0x62, 0xf3, 0x75, 0x48, 0x3f, 0xc2, 0x05},        // vpcmpub
        {0x0f, 0x01, 0xf9},                                // rdtscp
        {0x9b},                                            // fwait
    };
    for (const Code& one : whole) {
        CAPTURE(one);
        CHECK(length_of(one) == one.size());
        CHECK(instruction_length(one.data(), one.size() - 1) != one.size());
    }
}

TEST_CASE("machine code: what is no instruction has no length") {
    for (const Code& one : std::vector<Code>{{0x06},
                                             {0x60},
                                             {0x82, 0xc0, 1},
                                             {0x9a},
                                             {0xd6},
                                             {0xea},
                                             {0x0f, 0x04},
                                             {0x48, 0x48, 0x90},
                                             {0x8f, 0xe8, 0x78, 0x10},
                                             {0x66}}) {
        CAPTURE(one);
        CHECK(instruction_length(one.data(), one.size()) == 0);
    }
    CHECK(instruction_length(nullptr, 0) == 0);
}

TEST_CASE("machine code: a walk comes to what is an instruction, and to nothing else") {
    const uint8_t code[] = {0xb8, 0x12, 0xf3, 0x90, 0x12,  // mov $0x1290f312,%eax
                            0xf3, 0x90,                    // pause
                            0xeb, 0xfc};
    CHECK_FALSE(walk_reaches(code, code + 2));
    CHECK(walk_reaches(code, code + 5));
    CHECK(walk_reaches(code + 5, code + sizeof(code)));
}

TEST_CASE("machine code: every function of this program can be walked through to its end") {
    Own own;
    dl_iterate_phdr(find_own, &own);
    REQUIRE(own.header);
    const FunctionTable table(own.header);
    REQUIRE(table.size() > 1000);
    size_t walked = 0;
    for (size_t i = 0; i < table.size(); ++i) {
        const uint64_t begin = table.begin_of(i), end = table.end_of(i);
        if (begin < own.code.begin || begin >= own.code.end) continue;
        CAPTURE(i, begin - own.code.begin);
        REQUIRE(end > begin);
        REQUIRE(walk_reaches(reinterpret_cast<const uint8_t*>(begin), reinterpret_cast<const uint8_t*>(end)));
        CodeRange found;
        REQUIRE(table.find(end - 1, own.code, found));
        REQUIRE(found.begin == begin);
        ++walked;
    }
    CHECK(walked > 1000);
}
