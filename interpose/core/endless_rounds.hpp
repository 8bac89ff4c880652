// A thread with the turn that waits for what another thread is to write, in a loop that nobody knew for one:
// with calls, locks tried in vain, many instructions. Under `serial` it would keep the turn for ever.
//
// craned sees that no operation completes while a thread computes, and asks that thread to look at itself
// (timebubble/look.hpp). It goes on instruction by instruction, by the trap flag. If it comes back to where
// it was, with all that it has written as it was, it waits (state_cycle.hpp): the jump that closes the round
// becomes a trap, like those that are found beforehand (pauses.hpp), and each round gives way from then on.
//
// Rules:
//  - what is found is a matter of the state that the thread stands in, not of when it looked: so replicas
//    need not agree on when to look, and the first operation at the jump has the same place in the schedule
//    everywhere;
//  - one that waits for nobody, since no other thread can do anything without it, is left alone: such a
//    server is ended and started again (setting endless_s);
//  - the search costs some 3 us a step, and few steps beside how long the thread has stood; it ends at the
//    first system call, trap or instruction that is not known;
//  - where code cannot be changed (the C library, code made at run time) the thread gives way once, and is to
//    look again; so where an interpreter goes from one of its instructions to the next by what a register
//    names, since each loop of a program would meet the trap.
#pragma once

#include <signal.h>

#include "interpose/core/runtime.hpp"

namespace crane::interpose {

/// craned asks (timebubble/look.hpp).
void look_for_round(const siginfo_t& info, ucontext_t& context);
/// A system call of the thread was trapped, which no round goes through: the search is over before others may
/// run.
void leave_round(ucontext_t& context);
/// Called for each SIGTRAP that is no trap in the code. True: it was about this.
bool follow_round(const siginfo_t& info, ucontext_t& context);

}  // namespace crane::interpose
