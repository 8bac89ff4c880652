// How much of what runs from seeds a test does: enough to notice by default, all of it under `make soak`.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace crane::test {

/// `few`, or `many` where CRANE_SOAK is set. Thresholds that count over the rounds go by what this returns.
inline uint64_t rounds(uint64_t few, uint64_t many) {
    return std::getenv("CRANE_SOAK") ? many : few;
}

}  // namespace crane::test
