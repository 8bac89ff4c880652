// A thread that computes step by step, and whether it comes back to where it was: the same registers, and all
// that it has written meanwhile as it was. As nobody else is at work, each round from there is like the one
// before, for ever. Pure: reads the program's memory, and has no clock.
//
// Where such a round is found depends on when the search begins; which states it has does not. So replicas
// that look for it at different times agree on everything that is chosen from the round as a whole: the jump
// that closes it (RoundTop).
//
// The search is Brent's: what is compared with is taken anew after 1, 2, 4, 8, … steps, so a round of n steps
// is found some 3n steps after it was entered at the latest.
#pragma once

#include <cstddef>
#include <cstdint>

#include "interpose/core/x86_writes.hpp"

namespace crane::interpose {

/// Memory as it was when first written behind a point in time. Without an initial value: it is there before
/// constructors run.
class WrittenMemory {
  public:
    void forget() {
        ++generation_;
        count_ = 0;
    }
    /// Before it is written. False: there is no room.
    bool keep(Written place);
    /// All is as it was kept; what lies in dead_begin..dead_end does not matter.
    bool unchanged(uint64_t dead_begin, uint64_t dead_end) const;

  private:
    static constexpr size_t kLineBytes = 64, kMostLines = 1024, kPlaces = 2048;
    struct Line {
        uint64_t at;
        uint32_t generation;
        bool readable;
        uint8_t bytes[kLineBytes];
    };
    Line* find(uint64_t at);

    Line lines_[kPlaces];
    uint16_t used_[kMostLines];  ///< places of lines
    uint32_t generation_;
    size_t count_;
};

/// The vector registers, as a signal's frame has them.
struct VectorState {
    const uint8_t* at;
    size_t bytes;
};

class StateCycle {
  public:
    enum class Verdict : uint8_t { kGoOn, kRound, kGivenUp };

    /// A search of at most so many steps.
    void begin(uint32_t most_steps);
    /// The thread is about to make its next step, with `code` there.
    Verdict step(const Registers& now, VectorState vectors, const uint8_t* code, size_t code_bytes,
                 uint64_t thread_base);
    /// Of the round that was found, in steps.
    uint32_t length() const { return steps_ - anchored_at_; }

  private:
    static constexpr size_t kMostVectorBytes = 12288;
    bool is_back(const Registers& now, VectorState vectors) const;
    void anchor(const Registers& now, VectorState vectors);

    Registers anchor_;
    uint8_t vectors_[kMostVectorBytes];
    size_t vector_bytes_;
    uint64_t deepest_stack_;
    uint32_t steps_, most_steps_, anchored_at_, next_anchor_;
    WrittenMemory memory_;
};

/// The jump back that closes a round: of those in the outermost frame that are taken once, the first one in
/// memory. An interpreter's round may have none, but jumps to what a register names: one of those then. Or
/// all are taken once for each of its program's steps: then the first one, where the registers are the least.
class RoundTop {
  public:
    void begin();
    void step(const Registers& now, const uint8_t* code, size_t code_bytes);
    /// It has such a jump.
    bool found() const;
    /// The thread is about to take it.
    bool is_at(const Registers& now) const;
    /// Of a jump that is taken once in a round; 0: there is none.
    uint64_t place() const;

  private:
    class Jumps {
      public:
        void forget();
        void taken(const Registers& now);
        /// Of those that were taken once; 0: there is none, or there were too many.
        uint64_t first() const;
        /// The least time that any was taken; nullptr: there is none, or it does not differ from another.
        const Registers* least() const { return least_times_ == 1 ? &least_ : nullptr; }

      private:
        static constexpr size_t kMost = 256;
        struct Taken {
            uint64_t at;
            uint32_t times;
        };
        Taken jumps_[kMost];
        size_t count_;
        bool overflown_;
        Registers least_;
        uint32_t least_times_;
    };
    const Registers* least() const;
    Jumps direct_, indirect_;
    uint64_t top_;  ///< the highest stack pointer
};

}  // namespace crane::interpose
