// What a handler is shown of the place that it interrupts. Handlers run at the end of an operation, called by
// the shim: the place is in the shim's own code, as it is in libc's when the kernel interrupts a call. All
// that the program has in registers is in them still, or on the stack above: so who looks for what is in use
// (collectors that stop threads by a signal) finds it, and who changes registers, or keeps them for a switch
// to another context, comes back through the shim.
#pragma once

#include <ucontext.h>

#include <cstdint>

namespace crane::interpose {

class InterruptedPlace {
  public:
    /// `mask`: what the program has blocked at that place. Registers are still to be marked. A handler begins
    /// with the processor's own way to compute with floating point, not with that of the place.
    explicit InterruptedPlace(uint64_t mask);
    ~InterruptedPlace();
    InterruptedPlace(const InterruptedPlace&) = delete;
    InterruptedPlace& operator=(const InterruptedPlace&) = delete;

    ucontext_t& context() { return context_; }
    /// Registers are marked: what is changed from now on is the handler's doing.
    void marked();
    bool is_changed() const;
    uint64_t mask() const;
    /// Goes on as the context says, as the kernel does when a handler returns.
    [[noreturn]] void go_on();

  private:
    ucontext_t context_{};
    greg_t marked_[NGREG];
    alignas(64) _libc_fpstate numbers_{};
    uint16_t control_word_;
    uint32_t control_and_status_;
    bool gone_on_ = false;
};

/// The place is where this returns to, and it returns there again when somebody goes on from the context.
extern "C" __attribute__((visibility("hidden"), returns_twice)) void crane_mark_place(ucontext_t* context);

}  // namespace crane::interpose
