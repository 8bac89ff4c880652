// Tells when this replica's server no longer runs at all (stopped, frozen, its disk hangs) while another
// replica's goes on: a primary in that state must hand over. A server that only computes for long is not
// frozen: it takes CPU, and the other replicas compute as long. Pure: no I/O and no clock of its own.
#pragma once

#include <cstdint>
#include <functional>

namespace crane::proxy {

class FrozenDetector {
  public:
    explicit FrozenDetector(uint64_t limit_ns) : limit_ns_(limit_ns) {}

    /// What this domain has admitted, the most that another replica said it has, and the CPU time that this
    /// domain has used (asked for only when it matters).
    void observe(uint64_t now_ns, uint64_t admitted, uint64_t others_admitted,
                 const std::function<double()>& cpu_seconds);
    bool frozen() const { return frozen_; }

  private:
    uint64_t limit_ns_;
    uint64_t since_ns_ = 0;
    uint64_t admitted_ = 0;
    double cpu_seconds_ = 0;
    bool frozen_ = false;
};

}  // namespace crane::proxy
