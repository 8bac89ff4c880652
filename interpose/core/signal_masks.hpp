// Blocked signals of a thread, as the program sees them.
#pragma once

#include "interpose/core/runtime.hpp"
#include "interpose/core/signals.hpp"

namespace crane::interpose {

uint64_t mask_from(const sigset_t* set);
void mask_to(uint64_t mask, sigset_t* set);

/// The mask that ppoll, pselect and epoll_pwait put on for the length of the call.
class TemporaryMask {
  public:
    explicit TemporaryMask(const sigset_t* set) : set_(set != nullptr) {
        if (!set_) return;
        before_ = domain().threads[self.slot].mask;
        domain().threads[self.slot].mask = mask_from(set);
    }
    ~TemporaryMask() {
        if (set_) domain().threads[self.slot].mask = before_;
    }
    TemporaryMask(const TemporaryMask&) = delete;
    TemporaryMask& operator=(const TemporaryMask&) = delete;
    /// A signal that was blocked so far is let through at once: its handler has run.
    bool interrupted() {
        if (!set_ || !handler_due()) return false;
        Operation turn(Op::kSignal, own_key());
        return true;
    }

  private:
    bool set_;
    uint64_t before_ = 0;
};

}  // namespace crane::interpose
