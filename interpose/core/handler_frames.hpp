// The program's signal handlers while they run: on which stack, and how they are left.
#pragma once

#include <csetjmp>
#include <csignal>

#include "interpose/core/runtime.hpp"

namespace crane::interpose {

/// A jump is about to be made to a place where the stack pointer is `target`: handlers that ran above it are
/// over.
void leave_handlers(uint64_t target);

/// In scope while a handler runs. A jump out of it does not come by the destructor: see leave_handlers(), and
/// jumps of the program's own, which nobody sees, are found out at the next handler.
class HandlerFrame {
  public:
    HandlerFrame() {
        leave_handlers(reinterpret_cast<uint64_t>(this));
        depth_ = self.handler_depth++;
        if (depth_ < kMostFrames) self.handler_frames[depth_] = reinterpret_cast<uint64_t>(this);
    }
    ~HandlerFrame() { self.handler_depth = depth_; }
    HandlerFrame(const HandlerFrame&) = delete;
    HandlerFrame& operator=(const HandlerFrame&) = delete;

  private:
    uint32_t depth_;
};

using Handler = void (*)(int, siginfo_t*, void*);
/// Where a handler with these flags has to run: the top of this thread's alternate stack; nullptr: where it
/// is called.
void* stack_for_handler(uint64_t flags);
/// Calls it there. What unwinds out of it comes by.
extern "C" __attribute__((visibility("hidden"))) void crane_call_on_stack(void* top, Handler handler,
                                                                          int signal, siginfo_t* info,
                                                                          void* context);

}  // namespace crane::interpose
