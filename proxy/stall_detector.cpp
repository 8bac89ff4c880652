#include "proxy/stall_detector.hpp"

#include <algorithm>

namespace crane::proxy {

uint64_t StallDetector::observe(uint64_t now_ns, uint64_t clock, bool waits) {
    if (limit_ns_ == 0) return 0;
    if (waits || clock != clock_ || since_ns_ == 0) {
        clock_ = clock;
        since_ns_ = now_ns;
        next_ns_ = limit_ns_;
        return 0;
    }
    const uint64_t stood_ns = now_ns - since_ns_;
    if (stood_ns < next_ns_) return 0;
    next_ns_ = stood_ns + std::min(stood_ns, longest_ns_);
    return stood_ns;
}

}  // namespace crane::proxy
