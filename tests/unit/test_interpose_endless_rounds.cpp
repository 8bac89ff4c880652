// Where instructions write, and rounds without end, tried on what the processor does: code that runs step by
// step, by the trap flag.
#include <signal.h>
#include <sys/ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "interpose/core/frame_state.hpp"
#include "interpose/core/jumps.hpp"
#include "interpose/core/state_cycle.hpp"
#include "interpose/core/user_memory.hpp"
#include "interpose/core/x86_length.hpp"
#include "interpose/core/x86_writes.hpp"

using namespace crane::interpose;

namespace {

constexpr greg_t kTrapFlag = 0x100;

/// Before each step; false: no further ones.
using OnStep = bool (*)(const ucontext_t& context);
OnStep on_step;

void take_step(int, siginfo_t* info, void* given) {
    auto& context = *static_cast<ucontext_t*>(given);
    if (info->si_code == TRAP_TRACE && !on_step(context)) context.uc_mcontext.gregs[REG_EFL] &= ~kTrapFlag;
}

/// The search looks at places that nobody may read (user_memory.hpp).
void take_fault(int, siginfo_t*, void* given) {
    if (!leave_bad_copy(*static_cast<ucontext_t*>(given))) abort();
}

/// Runs `work` with `step` before each instruction. The handler has a stack of its own.
__attribute__((noinline)) void run_stepped(void (*work)(), OnStep step) {
    static std::vector<uint8_t> stack(1 << 18);
    stack_t other{}, before{};
    other.ss_sp = stack.data();
    other.ss_size = stack.size();
    REQUIRE(sigaltstack(&other, &before) == 0);
    struct sigaction action {
    }, old{}, old_fault{};
    action.sa_sigaction = take_fault;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    REQUIRE(sigaction(SIGSEGV, &action, &old_fault) == 0);
    action.sa_sigaction = take_step;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    REQUIRE(sigaction(SIGTRAP, &action, &old) == 0);
    on_step = step;
    asm volatile("pushfq\n orq $0x100, (%%rsp)\n popfq" ::: "memory", "cc");
    work();
    asm volatile("pushfq\n andq $~0x100, (%%rsp)\n popfq" ::: "memory", "cc");
    sigaction(SIGTRAP, &old, nullptr);
    sigaction(SIGSEGV, &old_fault, nullptr);
    sigaltstack(&before, nullptr);
}

const uint8_t* code_at(const ucontext_t& context) {
    // NOLINTNEXTLINE(performance-no-int-to-ptr)
    return reinterpret_cast<const uint8_t*>(context.uc_mcontext.gregs[REG_RIP]);
}

// --- where instructions write

/// What is looked at: memory that the work changes, and the stack.
constexpr size_t kArenaBytes = 4096, kStackBytes = 32768;
alignas(64) uint8_t arena[kArenaBytes];
struct Watched {
    std::vector<uint8_t> arena, stack, now;
    uint64_t stack_at = 0;
    Written expected;
    bool known = false, any = false;
    size_t steps = 0, unknown = 0;
    uint64_t wrong_at = 0;
} watched;

bool lies_in(uint64_t at, const Written& written) {
    return at >= written.at && at - written.at < written.bytes;
}

/// By the copy that no sanitizer looks at: between variables on the stack lies what nobody may touch.
void take(std::vector<uint8_t>& out, uint64_t at) {
    // NOLINTNEXTLINE(performance-no-int-to-ptr)
    crane_copy(out.data(), reinterpret_cast<const void*>(at), out.size());
}

void compare(std::vector<uint8_t>& before, uint64_t at, uint64_t from) {
    std::vector<uint8_t>& now = watched.now;
    now.resize(before.size());
    take(now, at);
    if (memcmp(before.data(), now.data(), now.size()) == 0) return;
    for (size_t i = 0; i < before.size(); ++i) {
        const bool wrong = before[i] != now[i] && watched.known && !lies_in(at + i, watched.expected);
        if (wrong && watched.wrong_at == 0) watched.wrong_at = from;
    }
    before.swap(now);
}

bool watch(const ucontext_t& context) {
    static uint64_t from;
    const auto arena_at = reinterpret_cast<uint64_t>(arena);
    if (watched.any) {
        compare(watched.arena, arena_at, from);
        compare(watched.stack, watched.stack_at, from);
    } else {
        take(watched.arena, arena_at);
        take(watched.stack, watched.stack_at);
    }
    const Registers now = registers_of(context);
    from = now.instruction;
    watched.any = true;
    watched.known =
        find_written(code_at(context), kLongestInstructionBytes, now, thread_base(), watched.expected);
    ++watched.steps;
    watched.unknown += !watched.known;
    return true;
}

void watch_work(void (*work)()) {
    const auto here = reinterpret_cast<uint64_t>(__builtin_frame_address(0));
    watched = {};
    watched.stack_at = here - kStackBytes;
    watched.arena.resize(kArenaBytes);
    watched.stack.resize(kStackBytes);
    watched.now.reserve(kStackBytes);
    run_stepped(work, watch);
    CAPTURE(watched.steps, watched.unknown, watched.wrong_at);
    CHECK(watched.wrong_at == 0);
    CHECK(watched.steps > 100);
    CHECK(watched.unknown * 10 < watched.steps);
}

// --- loops

std::atomic<int> awaited;
std::atomic<unsigned> calls;
volatile unsigned noise[64];

__attribute__((noinline)) int look(int n) {
    noise[n] = static_cast<unsigned>(n);
    return awaited.load();
}

void wait_with_calls() {
    while (true) {
        int seen = 0;
        for (int n = 0; n < 5; ++n) seen += look(n);
        if (seen != 0) return;
    }
}

void try_a_lock() {
    while (awaited.exchange(0) == 0) {
    }
}

void count_calls() {
    while (awaited.load() == 0) calls.fetch_add(1);
}

void ask_the_kernel() {
    while (awaited.load() == 0) getppid();
}

void compute_and_wait() {
    unsigned sum = 1;
    for (unsigned n = 0; n < 200; ++n) noise[n % 64] = sum = sum * 1664525 + n;
    wait_with_calls();
}

/// As interpreters do it: from each instruction straight to the next, and back by none that the code names.
void interpret_and_wait() {
    static const unsigned char program[] = {1, 0, 2};
    const void* const code[] = {&&nothing, &&look, &&again};
    unsigned at = 0;
    goto* code[program[at]];
nothing:
    goto* code[program[++at]];
look:
    if (awaited.load() != 0) return;
    goto* code[program[++at]];
again:
    at = 0;
    goto* code[program[at]];
}

/// As others do it: one loop that calls each instruction, which names the next one.
struct Instruction {
    const Instruction* (*work)(const Instruction*);
};
extern const Instruction walked[4];

const Instruction* step_on(const Instruction* at) {
    return at + 1;
}

const Instruction* look_and_go_back(const Instruction*) {
    return awaited.load() != 0 ? nullptr : walked;
}

const Instruction walked[4] = {{step_on}, {step_on}, {step_on}, {look_and_go_back}};

void walk_and_wait() {
    const Instruction* volatile begin = walked;
    for (const Instruction* at = begin; at;) at = at->work(at);
}

/// What the registers name of it: others hold what was there before the loop.
std::vector<ptrdiff_t> named_by(const Registers& registers) {
    std::vector<ptrdiff_t> named;
    for (const uint64_t value : registers.general) {
        const auto offset = static_cast<ptrdiff_t>(value - reinterpret_cast<uint64_t>(walked));
        named.push_back(offset >= 0 && offset < static_cast<ptrdiff_t>(sizeof(walked)) ? offset : -1);
    }
    return named;
}

struct Found {
    StateCycle cycle;
    RoundTop top;
    StateCycle::Verdict verdict;
    uint32_t left;
    size_t delay;
    uint64_t place;
    Registers closes;  ///< as they are where the round is closed
    bool done;
};
std::unique_ptr<Found> found;

bool search_round(const ucontext_t& context) {
    if (found->delay > 0) return --found->delay, true;
    const Registers now = registers_of(context);
    if (found->verdict == StateCycle::Verdict::kGoOn) {
        found->verdict = found->cycle.step(now, vectors_of(context), code_at(context),
                                           kLongestInstructionBytes, thread_base());
        if (found->verdict == StateCycle::Verdict::kGoOn) return true;
        found->top.begin();
        found->left = found->verdict == StateCycle::Verdict::kRound ? found->cycle.length() : 0;
    }
    if (found->left > 0) {
        found->top.step(now, code_at(context), kLongestInstructionBytes);
        --found->left;
        return true;
    }
    found->place = found->top.place();
    const bool closes = found->verdict == StateCycle::Verdict::kRound && found->top.found();
    if (closes && !found->top.is_at(now)) return true;
    if (closes) found->closes = now;
    found->done = true;
    awaited.store(1);
    return false;
}

/// Looks at `work` from its `delay`th step on.
const Found& search_in(void (*work)(), size_t delay, uint32_t most_steps = 20'000) {
    found = std::make_unique<Found>();
    found->delay = delay;
    awaited.store(0);
    found->cycle.begin(most_steps);
    run_stepped(work, search_round);
    REQUIRE(found->done);
    return *found;
}

}  // namespace

