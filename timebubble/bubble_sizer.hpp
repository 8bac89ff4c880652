// How many logical clocks a batch grants before the next one may be admitted (N_clock of the paper). Pure.
//
// A large grant lets a busy server compute without asking; a small one lets waiting input in soon. So the
// grant is small, about a quarter of a millisecond's work, while client calls come, and doubles with every
// bubble in a row, up to about two milliseconds' work. The size is only the leader's choice: replicas follow
// the number in the log.
#pragma once

#include <cstdint>

namespace crane::timebubble {

class BubbleSizer {
  public:
    /// `fixed_clocks` 0: automatic.
    explicit BubbleSizer(uint64_t fixed_clocks) : fixed_clocks_(fixed_clocks) {}

    /// The grant for the batch that is about to be proposed.
    /// `calls`: client calls in it; `more_waiting`: calls are queued behind it.
    uint64_t next(uint64_t calls, bool more_waiting);

    /// The domain did `clocks` operations in `elapsed_ns` while it was busy.
    void measured(uint64_t clocks, uint64_t elapsed_ns);

    uint64_t clocks_per_second() const { return clocks_per_second_; }

    static constexpr uint64_t kStartClocks = 1000;
    static constexpr uint64_t kSmallClocks = 200;
    static constexpr uint64_t kMaxClocks = 1'000'000;

  private:
    uint64_t work_of(uint64_t micros, uint64_t low) const;

    uint64_t fixed_clocks_;
    uint64_t grown_clocks_ = kStartClocks;
    uint32_t quiet_batches_ = 0;  ///< bubbles since the last client call
    uint64_t clocks_per_second_ = 0;
};

}  // namespace crane::timebubble
