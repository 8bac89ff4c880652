// What a replica does that the leader says lacks a checkpoint: the leader's log begins behind its own end.
#pragma once

#include <algorithm>
#include <cstdint>

namespace crane::proxy {

enum class LackStep {
    kNone,   ///< it has what it was told of, or is about to
    kFetch,  ///< one is to come from others, and the server begins from it
    kBegin,  ///< the one held here is enough: the server begins from it now
};

struct Lack {
    uint64_t index = 0;    ///< a checkpoint there or later is wanted
    uint64_t last = 0;     ///< entry that the log here, or what was delivered from it, ends at
    uint64_t held = 0;     ///< newest checkpoint here, whether the server began at it or not
    uint64_t wanted = 0;   ///< being fetched, to begin from or only to keep; 0: none
    bool lacking = false;  ///< what is fetched or held is to begin from already
};

/// A checkpoint that is held, or fetched to be kept, is no log: a server that stands before it stays there
/// until it begins anew.
inline LackStep lack_step(const Lack& lack) {
    if (lack.last >= lack.index) return LackStep::kNone;
    if (lack.held >= lack.index) return lack.lacking ? LackStep::kNone : LackStep::kBegin;
    return lack.lacking && lack.wanted >= lack.index ? LackStep::kNone : LackStep::kFetch;
}

}  // namespace crane::proxy
