// rdrand and rdseed: which bytes are one, and what they do.
#include <catch2/catch.hpp>
#include <vector>

#include "interpose/core/random_instructions.hpp"

using namespace crane::interpose;

namespace {

/// With so many prefixes before the opcode; {} if it is none.
std::vector<int> read(const std::vector<uint8_t>& code, size_t prefixes) {
    RandomInstruction found;
    if (!read_random_instruction(code.data() + prefixes, prefixes, found)) return {};
    return {found.bytes, found.target, found.size};
}

ucontext_t drawn(const RandomInstruction& instruction, int place, uint64_t before, uint64_t value) {
    ucontext_t context{};
    context.uc_mcontext.gregs[place] = static_cast<greg_t>(before);
    context.uc_mcontext.gregs[REG_EFL] = 0x8d5 | 0x200;
    give_random(instruction, 0x1000, value, context);
    return context;
}

}  // namespace

TEST_CASE("random instructions: are read with their prefixes", "[interpose]") {
    CHECK(read({0x0f, 0xc7, 0xf0}, 0) == std::vector<int>{3, 0, 4});              // rdrand eax
    CHECK(read({0x48, 0x0f, 0xc7, 0xf3}, 1) == std::vector<int>{4, 3, 8});        // rdrand rbx
    CHECK(read({0x49, 0x0f, 0xc7, 0xf5}, 1) == std::vector<int>{4, 13, 8});       // rdrand r13
    CHECK(read({0x66, 0x0f, 0xc7, 0xf1}, 1) == std::vector<int>{4, 1, 2});        // rdrand cx
    CHECK(read({0x66, 0x41, 0x0f, 0xc7, 0xf8}, 2) == std::vector<int>{5, 8, 2});  // rdseed r8w
    CHECK(read({0x48, 0x0f, 0xc7, 0xff}, 1) == std::vector<int>{4, 7, 8});        // rdseed rdi
    CHECK(read({0x0f, 0xc7, 0x0e}, 0).empty());                                   // cmpxchg8b
    CHECK(read({0x0f, 0xc7, 0xe6}, 0).empty());                                   // no instruction
    CHECK(read({0x90, 0x0f, 0xc7, 0xf0}, 1).empty());                             // nop; rdrand eax
    CHECK(read({0x48, 0x66, 0x0f, 0xc7, 0xf0}, 2).empty());  // what stands before the prefix has no effect
}

TEST_CASE("random instructions: fill their register, and only that", "[interpose]") {
    const uint64_t before = 0x1111'1111'1111'1111, value = 0x2222'3333'4444'5555;
    const auto filled = [&](uint8_t target, uint8_t size, int place) {
        const ucontext_t context = drawn({1, 4, target, size}, place, before, value);
        CHECK(context.uc_mcontext.gregs[REG_RIP] == 0x1004);
        CHECK(context.uc_mcontext.gregs[REG_EFL] == 0x201);  // carry: it drew
        return static_cast<uint64_t>(context.uc_mcontext.gregs[place]);
    };
    CHECK(filled(0, 8, REG_RAX) == value);
    CHECK(filled(13, 8, REG_R13) == value);
    CHECK(filled(6, 4, REG_RSI) == 0x4444'5555);
    CHECK(filled(1, 2, REG_RCX) == 0x1111'1111'1111'5555);
}
