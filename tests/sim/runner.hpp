// Many lives, in parallel processes: one that dies by an assertion, or hangs, takes no others with it, and is
// counted as a violation like any other.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "canary.hpp"
#include "counts.hpp"

namespace crane::sim {

struct LifeResult {
    uint64_t seed = 0;
    uint64_t trace = 0;
    std::string violation;
    Counts counts;
};

struct RunSettings {
    uint64_t steps = 10'000;
    unsigned jobs = 2;
    const NamedCanary* canary = nullptr;
    bool twice = false;  ///< every life is led twice, and must be the same
};

/// In this process.
LifeResult lead_life(uint64_t seed, const RunSettings& settings, bool verbose);

/// In processes of their own. `next` gives a seed, or false when there are no more; `report` is called for
/// each life that ended, and says false when no more are to be started.
void run_lives(const RunSettings& settings, const std::function<bool(uint64_t& seed)>& next,
               const std::function<bool(const LifeResult&)>& report);

}  // namespace crane::sim
