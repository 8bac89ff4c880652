#include "proxy/frozen_detector.hpp"

namespace crane::proxy {

namespace {
/// A few ticks of the kernel's accounting.
constexpr double kSomeCpuSeconds = 0.03;
}  // namespace

void FrozenDetector::observe(uint64_t now_ns, uint64_t admitted, uint64_t others_admitted,
                             const std::function<double()>& cpu_seconds) {
    if (others_admitted <= admitted || admitted != admitted_ || since_ns_ == 0) {
        admitted_ = admitted;
        since_ns_ = others_admitted <= admitted ? 0 : now_ns;
        if (since_ns_ != 0) cpu_seconds_ = cpu_seconds();
        frozen_ = false;
        return;
    }
    const double used = cpu_seconds();
    if (used > cpu_seconds_ + kSomeCpuSeconds) {
        cpu_seconds_ = used;
        since_ns_ = now_ns;
        frozen_ = false;
        return;
    }
    frozen_ = now_ns - since_ns_ >= limit_ns_;
}

}  // namespace crane::proxy
