// How long something took, each time: counts by upper bounds that are the same everywhere, so that those of
// several replicas can be added.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace crane {

class LatencyHistogram {
  public:
    /// Microseconds, inclusive; what took longer is counted behind the last.
    static constexpr std::array<uint64_t, 16> kBoundsUs = {
        50,     100,    200,     500,     1'000,   2'000,     5'000,     10'000,
        20'000, 50'000, 100'000, 200'000, 500'000, 1'000'000, 2'000'000, 5'000'000};

    void observe(uint64_t took_us) {
        const auto bound = std::lower_bound(kBoundsUs.begin(), kBoundsUs.end(), took_us);
        ++counts_[static_cast<size_t>(bound - kBoundsUs.begin())];
        ++count_;
        sum_us_ += took_us;
    }

    uint64_t count() const { return count_; }
    uint64_t sum_us() const { return sum_us_; }
    /// By bound, and behind the last one those that took longer; not added up.
    const std::array<uint64_t, kBoundsUs.size() + 1>& counts() const { return counts_; }

  private:
    std::array<uint64_t, kBoundsUs.size() + 1> counts_{};
    uint64_t count_ = 0;
    uint64_t sum_us_ = 0;
};

}  // namespace crane
