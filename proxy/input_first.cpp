#include "proxy/input_first.hpp"

namespace crane::proxy {

bool InputFirst::holds(uint64_t now_ns, uint64_t late_ns, uint64_t calls) {
    // It may be long since it was looked for: the server computed, and nothing was to be proposed.
    const bool stood_since = now_ns - looked_ns_ >= kLateNs && beginnings_ < kBeginnings;
    looked_ns_ = now_ns;
    if (late_ns < kLateNs) {
        since_ns_ = 0;
        return ends();
    }
    if (since_ns_ == 0 || stood_since) {
        ++beginnings_;
        since_ns_ = now_ns;
        long_ = late_ns >= kLongNs;
        calls_ = calls;
        quiet_looks_ = 0;
        return true;
    }
    quiet_looks_ = calls == calls_ ? quiet_looks_ + 1 : 0;
    calls_ = calls;
    const uint64_t looked_ns = now_ns - since_ns_;
    if (looked_ns >= kMostNs) return ends();
    return quiet_looks_ < kQuietLooks || (long_ && looked_ns < kForOthersNs) || ends();
}

}  // namespace crane::proxy
