// Blocked signals of a thread, as the program sees them.
#pragma once

#include "interpose/core/runtime.hpp"
#include "interpose/core/signals.hpp"
#include "interpose/core/user_memory.hpp"

namespace crane::interpose {

uint64_t mask_from(const sigset_t* set);
/// As much as the kernel looks at, which is less than libc's type has.
inline bool readable_mask(const sigset_t* set) {
    return readable(set, sizeof(uint64_t));
}
void mask_to(uint64_t mask, sigset_t* set);

/// The mask that ppoll, pselect and epoll_pwait put on for the length of the call.
class TemporaryMask {
  public:
    explicit TemporaryMask(const sigset_t* set)
        : bad_(set && !readable_mask(set)), set_(set != nullptr && !bad_) {
        if (!set_) return;
        before_ = domain().threads[self.slot].mask;
        domain().threads[self.slot].mask = mask_from(set);
    }
    ~TemporaryMask() {
        if (set_) domain().threads[self.slot].mask = before_;
    }
    TemporaryMask(const TemporaryMask&) = delete;
    TemporaryMask& operator=(const TemporaryMask&) = delete;
    /// -EINTR where a signal that was blocked so far is let through at once: its handler has run. -EFAULT for
    /// a mask that cannot be read. Else 0.
    long error() {
        if (bad_) return -EFAULT;
        if (!set_) return 0;
        const uint32_t run = self.handlers_run;
        mask_has_changed();
        return self.handlers_run != run ? -EINTR : 0;
    }

  private:
    bool bad_, set_;
    uint64_t before_ = 0;
};

}  // namespace crane::interpose
