#include "proxy/input_first.hpp"

namespace crane::proxy {

bool InputFirst::holds(uint64_t now_ns, uint64_t late_ns, uint64_t calls) {
    if (late_ns < kLateNs) {
        since_ns_ = 0;
        return false;
    }
    if (since_ns_ == 0) {
        since_ns_ = now_ns;
        long_ = late_ns >= kLongNs;
        calls_ = calls;
        quiet_looks_ = 0;
        return true;
    }
    quiet_looks_ = calls == calls_ ? quiet_looks_ + 1 : 0;
    calls_ = calls;
    const uint64_t looked_ns = now_ns - since_ns_;
    if (looked_ns >= kMostNs) return false;
    return quiet_looks_ < kQuietLooks || (long_ && looked_ns < kForOthersNs);
}

}  // namespace crane::proxy