TEST_CASE("x86 writes: what a program does changes no byte but where it was told to be written") {
    srand(7);
    for (uint8_t& byte : arena) byte = static_cast<uint8_t>(rand());
    watch_work([] {
        auto* numbers = reinterpret_cast<int*>(arena);
        qsort(numbers, 200, sizeof(int),
              [](const void* a, const void* b) { return memcmp(a, b, sizeof(int)); });
    });
    watch_work(
        [] { snprintf(reinterpret_cast<char*>(arena), 900, "%.17g %s %08lx", 1.0 / 3, "words", 77L); });
    watch_work([] {
        auto* numbers = reinterpret_cast<double*>(arena + 1024);
        for (int n = 0; n < 60; ++n) numbers[n] = strtod("3.25e7", nullptr) / (n + 1);
        std::sort(numbers, numbers + 60);
    });
    watch_work([] {
        for (size_t n = 1; n < 300; n += 7) {
            memmove(arena + n, arena, n);
            memset(arena + 2048 + n, static_cast<int>(n), n);
            asm volatile("rep stosb" ::"D"(arena + 3000), "c"(n), "a"(n) : "memory");
        }
    });
}

TEST_CASE("x86 writes: what is more than computing is not known") {
    const Registers none{};
    Written written;
    const std::vector<std::vector<uint8_t>> refused = {
        {0x0f, 0x05},                                // syscall
        {0xcc},                                      // int3
        {0x0f, 0x31},                                // rdtsc
        {0x0f, 0xc7, 0xf0},                          // rdrand eax
        {0x0f, 0xa2},                                // cpuid
        {0x9c},                                      // pushf: it would tell the trap flag
        {0x9d},                                      // popf
        {0x65, 0x48, 0x89, 0x04, 0x25, 0, 0, 0, 0},  // mov rax, gs:0
        {0x48, 0x0f, 0xab, 0x07},                    // bts [rdi], rax
        {0x0f, 0xae, 0x07},                          // fxsave [rdi]
        {0x66, 0x0f, 0x38, 0xf8, 0x07},              // movdir64b
        {0x0f, 0x0b},                                // ud2
        {0x06},                                      // none at all
    };
    for (const std::vector<uint8_t>& code : refused) {
        CAPTURE(code);
        CHECK_FALSE(find_written(code.data(), code.size(), none, 0, written));
    }
}

