// How long a silence has to be before it means something: follows what the machine shows. Pure.
//
// On a quiet machine it is the least there is. What comes late (a heartbeat, an acknowledgement, a sync, this
// replica's own turn) lengthens it at once, up to a bound; then it shrinks by halves, so that one slow moment
// is not forgotten before the next.
#pragma once

#include <algorithm>
#include <cstdint>

namespace crane::paxos {

class Patience {
  public:
    Patience(uint64_t least_us, uint64_t most_us)
        : least_us_(least_us), most_us_(std::max(least_us, most_us)) {}

    /// Something that is expected again and again came so much later than it might have; 0: in time.
    void saw_delay(uint64_t now_us, uint64_t late_us) {
        if (late_us >= worst_us_) {
            worst_us_ = std::min(late_us, most_us_);
            since_us_ = now_us;
        } else if (now_us >= since_us_ + kHalfLifeUs) {
            worst_us_ /= 2;
            since_us_ = now_us;
        }
    }
    uint64_t timeout_us() const { return std::min(least_us_ + kMargin * worst_us_, most_us_); }

  private:
    static constexpr uint64_t kHalfLifeUs = 10'000'000;
    static constexpr uint64_t kMargin = 2;  ///< what was late once will be later still

    uint64_t least_us_;
    uint64_t most_us_;
    uint64_t worst_us_ = 0;
    uint64_t since_us_ = 0;
};

}  // namespace crane::paxos
