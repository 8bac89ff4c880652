// Majority arithmetic, pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/check.hpp"

namespace crane::paxos {

constexpr size_t majority(size_t members) {
    return members / 2 + 1;
}

/// The largest value that a majority has reached: with `acknowledged` holding one number per member, the
/// index up to which the log is on a majority.
inline uint64_t majority_reached(std::vector<uint64_t> acknowledged) {
    CRANE_CHECK(!acknowledged.empty());
    const auto nth = acknowledged.begin() + static_cast<std::ptrdiff_t>(majority(acknowledged.size()) - 1);
    std::nth_element(acknowledged.begin(), nth, acknowledged.end(), std::greater<>());
    return *nth;
}

}  // namespace crane::paxos
