// How many bytes may go in a second. What was too early is paid for by waiting longer.
#pragma once

#include <algorithm>
#include <cstdint>

namespace crane::proxy {

class RateLimit {
  public:
    explicit RateLimit(uint64_t bytes_per_s) : bytes_per_s_(std::max<uint64_t>(bytes_per_s, 1)) {}
    bool allows(uint64_t now_ns) const { return now_ns >= free_at_ns_; }
    void took(uint64_t bytes, uint64_t now_ns) {
        // Who was silent has no claim to more than a short burst.
        const uint64_t from_ns = std::max(free_at_ns_, now_ns > kBurstNs ? now_ns - kBurstNs : 0);
        free_at_ns_ = from_ns + bytes * kSecondNs / bytes_per_s_;
    }

  private:
    static constexpr uint64_t kSecondNs = 1'000'000'000;
    static constexpr uint64_t kBurstNs = 20'000'000;

    uint64_t bytes_per_s_;
    uint64_t free_at_ns_ = 0;
};

}  // namespace crane::proxy
