// Instructions that are trapped: each `pause` of a scheduled thread, and each round of a loop that only looks
// at memory, is a chance for the others to run, and rdrand and rdseed draw from the process's own stream of
// random bytes.
//
// Under `serial` a thread that waits for another one by looking at memory keeps the turn, so that the other
// one never writes what it waits for. Most who spin say so by `pause`; the loops of the others are found in
// their code (spin_loops.hpp). As an object is loaded, before any of its code runs, the first byte of each
// `pause` in it becomes a trap, and that of each such loop's jump back once the process has a second thread
// or a child to wait for: most that are executed never have, and looking for loops takes long. The handler
// makes an operation that gives way (make_way), and does what the jump would have done.
//
// A loop that is passed again and again without a second round is moved (loop_move.hpp): a jump to a copy of
// it stands at its head, and only a further round of the copy is a trap.
//
// A loop that counts its rounds as well ends by itself, maybe after a million of them. So that this does not
// take a million operations, its jump is one again, after some, until the thread makes another operation.
//
// Rules:
//  - only what is an instruction for certain is changed: the walk through the function, as the object's own
//    table of functions has it, comes to it and goes on to the end. Code of no file is left alone;
//  - what is done depends on nothing but the files, and on how often a thread gave way, so every replica does
//    the same;
//  - the C library, the loader and the shim are left alone: their locks are scheduled;
//  - pauses and jumps are left alone under `parallel`, where the other thread runs by itself, or with
//    CRANE_PAUSE=real; what draws random numbers is with CRANE_RDRAND=real.
#pragma once

#include <signal.h>

#include "interpose/core/jumps.hpp"
#include "interpose/core/runtime.hpp"

namespace crane::interpose {

/// For the whole domain: what is trapped, as the server's environment has it.
void choose_pauses(char** environment);
/// In a program fresh from exec, when its first objects are loaded and faults have handlers.
void trap_pauses();
/// Before a process has its second thread, or a child that shares memory with it: nobody else runs in it.
/// Does nothing the second time.
void trap_loops();
/// The jump at `at` closes a loop in which a thread with the turn waits (endless_rounds.hpp): a trap from now
/// on. False: code there is left alone.
bool trap_jump_at(uint64_t at);
/// Others may run before a thread comes back to `at`: if that is in the midst of a loop, none is moved from
/// now on.
void leave_loops_in_place(uint64_t at);
/// A trap stands at `at`, in the place of a jump: what it was. False: it is none of those.
bool read_trapped_jump(uint64_t at, uint8_t (&code)[kLongestJumpBytes], Jump& jump);
/// A thread went past the trapped jump at `at` without meeting the trap, and did not take it.
void pass_trapped_jump(uint64_t at);
/// Called first for each SIGTRAP. True: it was one of these traps, and the program goes on behind it.
bool take_pause(const siginfo_t& info, ucontext_t& context);

}  // namespace crane::interpose
