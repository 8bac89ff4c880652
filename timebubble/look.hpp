// How craned asks a thread that computes for long to look whether it will ever come to an end
// (interpose/core/endless_rounds.hpp): by a signal that nothing else sends, queued with this value. Only a
// process that catches it is under the shim.
#pragma once

#include <csignal>
#include <cstdint>

namespace crane::timebubble {

constexpr int kLookSignal = SIGSTKFLT;
constexpr uint64_t kLookForRound = 0x646e'756f'7243'0a0dULL;

}  // namespace crane::timebubble
