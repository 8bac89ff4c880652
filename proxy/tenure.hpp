// Since when the primary leads, as this replica learned it. Pure; it outlives the replica that craned makes
// anew, and is forgotten with craned.
//
// A view has one leader. What was learned of it is kept while a replica that was made anew, or whose link was
// lost for a moment, knows none.
#pragma once

#include <cstdint>

namespace crane::proxy {

class Tenure {
  public:
    /// `leader` 0: none is known.
    void observe(uint64_t view, uint32_t leader, int64_t now_s) {
        known_ = leader != 0;
        if (!known_ || (view == view_ && leader == leader_)) return;
        view_ = view;
        leader_ = leader;
        since_s_ = now_s;
    }
    /// Since 1970; 0: no leader is known.
    int64_t since_s() const { return known_ ? since_s_ : 0; }

  private:
    uint64_t view_ = 0;
    uint32_t leader_ = 0;
    int64_t since_s_ = 0;
    bool known_ = false;
};

}  // namespace crane::proxy
