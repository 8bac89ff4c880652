#include "interpose/core/spin_loops.hpp"

#include <cstring>

#include "interpose/core/function_table.hpp"
#include "interpose/core/x86_effects.hpp"

namespace crane::interpose {

namespace {

constexpr size_t kMostSteps = 32;  ///< instructions of a loop; the stack may be small
constexpr size_t kOutside = kMostSteps;
/// From code that stands so near before a loop, and is jumped to out of it, one comes back into it.
constexpr uint64_t kNearBytes = 64;

struct Step {
    uint64_t at;
    Effects effects;
    size_t target;  ///< of its jump, a number of a step; kOutside: it leaves the loop
};

constexpr RegisterSet one(unsigned number) {
    return RegisterSet{1} << number;
}

/// What the registers hold, in terms of what they held when the round began: what they may have kept, or were
/// made from.
struct State {
    RegisterSet made_of[kRegisters] = {};
    RegisterSet kept = one(kRegisters) - 1;
    RegisterSet mixed = 0;  ///< made of more than itself and a constant
    RegisterSet blind = 0;  ///< made of nothing that was looked at in this round
    RegisterSet null = 0;   ///< 0 for certain
    bool reached = false;

    /// Nobody has memory there: code that comes so far with another value than this loop's.
    bool faults_at(const Effects& effects) const {
        return effects.reads_memory && effects.near && (effects.addresses & ~null) == 0;
    }

    RegisterSet sources(RegisterSet registers) const {
        RegisterSet found = registers & kept;
        for (unsigned i = 0; i < kRegisters; ++i)
            if (registers & one(i)) found |= made_of[i];
        return found;
    }

    void apply(const Effects& effects) {
        const RegisterSet from = sources(effects.reads | effects.addresses);
        const bool looked = effects.reads_memory || (effects.reads & ~(kept | blind)) != 0;
        for (unsigned i = 0; i < kRegisters; ++i) {
            if (!(effects.writes & one(i))) continue;
            const bool steps = effects.steps && effects.reads == one(i) && from == one(i);
            made_of[i] = from;
            kept &= ~one(i);
            blind = looked ? blind & ~one(i) : blind | one(i);
            if (!steps) mixed |= one(i);
        }
        const bool nullifies = effects.clears || (effects.copies && (effects.reads & ~null) == 0);
        null &= ~effects.writes;
        if (nullifies) null |= effects.writes & ~one(kFlags);
    }

    /// True: this is another one now.
    bool merge(const State& other) {
        if (!reached) {
            *this = other;
            return true;
        }
        RegisterSet fresh =
            (other.kept & ~kept) | (other.mixed & ~mixed) | (other.blind & ~blind) | (null & ~other.null);
        kept |= other.kept;
        mixed |= other.mixed;
        blind |= other.blind;
        null &= other.null;
        for (unsigned i = 0; i < kRegisters; ++i) {
            fresh |= other.made_of[i] & ~made_of[i];
            made_of[i] |= other.made_of[i];
        }
        return fresh != 0;
    }

    /// Those whose value depends on what they were a round, or some rounds, before.
    RegisterSet carried() const {
        RegisterSet from[kRegisters];
        memcpy(from, made_of, sizeof(from));
        for (unsigned through = 0; through < kRegisters; ++through)
            for (RegisterSet& sources : from)
                if (sources & one(through)) sources |= from[through];
        RegisterSet found = 0;
        for (unsigned i = 0; i < kRegisters; ++i) found |= from[i] & one(i);
        return found;
    }
};

class Loop {
  public:
    /// False: there is code in it that such a loop has not.
    bool read(CodeRange range) {
        for (uint64_t at = range.begin; at < range.end;) {
            if (count_ == kMostSteps) return false;
            Step& step = steps_[count_++];
            step.at = at;
            if (!read_effects(reinterpret_cast<const uint8_t*>(at), range.end - at, step.effects))
                return false;
            at += step.effects.length;
        }
        for (size_t i = 0; i < count_; ++i) steps_[i].target = target_of(steps_[i]);
        return count_ != 0 && last().target == 0;
    }

