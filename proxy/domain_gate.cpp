#include "proxy/domain_gate.hpp"

#include <limits.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.hpp"

namespace crane::proxy {

namespace {

constexpr uint64_t kStoresAreSeenNs = 1'000'000'000;

}  // namespace

void DomainGate::close(Place place) {
    if (told_ == place) return;
    tell(place);
    // Kernels with CPUs that never tick (nohz_full) have no such barrier: no store waits for so long.
    const bool done = syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0) == 0;
    sure_ns_ = done ? 0 : monotonic_ns() + kStoresAreSeenNs;
}

void DomainGate::open() {
    if (closed()) tell({});
}

void DomainGate::tell(Place place) {
    told_ = place;
    gate_.stopped.store(0, std::memory_order_relaxed);  // who stood there may be gone; who does says it again
    gate_.steps.store(place.steps, std::memory_order_relaxed);
    gate_.clock.store(place.clock, std::memory_order_release);
    gate_.word.fetch_add(1, std::memory_order_seq_cst);
    // Not the PRIVATE kind: the sleeper is in another process.
    syscall(SYS_futex, reinterpret_cast<uint32_t*>(&gate_.word), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

bool DomainGate::stopped() const {
    return closed() && gate_.stopped.load(std::memory_order_acquire) != 0;
}

Whereabouts DomainGate::look() const {
    Whereabouts seen;
    // Twice the same, so that place and `between` belong together.
    for (int attempt = 0; attempt < 3; ++attempt) {
        seen.stopped = stopped();
        seen.between = gate_.working.load(std::memory_order_acquire) == 0 || seen.stopped;
        seen.at = {gate_.at_clock.load(std::memory_order_acquire),
                   gate_.at_steps.load(std::memory_order_acquire)};
        const bool still = gate_.at_clock.load(std::memory_order_acquire) == seen.at.clock &&
                           (gate_.working.load(std::memory_order_acquire) == 0 || stopped()) == seen.between;
        if (!still) continue;
        seen.between = seen.between && monotonic_ns() >= sure_ns_;
        return seen;
    }
    seen.between = false;
    return seen;
}

}  // namespace crane::proxy
