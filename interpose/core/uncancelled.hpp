// For what is made of calls that a thread can be cancelled in, and is itself none of them: the thread ends at
// the next one after it.
#pragma once

#include "interpose/core/runtime.hpp"

namespace crane::interpose {

class Uncancelled {
  public:
    Uncancelled() {
        if (!active()) return;
        uint32_t& disabled = domain().threads[self.slot].cancel_disabled;
        before_ = disabled;
        disabled = 1;
    }
    ~Uncancelled() {
        if (active()) domain().threads[self.slot].cancel_disabled = before_;
    }
    Uncancelled(const Uncancelled&) = delete;
    Uncancelled& operator=(const Uncancelled&) = delete;

  private:
    uint32_t before_ = 0;
};

}  // namespace crane::interpose