    LoopKind kind() {
        flow();
        if (!round_.reached) return LoopKind::kOther;
        const RegisterSet carried = round_.carried();
        RegisterSet begun_with = 0;  ///< what a round takes over from the one before
        bool looks = false;
        for (size_t i = 0; i < count_; ++i) {
            const Effects& effects = steps_[i].effects;
            if (!states_[i].reached || states_[i].faults_at(effects)) continue;
            if (effects.jump != JumpKind::kNone && comes_back(steps_[i])) return LoopKind::kOther;
            // Nobody else writes to a thread's stack: what lies there had no room in the registers.
            looks = looks || (effects.reads_memory && !effects.on_stack);
            begun_with |= (effects.reads | effects.addresses) & states_[i].kept;
            if (!only_counts(effects, states_[i], carried)) return LoopKind::kOther;
        }
        // Who takes over what another round has decided, and not read, goes from phase to phase.
        if ((begun_with & round_.blind & ~carried) != 0) return LoopKind::kOther;
        if (!looks || (round_.mixed & carried) != 0) return LoopKind::kOther;
        return carried == 0 ? LoopKind::kLooks : LoopKind::kCounts;
    }

    const Step& last() const { return steps_[count_ - 1]; }

  private:
    /// A number of rounds is compared with what stays the same, and nothing else is made of it.
    static bool only_counts(const Effects& effects, const State& before, RegisterSet carried) {
        const RegisterSet made_of_it = before.sources(effects.reads) & carried;
        if ((before.sources(effects.addresses) & carried) != 0) return false;
        if (made_of_it == 0 || effects.jump != JumpKind::kNone || effects.steps) return true;
        const bool compares = (effects.writes & ~one(kFlags)) == 0;
        return compares && !effects.reads_memory && (effects.reads & ~(before.kept | carried)) == 0;
    }

    /// Through code behind which the loop stands it is another one, that may search.
    bool comes_back(const Step& step) const {
        const uint64_t target = goes_to(step), head = steps_[0].at;
        return target < head && head - target <= kNearBytes;
    }
    static uint64_t goes_to(const Step& step) {
        return step.at + step.effects.length +
               static_cast<uint64_t>(static_cast<int64_t>(step.effects.distance));
    }

    size_t target_of(const Step& step) const {
        if (step.effects.jump == JumpKind::kNone) return kOutside;
        const uint64_t target = goes_to(step);
        for (size_t i = 0; i < count_; ++i)
            if (steps_[i].at == target) return i;
        return kOutside;
    }

    void flow() {
        states_[0].reached = true;
        for (bool changed = true; changed;) {
            changed = false;
            for (size_t i = 0; i < count_; ++i) changed |= states_[i].reached && flow_from(i);
        }
    }

    bool flow_from(size_t i) {
        const Step& step = steps_[i];
        if (states_[i].faults_at(step.effects)) return false;
        State after = states_[i];
        after.apply(step.effects);
        bool changed = false;
        if (step.effects.jump != JumpKind::kAlways && i + 1 < count_) changed = states_[i + 1].merge(after);
        if (step.target == kOutside) return changed;
        return (step.target == 0 ? round_ : states_[step.target]).merge(after) || changed;
    }

    Step steps_[kMostSteps];
    State states_[kMostSteps];  ///< before each
    State round_;               ///< when the next round begins
    size_t count_ = 0;
};

/// Most code that looks like a loop at first fails here, and fast.
bool only_looks(CodeRange range) {
    size_t steps = 0;
    Effects effects;
    for (uint64_t at = range.begin; at < range.end; at += effects.length)
        if (++steps > kMostSteps ||
            !read_effects(reinterpret_cast<const uint8_t*>(at), range.end - at, effects))
            return false;
    return true;
}

}  // namespace

LoopKind loop_closed_by(uint64_t jump) {
    const auto* const code = reinterpret_cast<const uint8_t*>(jump);
    const CodeRange range{target_of_jump(jump, code[1]), jump + 2};
    if (!only_looks(range)) return LoopKind::kOther;
    Loop loop;
    return loop.read(range) ? loop.kind() : LoopKind::kOther;
}

}  // namespace crane::interpose
