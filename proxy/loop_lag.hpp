// How late the event loop is, and what held it up: the heartbeats of this replica wait as long. A timer that
// rings four times a second tells how late it was called; stretches of work that were timed, and the kernel's
// count of the time without a CPU, tell why. Pure, but for observe()'s arguments: no I/O and no clock.
#pragma once

#include <cstdint>
#include <string>

namespace crane::proxy {

class LoopLag {
  public:
    struct Late {
        uint64_t ns = 0;
        uint64_t at_ns = 0;
        const char* held_up_by = "";
    };

    explicit LoopLag(uint64_t period_ns) : period_ns_(period_ns) {}

    /// A stretch of the loop's work. `name` must live for ever.
    void worked(const char* name, uint64_t ns);
    /// The timer rang; `waited_ns`: of this thread for a CPU, since it began. Returns how late it was.
    uint64_t observe(uint64_t now_ns, uint64_t waited_ns);

    const Late& longest() const { return longest_; }
    const Late& last() const { return last_; }
    uint64_t waited_for_cpu_ns() const { return waited_ns_; }

  private:
    uint64_t period_ns_;
    uint64_t rang_ns_ = 0;
    uint64_t waited_ns_ = 0;
    uint64_t work_ns_ = 0;  ///< the longest stretch since the timer last rang
    const char* work_ = "";
    Late longest_;
    Late last_;
};

/// Of the calling thread, since it began; 0 when the kernel does not count it.
uint64_t waited_for_cpu_ns();

}  // namespace crane::proxy
