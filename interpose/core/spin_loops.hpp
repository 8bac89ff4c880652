// Loops that do nothing but look at memory until somebody else has changed it, found in machine code. Pure.
//
// Such a loop writes no memory and calls nobody, and what it does in one round depends on no earlier round:
// with nobody else at work each round would be like the one before, for ever. (Two rounds may differ: what
// the first has read can decide the second.) One that only counts its rounds besides is of the kind, too:
// compilers move what stays the same out of a loop, unless another thread may change it. Loops that compute
// or search go on from their own results, and are none; nor is one that steps by more than one, from element
// to element, or whose look is out of reach in its second round, at address 0.
//
// Nothing is lost where one is missed, or taken for one, but time.
#pragma once

#include <cstddef>
#include <cstdint>

namespace crane::interpose {

/// The jump back that would close a loop has two bytes: compilers take the long form only for long loops, and
/// those do more than look.
inline bool may_jump_back(uint8_t first, uint8_t second) {
    return (first == 0xeb || (first & 0xf0) == 0x70) && second >= 0x80;
}

/// Where the jump at `jump`, with this distance as its second byte, goes.
inline uint64_t target_of_jump(uint64_t jump, uint8_t distance) {
    return jump + 2 + static_cast<uint64_t>(int64_t{static_cast<int8_t>(distance)});
}

enum class LoopKind : uint8_t {
    kOther,
    kLooks,   ///< until somebody else has changed what it looks at
    kCounts,  ///< or until it has looked so often
};

/// What the code from where the jump at `jump` goes up to its end is. Both are addresses in this process, and
/// the code there is whole.
LoopKind loop_closed_by(uint64_t jump);

}  // namespace crane::interpose
