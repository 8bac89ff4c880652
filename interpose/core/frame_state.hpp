// What a thread's registers held as a signal came, as the frame that the kernel makes for its handler has
// them. Pure.
#pragma once

#include <sys/ucontext.h>

#include "interpose/core/state_cycle.hpp"

namespace crane::interpose {

Registers registers_of(const ucontext_t& context);
VectorState vectors_of(const ucontext_t& context);
/// Of this thread: what the segment fs begins at.
uint64_t thread_base();

}  // namespace crane::interpose