TEST_CASE("x86 writes: places are reckoned from registers, segments and the instruction's own place") {
    Registers registers{};
    for (size_t i = 0; i < kGeneralRegisters; ++i) registers.general[i] = 0x1000 * (i + 1);
    registers.instruction = 0x400000;
    const auto place = [&](const std::vector<uint8_t>& code) {
        Written written;
        REQUIRE(find_written(code.data(), code.size(), registers, 0x7000'0000, written));
        return written.bytes == 0 ? 0 : written.at;
    };
    CHECK(place({0x89, 0x07}) == 0x8000);                                           // mov [rdi], eax
    CHECK(place({0x89, 0x47, 0xf8}) == 0x7ff8);                                     // mov [rdi-8], eax
    CHECK(place({0x89, 0x44, 0x8f, 0x10}) == 0x8000 + 4 * 0x2000 + 16);             // mov [rdi+rcx*4+16], eax
    CHECK(place({0x43, 0x89, 0x04, 0xec}) == 0xd000 + 8 * 0xe000);                  // mov [r12+r13*8], eax
    CHECK(place({0x89, 0x05, 0x10, 0, 0, 0}) == 0x400016);                          // mov [rip+16], eax
    CHECK(place({0x64, 0x89, 0x04, 0x25, 0xf0, 0xff, 0xff, 0xff}) == 0x6fff'fff0);  // mov fs:-16, eax
    CHECK(place({0x55}) == 0x4ff8);                                                 // push
    CHECK(place({0xff, 0x17}) == 0x4ff8);                                           // call [rdi]
    CHECK(place({0xf0, 0x48, 0x0f, 0xb1, 0x0e}) == 0x7000);                         // lock cmpxchg [rsi], rcx
    CHECK(place({0xc5, 0xfe, 0x7f, 0x46, 0x20}) == 0x7020);                         // vmovdqu [rsi+32], ymm0
    CHECK(place({0xc4, 0x41, 0x7e, 0x7f, 0x02}) == 0xb000);                         // vmovdqu [r10], ymm8
    CHECK(place({0x48, 0x8d, 0x07}) == 0);                                          // lea
    CHECK(place({0x01, 0xc8}) == 0);                                                // add eax, ecx
}

TEST_CASE("jumps: short and long ones are read alike") {
    Jump jump;
    REQUIRE(read_jump(reinterpret_cast<const uint8_t*>("\x74\xfe"), 2, jump));
    CHECK((jump.goes_back() && jump.target(100) == 100 && jump.is_taken(0x40) && !jump.is_taken(0)));
    REQUIRE(read_jump(reinterpret_cast<const uint8_t*>("\x0f\x85\x00\xff\xff\xff"), 6, jump));
    CHECK((jump.goes_back() && jump.target(1000) == 750 && !jump.is_taken(0x40) && jump.is_taken(0)));
    REQUIRE(read_jump(reinterpret_cast<const uint8_t*>("\xe9\x10\x00\x00\x00"), 5, jump));
    CHECK((!jump.goes_back() && jump.target(1000) == 1021 && jump.is_taken(0)));
    CHECK_FALSE(read_jump(reinterpret_cast<const uint8_t*>("\xe9\x10\x00"), 3, jump));
    CHECK_FALSE(read_jump(reinterpret_cast<const uint8_t*>("\xc3\x90"), 2, jump));
}

TEST_CASE("endless rounds: a loop that waits is found, with the same jump from wherever one looks") {
    for (void (*const work)() : {wait_with_calls, try_a_lock, compute_and_wait, interpret_and_wait}) {
        const uint64_t place = search_in(work, 0).place;
        REQUIRE(found->verdict == StateCycle::Verdict::kRound);
        REQUIRE(place != 0);
        for (const size_t delay : {1, 2, 3, 5, 8, 13, 21, 34, 55, 700}) {
            CAPTURE(delay);
            CHECK(search_in(work, delay).verdict == StateCycle::Verdict::kRound);
            CHECK(found->place == place);
        }
    }
}

TEST_CASE(
    "endless rounds: where every jump is taken often, a round is closed at the same state from wherever one "
    "looks") {
    search_in(walk_and_wait, 0);
    REQUIRE(found->verdict == StateCycle::Verdict::kRound);
    REQUIRE(found->top.found());
    REQUIRE(found->place == 0);
    const Registers closes = found->closes;
    for (const size_t delay : {1, 2, 3, 5, 8, 13, 21, 34, 55, 700}) {
        CAPTURE(delay);
        CHECK(search_in(walk_and_wait, delay).verdict == StateCycle::Verdict::kRound);
        CHECK(found->closes.instruction == closes.instruction);
        CHECK(named_by(found->closes) == named_by(closes));
    }
}

TEST_CASE("endless rounds: what counts, or asks the kernel, is none") {
    CHECK(search_in(count_calls, 0).verdict == StateCycle::Verdict::kGivenUp);
    CHECK(search_in(ask_the_kernel, 0).verdict == StateCycle::Verdict::kGivenUp);
    CHECK(search_in(wait_with_calls, 0, 20).verdict == StateCycle::Verdict::kGivenUp);  // too few steps
}
