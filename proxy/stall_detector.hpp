// Tells when the domain stands still although nothing waits: a thread computes for very long, or spins on
// memory that only another thread could change, which never ends under the schedule `serial`. Pure: no I/O
// and no clock of its own.
#pragma once

#include <cstdint>

namespace crane::proxy {

class StallDetector {
  public:
    /// `limit_ns` 0: never. Told at the limit, and again each time it has doubled, or after `longest_ns`.
    explicit StallDetector(uint64_t limit_ns, uint64_t longest_ns = UINT64_MAX)
        : limit_ns_(limit_ns), longest_ns_(longest_ns) {}

    /// What the domain last published. Returns for how long it has stood still when that is to be told now; 0
    /// otherwise.
    uint64_t observe(uint64_t now_ns, uint64_t clock, bool waits);

    /// A stall was told and has not ended yet.
    bool told() const { return next_ns_ > limit_ns_; }

  private:
    uint64_t limit_ns_, longest_ns_;
    uint64_t clock_ = 0;
    uint64_t since_ns_ = 0;
    uint64_t next_ns_ = 0;
};

}  // namespace crane::proxy
