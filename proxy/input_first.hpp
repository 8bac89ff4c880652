// What clients said while time stood still here comes before the time that has passed. Pure: time is handed
// in.
//
// A host that was suspended, a virtual machine that was moved, a craned that had no CPU: when the loop goes
// on, the clock has gone on too, and what clients sent meanwhile is in the kernel's buffers. A batch that is
// proposed at once carries the whole time and not the input, and the server closes connections as idle on
// which it was being asked. A kernel shows a program both at once: its wait ends with the input, however much
// time has passed. So a leader that is late looks at its clients first, until a look brings nothing more.
//
// Rules kept: a leader that is not late looks no more than it did; looking has an end, whatever comes.
#pragma once

#include <cstdint>

namespace crane::proxy {

class InputFirst {
  public:
    /// Timers come so late on any busy machine, and no server's clients mind.
    static constexpr uint64_t kLateNs = 20'000'000;
    /// Whoever stood still so long was not alone in it: the other replicas' clients come by them.
    static constexpr uint64_t kLongNs = 500'000'000;
    static constexpr uint64_t kForOthersNs = 5'000'000;
    static constexpr uint64_t kMostNs = 50'000'000;
    /// A look that takes so long itself, again and again, is a busy machine's.
    static constexpr uint32_t kBeginnings = 3;
    /// A look accepts a client, the next one reads it, and one more sees that there is nothing.
    static constexpr uint32_t kQuietLooks = 2;

    /// Before a batch: has the loop to look at clients once more, without sleep? `late_ns`: of time that has
    /// passed, and that the server has not been told. `calls`: queued so far.
    bool holds(uint64_t now_ns, uint64_t late_ns, uint64_t calls);
    /// A batch was proposed, and carries that time.
    void proposed() { since_ns_ = beginnings_ = 0; }

  private:
    bool ends() {
        beginnings_ = 0;
        return false;
    }

    uint64_t looked_ns_ = 0;
    uint32_t beginnings_ = 0;  ///< without an end
    uint64_t since_ns_ = 0;    ///< it is late; 0: it is not
    bool long_ = false;
    uint64_t calls_ = 0;
    uint32_t quiet_looks_ = 0;
};

}  // namespace crane::proxy
