// The instructions of an object's code that are to be traps (pauses.hpp): which there are, and lists of them.
// Pure: reads the code and the object's own table of functions.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "interpose/core/function_table.hpp"
#include "interpose/core/random_instructions.hpp"

namespace crane::interpose {

struct PauseSite {
    uint64_t at;
};
struct RandomSite {
    uint64_t at;
    RandomInstruction instruction;
};
/// The jump back of a loop that looks at memory (spin_loops.hpp), or of one that was found to be endless
/// (endless_rounds.hpp). The trap stands in the place of its first byte; the others stay there.
struct JumpSite {
    uint64_t at;
    uint8_t opcode;  ///< its first byte
    uint8_t length;
    bool counts;
    bool was_waited_in;  ///< found as a thread waited there; it may be no wait the next time
    uint8_t protection;  ///< of its page, as mprotect has it
    uint16_t others;     ///< times in a row that it was taken by a thread that was not back as it was
    uint64_t round;      ///< what that thread's registers were then
    uint16_t passed;     ///< times that it was not taken, as far as they are counted
    uint64_t
        moved_from;  ///< where the jump was that it stands for: it is in a copy of its loop; 0: it is none
};

template <typename Site>
uint64_t place_in_object(const Site& site) {
    return site.at;
}
inline uint64_t place_in_object(const JumpSite& site) {
    return site.moved_from != 0 ? site.moved_from : site.at;
}

/// Without an initial value: it is there before any constructor runs.
template <typename Site, size_t kMost>
struct SiteList {
    Site all[kMost];  ///< ascending, once sorted
    size_t count;

    bool full() const { return count == kMost; }
    void add(const Site& site) { all[count++] = site; }
    void sort() {
        std::sort(all, all + count, [](const Site& a, const Site& b) { return a.at < b.at; });
    }
    Site* find(uint64_t at) {
        Site* const end = all + count;
        Site* const found = std::lower_bound(all + 0, end, at,
                                             [](const Site& one, uint64_t place) { return one.at < place; });
        return found != end && found->at == at ? found : nullptr;
    }
    void forget(CodeRange gone) {
        const auto lies_there = [&](const Site& one) {
            const uint64_t at = place_in_object(one);
            return at >= gone.begin && at < gone.end;
        };
        count = static_cast<size_t>(std::remove_if(all, all + count, lies_there) - all);
    }
};

using PauseSites = SiteList<PauseSite, 8192>;
using RandomSites = SiteList<RandomSite, 512>;
using JumpSites = SiteList<JumpSite, 4096>;

/// Each appends what it finds, as far as there is room. Nothing in the code may be a trap yet.
void find_pauses(CodeRange code, const FunctionTable& functions, PauseSites& out);
void find_randoms(CodeRange code, const FunctionTable& functions, RandomSites& out);
void find_jumps(CodeRange code, int protection, const FunctionTable& functions, JumpSites& out);

}  // namespace crane::interpose
