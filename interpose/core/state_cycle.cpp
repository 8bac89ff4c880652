#include "interpose/core/state_cycle.hpp"

#include <algorithm>
#include <cstring>

#include "interpose/core/jumps.hpp"
#include "interpose/core/user_memory.hpp"
#include "interpose/core/x86_length.hpp"

namespace crane::interpose {

namespace {

/// Below its stack pointer a thread may keep so much; what lies further down a signal may destroy at any
/// time.
constexpr uint64_t kRedZoneBytes = 128;
/// Stacks that lie further apart are two, and what lies between them is not dead.
constexpr uint64_t kMostStackBytes = 1 << 20;
/// The trap flag comes and goes with the search; the resume flag is the processor's own.
constexpr uint64_t kFlagsOfTracing = 0x100 | 0x10000;

}  // namespace

// --- WrittenMemory

WrittenMemory::Line* WrittenMemory::find(uint64_t at) {
    size_t place = (at / kLineBytes * 0x9e37'79b9'7f4a'7c15ULL) >> 53;
    static_assert(kPlaces == 1 << (64 - 53));
    while (lines_[place].generation == generation_ && lines_[place].at != at) place = (place + 1) % kPlaces;
    return &lines_[place];
}

bool WrittenMemory::keep(Written place) {
    if (place.bytes == 0) return true;
    const uint64_t last = (place.at + place.bytes - 1) & ~(kLineBytes - 1);
    for (uint64_t at = place.at & ~(kLineBytes - 1);; at += kLineBytes) {
        Line& line = *find(at);
        if (line.generation != generation_) {
            if (count_ == kMostLines) return false;
            used_[count_++] = static_cast<uint16_t>(&line - lines_);
            line.at = at;
            line.generation = generation_;
            // What cannot be read is not written either.
            // NOLINTNEXTLINE(performance-no-int-to-ptr)
            line.readable = crane_copy(line.bytes, reinterpret_cast<const void*>(at), kLineBytes) == 0;
        }
        if (at == last) return true;
    }
}

bool WrittenMemory::unchanged(uint64_t dead_begin, uint64_t dead_end) const {
    for (size_t i = 0; i < count_; ++i) {
        const Line& line = lines_[used_[i]];
        if (!line.readable) continue;
        uint8_t now[kLineBytes];
        // NOLINTNEXTLINE(performance-no-int-to-ptr)
        if (crane_copy(now, reinterpret_cast<const void*>(line.at), kLineBytes) != 0) return false;
        if (memcmp(now, line.bytes, kLineBytes) == 0) continue;
        for (size_t byte = 0; byte < kLineBytes; ++byte) {
            const bool dead = line.at + byte >= dead_begin && line.at + byte < dead_end;
            if (now[byte] != line.bytes[byte] && !dead) return false;
        }
    }
    return true;
}

// --- StateCycle

void StateCycle::begin(uint32_t most_steps) {
    steps_ = 0;
    most_steps_ = most_steps;
    next_anchor_ = 0;
}

void StateCycle::anchor(const Registers& now, VectorState vectors) {
    anchor_ = now;
    vector_bytes_ = vectors.bytes;
    memcpy(vectors_, vectors.at, vectors.bytes);
    deepest_stack_ = now.stack();
    anchored_at_ = steps_;
    next_anchor_ = std::max(steps_ * 2, 1u);
    memory_.forget();
}

bool StateCycle::is_back(const Registers& now, VectorState vectors) const {
    if (now.instruction != anchor_.instruction ||
        memcmp(now.general, anchor_.general, sizeof(now.general)) != 0 ||
        ((now.flags ^ anchor_.flags) & ~kFlagsOfTracing) != 0)
        return false;
    if (vectors.bytes != vector_bytes_ || memcmp(vectors.at, vectors_, vectors.bytes) != 0) return false;
    return memory_.unchanged(deepest_stack_ - 2 * kRedZoneBytes, anchor_.stack() - kRedZoneBytes);
}

StateCycle::Verdict StateCycle::step(const Registers& now, VectorState vectors, const uint8_t* code,
                                     size_t code_bytes, uint64_t thread_base) {
    if (vectors.bytes > kMostVectorBytes) return Verdict::kGivenUp;
    if (steps_ > 0 && is_back(now, vectors)) return Verdict::kRound;
    if (steps_ == most_steps_) return Verdict::kGivenUp;
    if (steps_ == next_anchor_) anchor(now, vectors);
    deepest_stack_ = std::min(deepest_stack_, now.stack());
    if (anchor_.stack() - deepest_stack_ > kMostStackBytes) return Verdict::kGivenUp;
    Written written;
    if (!find_written(code, code_bytes, now, thread_base, written) || !memory_.keep(written))
        return Verdict::kGivenUp;
    ++steps_;
    return Verdict::kGoOn;
}

// --- RoundTop

namespace {

/// jmp to what a register or memory names.
bool is_indirect_jump(const uint8_t* code, size_t bytes) {
    constexpr uint8_t kGroup5 = 0xff, kJump = 4;
    InstructionParts parts;
    return read_instruction(code, bytes, parts) != 0 && parts.form == InstructionParts::Form::kLegacy &&
           parts.map == 0 && parts.opcode == kGroup5 && (code[parts.operand_at] >> 3 & 7) == kJump;
}

/// Any order will do that does not change. 0: the same place, with the same registers.
int compare_places(const Registers& one, const Registers& other) {
    if (one.instruction != other.instruction) return one.instruction < other.instruction ? -1 : 1;
    return memcmp(one.general, other.general, sizeof(one.general));
}

}  // namespace

void RoundTop::Jumps::forget() {
    count_ = 0;
    overflown_ = false;
    least_times_ = 0;
}

void RoundTop::Jumps::taken(const Registers& now) {
    const uint64_t at = now.instruction;
    const int order = least_times_ == 0 ? -1 : compare_places(now, least_);
    if (order < 0) {
        least_ = now;
        least_times_ = 0;
    }
    if (order <= 0) ++least_times_;
    Taken* const end = jumps_ + count_;
    Taken* const known = std::find_if(jumps_, end, [at](const Taken& one) { return one.at == at; });
    if (known != end) {
        ++known->times;
    } else if (count_ < kMost) {
        jumps_[count_++] = {at, 1};
    } else {
        overflown_ = true;
    }
}

uint64_t RoundTop::Jumps::first() const {
    if (overflown_) return 0;
    uint64_t first = 0;
    for (size_t i = 0; i < count_; ++i)
        if (jumps_[i].times == 1 && (first == 0 || jumps_[i].at < first)) first = jumps_[i].at;
    return first;
}

void RoundTop::begin() {
    direct_.forget();
    indirect_.forget();
    top_ = 0;
}

void RoundTop::step(const Registers& now, const uint8_t* code, size_t code_bytes) {
    if (now.stack() < top_) return;
    if (now.stack() > top_) {
        begin();
        top_ = now.stack();
    }
    Jump jump;
    if (read_jump(code, code_bytes, jump)) {
        if (jump.goes_back() && jump.is_taken(now.flags)) direct_.taken(now);
    } else if (is_indirect_jump(code, code_bytes)) {
        indirect_.taken(now);
    }
}

uint64_t RoundTop::place() const {
    const uint64_t direct = direct_.first();
    return direct ? direct : indirect_.first();
}

const Registers* RoundTop::least() const {
    const Registers* const direct = direct_.least();
    return direct ? direct : indirect_.least();
}

bool RoundTop::found() const {
    return place() != 0 || least() != nullptr;
}

bool RoundTop::is_at(const Registers& now) const {
    if (now.stack() != top_) return false;
    const uint64_t once = place();
    return once ? now.instruction == once : compare_places(now, *least()) == 0;
}

}  // namespace crane::interpose
