// The admission rule, and nothing else: when a decided batch becomes visible to the domain.
//
//     T(k+1) = the earlier of  T(k) + N(k)  and  the first quiescent moment after T(k)
//
// T depends only on the log and the schedule, never on when a batch arrived: a batch that is late is waited
// for. The proof is in docs/design.md. Without bubbles a batch is admitted when it is seen (the paper's plan
// II), which makes replicas diverge; it is there to show that.
#pragma once

#include <cstdint>

namespace crane::timebubble {

/// Plain data, kept in the domain's memory so that a checkpoint holds it.
struct AdmissionState {
    uint64_t admitted_index;
    uint64_t admitted_clock;  ///< T(admitted_index)
    uint64_t grant_end;       ///< T(k) + N(k)
    uint64_t ask_clock;       ///< from here on the leader should be asked for the next batch
    uint32_t asked;
    uint32_t bubbles_enabled;
};

enum class AdmissionStep {
    kRun,    ///< nothing to admit now
    kAdmit,  ///< admit the batch at hand
    kWait,   ///< the next batch must be waited for
};

class AdmissionRule {
  public:
    explicit AdmissionRule(AdmissionState& state) : s_(state) {}

    AdmissionStep next(uint64_t clock, bool quiescent, bool batch_here) const {
        if (!s_.bubbles_enabled) {
            if (batch_here) return AdmissionStep::kAdmit;
            return quiescent ? AdmissionStep::kWait : AdmissionStep::kRun;
        }
        if (!quiescent && clock < s_.grant_end) return AdmissionStep::kRun;
        return batch_here ? AdmissionStep::kAdmit : AdmissionStep::kWait;
    }

    /// The next clock at which next() may say anything but kRun, or the leader should be asked.
    uint64_t check_clock(uint64_t clock) const {
        if (!s_.bubbles_enabled) return clock + 1;
        return s_.asked ? s_.grant_end : s_.ask_clock;
    }

    bool should_ask(uint64_t clock) const { return s_.bubbles_enabled && !s_.asked && clock >= s_.ask_clock; }

    void admitted(uint64_t index, uint64_t clock, uint64_t grant_clocks) {
        if (grant_clocks == 0) grant_clocks = 1;
        s_.admitted_index = index;
        s_.admitted_clock = clock;
        s_.grant_end = clock + grant_clocks;
        // Ask when a quarter of the grant is left, so that consensus overlaps execution.
        s_.ask_clock = s_.grant_end - grant_clocks / 4;
        s_.asked = 0;
    }

  private:
    AdmissionState& s_;
};

}  // namespace crane::timebubble
