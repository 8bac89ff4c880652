#include "timebubble/bubble_sizer.hpp"

#include <algorithm>

namespace crane::timebubble {

namespace {

constexpr uint64_t kSmallMicros = 250;
constexpr uint64_t kLargeMicros = 2000;
constexpr uint32_t kRecentBatches = 2;
constexpr uint64_t kMinSampleNs = 20'000;

}  // namespace

uint64_t BubbleSizer::work_of(uint64_t micros, uint64_t low) const {
    return std::clamp(clocks_per_second_ / 1'000'000 * micros, low, kMaxClocks);
}

uint64_t BubbleSizer::next(uint64_t calls, bool more_waiting) {
    if (fixed_clocks_ != 0) return fixed_clocks_;
    if (calls != 0 || more_waiting) {
        quiet_batches_ = 0;
        grown_clocks_ = kStartClocks;
        return work_of(kSmallMicros, kSmallClocks);
    }
    if (++quiet_batches_ <= kRecentBatches) return work_of(kSmallMicros, kSmallClocks);
    const uint64_t ceiling = clocks_per_second_ == 0 ? kMaxClocks : work_of(kLargeMicros, kStartClocks);
    const uint64_t grant = std::min(std::max(grown_clocks_, work_of(kSmallMicros, kSmallClocks)), ceiling);
    grown_clocks_ = std::min(grown_clocks_ * 2, kMaxClocks);
    return grant;
}

void BubbleSizer::measured(uint64_t clocks, uint64_t elapsed_ns) {
    // The domain's own word: more than a machine can do is no measure.
    if (elapsed_ns < kMinSampleNs || clocks == 0 || clocks > elapsed_ns) return;
    const uint64_t rate =
        static_cast<uint64_t>(static_cast<double>(clocks) * 1e9 / static_cast<double>(elapsed_ns));
    clocks_per_second_ = clocks_per_second_ == 0 ? rate : (clocks_per_second_ * 7 + rate) / 8;
}

}  // namespace crane::timebubble
