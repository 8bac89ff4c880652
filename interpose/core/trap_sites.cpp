#include "interpose/core/trap_sites.hpp"

#include <emmintrin.h>

#include "interpose/core/spin_loops.hpp"
#include "interpose/core/x86_length.hpp"

namespace crane::interpose {

namespace {

constexpr uint8_t kPause[] = {0xf3, 0x90};

/// Calls take(place) for each byte that looks like an instruction's first: `looks` says so of two bytes, and
/// of sixteen times two, as a mask.
template <typename Looks, typename Take>
void each_candidate(CodeRange code, Looks looks, Take take) {
    const auto* at = reinterpret_cast<const uint8_t*>(code.begin);
    const auto* const end = reinterpret_cast<const uint8_t*>(code.end);
    for (; end - at > 16; at += 16) {
        const __m128i first = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
        const __m128i second = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at + 1));
        for (int mask = looks(first, second); mask != 0; mask &= mask - 1)
            take(at + __builtin_ctz(static_cast<unsigned>(mask)));
    }
    for (; end - at >= 2; ++at)
        if (looks(at[0], at[1])) take(at);
}

int equal_to(__m128i bytes, uint8_t byte) {
    return _mm_movemask_epi8(_mm_cmpeq_epi8(bytes, _mm_set1_epi8(static_cast<char>(byte))));
}

/// What begins with these two bytes.
struct Exactly {
    uint8_t bytes[2];
    int operator()(__m128i first, __m128i second) const {
        return equal_to(first, bytes[0]) & equal_to(second, bytes[1]);
    }
    bool operator()(uint8_t first, uint8_t second) const { return first == bytes[0] && second == bytes[1]; }
};

struct JumpsBack {
    int operator()(__m128i first, __m128i second) const {
        const __m128i kind = _mm_and_si128(first, _mm_set1_epi8(static_cast<char>(0xf0)));
        return (equal_to(kind, 0x70) | equal_to(first, 0xeb)) & _mm_movemask_epi8(second);
    }
    bool operator()(uint8_t first, uint8_t second) const { return may_jump_back(first, second); }
};

/// Tells instructions from bytes that only look so, by a walk through the function around. An object of a
/// hundred megabytes may tell of no function in most of its code, which then is one stretch: so what a walk
/// has found is kept for the candidates that follow, each of which goes on with it.
class Instructions {
  public:
    Instructions(const FunctionTable& functions, CodeRange code) : functions_(functions), code_(code) {}

    /// `at` may lie before the one that was asked for last, but not by more than what prefixes take.
    bool hold(const uint8_t* at) {
        CodeRange around;
        if (!functions_.find(reinterpret_cast<uint64_t>(at), code_, around)) return false;
        if (around.begin != around_.begin || around.end != around_.end || at < walked_) enter(around);
        if (!is_walked_) return false;
        while (static_cast<size_t>(at - walked_) > kMostBefore + kLongestInstructionBytes)
            walked_ += instruction_length(walked_, kLongestInstructionBytes);
        return walk_reaches(walked_, at);
    }

  private:
    static constexpr size_t kMostBefore = 2;

    void enter(CodeRange around) {
        around_ = around;
        walked_ = reinterpret_cast<const uint8_t*>(around.begin);
        is_walked_ = walk_reaches(walked_, reinterpret_cast<const uint8_t*>(around.end));
    }

    const FunctionTable& functions_;
    CodeRange code_, around_;
    const uint8_t* walked_ = nullptr;  ///< an instruction's first byte
    bool is_walked_ = false;           ///< from its begin a walk comes to its end
};

bool read_random(CodeRange code, Instructions& instructions, const uint8_t* opcode, RandomSite& out) {
    const auto place = reinterpret_cast<uint64_t>(opcode);
    if (code.end - place < 3) return false;
    for (size_t prefixes = 0; prefixes <= 2 && place - prefixes >= code.begin; ++prefixes) {
        if (!read_random_instruction(opcode, prefixes, out.instruction)) continue;
        out.at = place - prefixes;
        if (instructions.hold(opcode - prefixes)) return true;
    }
    return false;
}

}  // namespace

void find_pauses(CodeRange code, const FunctionTable& functions, PauseSites& out) {
    Instructions instructions(functions, code);
    each_candidate(code, Exactly{{kPause[0], kPause[1]}}, [&](const uint8_t* at) {
        if (!out.full() && instructions.hold(at)) out.add({reinterpret_cast<uint64_t>(at)});
    });
}

void find_randoms(CodeRange code, const FunctionTable& functions, RandomSites& out) {
    Instructions instructions(functions, code);
    each_candidate(code, Exactly{{kRandomOpcode[0], kRandomOpcode[1]}}, [&](const uint8_t* opcode) {
        RandomSite site;
        if (!out.full() && read_random(code, instructions, opcode, site)) out.add(site);
    });
}

void find_jumps(CodeRange code, int protection, const FunctionTable& functions, JumpSites& out) {
    Instructions instructions(functions, code);
    each_candidate(code, JumpsBack{}, [&](const uint8_t* at) {
        const auto place = reinterpret_cast<uint64_t>(at);
        if (out.full() || target_of_jump(place, at[1]) < code.begin) return;
        const LoopKind kind = loop_closed_by(place);
        if (kind != LoopKind::kOther && instructions.hold(at))
            out.add({place, *at, 2, kind == LoopKind::kCounts, false, static_cast<uint8_t>(protection), 0, 0,
                     0, 0});
    });
}

}  // namespace crane::interpose
