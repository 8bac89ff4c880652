// Which machine code may be moved to make room for a jump, and where it then reaches.
#include <catch2/catch.hpp>
#include <cstring>
#include <vector>

#include "interpose/core/x86_code.hpp"

using namespace crane::interpose;

namespace {

using Code = std::vector<uint8_t>;

size_t length_of(Code code, size_t* relative = nullptr) {
    code.resize(code.size() + 16, 0xcc);
    size_t place = 0;
    const size_t length = movable_length(code.data(), code.size(), place);
    if (relative) *relative = place;
    return length;
}

}  // namespace

TEST_CASE("machine code: what compilers put behind rdtsc may be moved") {
    const std::vector<Code> whole = {
        {0x48, 0xc1, 0xe2, 0x20},                          // shl $32,%rdx
        {0x48, 0x09, 0xd0},                                // or %rdx,%rax
        {0x48, 0x89, 0xc6},                                // mov %rax,%rsi
        {0x89, 0xc0},                                      // mov %eax,%eax
        {0x48, 0x8b, 0xb5, 0xe8, 0xf6, 0xff, 0xff},        // mov -0x918(%rbp),%rsi
        {0x83, 0xe0, 0x7f},                                // and $0x7f,%eax
        {0x8b, 0x4c, 0x24, 0x40},                          // mov 0x40(%rsp),%ecx
        {0x41, 0x8b, 0x4c, 0x24, 0x40},                    // mov 0x40(%r12),%ecx
        {0x31, 0xd2},                                      // xor %edx,%edx
        {0x48, 0x05, 0x81, 0x04, 0x00, 0x00},              // add $0x481,%rax
        {0x48, 0x81, 0xc1, 0x81, 0x04, 0x00, 0x00},        // add $0x481,%rcx
        {0x48, 0x8b, 0x04, 0x25, 0x10, 0x00, 0x00, 0x00},  // mov 0x10,%rax
        {0x48, 0xb8, 1, 2, 3, 4, 5, 6, 7, 8},              // mov $…,%rax
        {0xb8, 1, 2, 3, 4},                                // mov $…,%eax
        {0xc7, 0x45, 0xfc, 0x01, 0x00, 0x00, 0x00},        // movl $1,-4(%rbp)
        {0x0f, 0xb6, 0x45, 0xfc},                          // movzbl -4(%rbp),%eax
        {0x48, 0x0f, 0xaf, 0xc2},                          // imul %rdx,%rax
        {0x48, 0xf7, 0xe1},                                // mul %rcx
    };
    for (const Code& one : whole) {
        CAPTURE(one);
        CHECK(length_of(one) == one.size());
    }
    size_t relative = 0;
    CHECK(length_of({0x48, 0x8d, 0x15, 0x86, 0x61, 0xab, 0x01}, &relative) == 7);  // lea …(%rip),%rdx
    CHECK(relative == 3);
    CHECK(length_of({0xc7, 0x05, 1, 0, 0, 0, 7, 0, 0, 0}, &relative) == 10);  // movl $7,1(%rip)
    CHECK(relative == 2);
}

TEST_CASE("machine code: what goes elsewhere, or is not known, is not moved") {
    const std::vector<Code> refused = {
        {0xc3},
        {0xe8, 1, 2, 3, 4},
        {0xe9, 1, 2, 3, 4},
        {0xeb, 5},
        {0x74, 5},
        {0x0f, 0x84, 1, 2, 3, 4},
        {0xff, 0xd0},
        {0xff, 0xe0},
        {0xcd, 0x80},
        {0x0f, 0x05},
        {0x0f, 0x31},
        {0xf3, 0x90},
        {0x66, 0x90},
        {0x64, 0x8b, 0x04, 0x25, 0, 0, 0, 0},
        {0xf0, 0x01, 0x03},
        {0xf7, 0xc8},
        {0xc7, 0xf8},
        {0x0f, 0x01, 0xf9},
    };
    for (const Code& one : refused) {
        CAPTURE(one);
        CHECK(length_of(one) == 0);
    }
    const uint8_t cut[] = {0x48, 0x8b, 0xb5, 0xe8};
    size_t relative = 0;
    CHECK(movable_length(cut, sizeof(cut), relative) == 0);
    CHECK(movable_length(cut, 1, relative) == 0);
    CHECK(movable_length(cut, 0, relative) == 0);
}

TEST_CASE("machine code: moved code reaches the same memory") {
    const uint8_t code[16] = {0x48, 0x8d, 0x15, 0x00, 0x10, 0x00, 0x00, 0xcc};  // lea 0x1000(%rip),%rdx
    MovedCode moved;
    REQUIRE(move_code(code, sizeof(code), 0x400000, 0x300000, 3, moved));
    CHECK(moved.size == 7);
    int32_t distance = 0;
    std::memcpy(&distance, moved.bytes + 3, sizeof(distance));
    CHECK(distance == 0x101000);
    CHECK_FALSE(move_code(code, sizeof(code), 0x7f0000000000, 0x300000, 3, moved));  // out of reach
    const uint8_t pair[16] = {0x89, 0xc0, 0x89, 0xd2, 0xc3};
    REQUIRE(move_code(pair, sizeof(pair), 1000, 2000, 3, moved));
    CHECK(moved.size == 4);
    CHECK_FALSE(move_code(pair, sizeof(pair), 1000, 2000, 5, moved));  // a return is in the way
}

TEST_CASE("machine code: jumps into the room of a jump are found") {
    Code code(64, 0x90);
    const uint64_t at = 0x1000;
    CHECK_FALSE(jumps_into(code.data(), code.size(), at, at + 21, at + 25));
    code[2] = 0x75;
    code[3] = 18;  // to 22
    CHECK(jumps_into(code.data(), code.size(), at, at + 21, at + 25));
    code[3] = 16;  // to 20, the instruction itself
    CHECK_FALSE(jumps_into(code.data(), code.size(), at, at + 21, at + 25));
    code[40] = 0xeb;
    code[41] = static_cast<uint8_t>(-20);  // back to 22
    CHECK(jumps_into(code.data(), code.size(), at, at + 21, at + 25));
    code[40] = 0x0f;
    code[41] = 0x8f;
    const int32_t back = 23 - 46;
    std::memcpy(&code[42], &back, sizeof(back));
    CHECK(jumps_into(code.data(), code.size(), at, at + 21, at + 25));
    code[40] = 0x90;
    CHECK_FALSE(jumps_into(code.data(), code.size(), at, at + 21, at + 25));
    code[41] = 0xe8;
    CHECK(jumps_into(code.data(), code.size(), at, at + 21, at + 25));
}
