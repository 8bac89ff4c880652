// The gate: where in its schedule a domain has come, and where it is to stand still, in memory that it shares
// with whoever watches it.
//
// A place is a number of operations done and, for what `serial` does without an operation (files), of steps.
// Before what would lead past the place told, a thread stops, with everything up to there done and nothing
// behind it. The watcher tells, then has a barrier executed on every CPU (membarrier), then looks: `working`
// unset shows that nothing is under way, and that what begins now sees what was told. So the domain pays no
// barrier.
#pragma once

#include <atomic>
#include <compare>
#include <cstdint>

namespace crane {

struct Place {
    uint64_t clock = 0;
    uint64_t steps = 0;
    auto operator<=>(const Place&) const = default;
};

/// Zeroed memory is a gate that is open.
struct Gate {
    alignas(64) std::atomic<uint64_t> clock;  ///< told: a Place; 0: go on
    std::atomic<uint64_t> steps;
    std::atomic<uint32_t> word;  ///< futex: another value with each telling

    alignas(64) std::atomic<uint64_t> at_clock;  ///< shown: a Place; 0: not known yet
    std::atomic<uint64_t> at_steps;
    std::atomic<uint32_t> working;  ///< an operation or a step is under way
    std::atomic<uint32_t> stopped;  ///< a thread stands at the gate
};

}  // namespace crane
