// For what is made of calls that a thread can be cancelled in, and is itself none of them: the thread ends at
// the next one after it.
#pragma once

#include <pthread.h>

#include "interpose/core/runtime.hpp"

namespace crane::interpose {

class Uncancelled {
  public:
    /// By whom the thread is not to be ended meanwhile.
    enum class By { kSchedule, kLibcToo };

    explicit Uncancelled(By by = By::kSchedule) {
        if (!active()) return;
        if (by == By::kLibcToo) real.pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &libcs_before_);
        uint32_t& disabled = domain().threads[self.slot].cancel_disabled;
        before_ = disabled;
        disabled = 1;
        outer_ = innermost;
        innermost = this;
    }
    ~Uncancelled() {
        if (innermost == this) leave();
    }
    Uncancelled(const Uncancelled&) = delete;
    Uncancelled& operator=(const Uncancelled&) = delete;

    /// A jump, which comes by no destructor, is about to be made to where the stack pointer is `target`.
    static void leave_by_jump(uint64_t target) {
        while (innermost && reinterpret_cast<uint64_t>(innermost) < target) innermost->leave();
    }

  private:
    void leave() {
        innermost = outer_;
        // Not by the wrapper, which may end the thread, in the midst of libc.
        if (libcs_before_ != kLeft) real.pthread_setcancelstate(libcs_before_, nullptr);
        if (active()) domain().threads[self.slot].cancel_disabled = before_;
    }

    static inline constinit thread_local Uncancelled* innermost __attribute__((tls_model("initial-exec"))) =
        nullptr;
    static constexpr int kLeft = -1;
    int libcs_before_ = kLeft;
    Uncancelled* outer_ = nullptr;
    uint32_t before_ = 0;
};

}  // namespace crane::interpose
