// The end of a process as an event of the schedule.
//
// Rules:
//  - A process that ends in the schedule passes the turn on while it still lives; who gets the turn waits
//    until the kernel has let go of all that it had.
//  - A process that ends by its own deed anywhere else (abort, trap, stack overflow, a limit, seccomp, a
//    loader that fails) had the turn: it died at a place that the log determines. Its real parent, or the
//    nearest ancestor when that is gone too (every process is a sub-reaper), is told by SIGCHLD, acts as the
//    dead one and passes its turn on.
//  - A process that dies while it waits for the turn, or by a signal that no deed of its own brings in the
//    midst of an operation, was killed from outside: what it was in the midst of is lost, at no determined
//    place, and the domain is given up.
#pragma once

#include <csignal>

#include "interpose/core/runtime.hpp"

namespace crane::interpose {

/// The real handler of SIGCHLD.
void on_child(int signal, siginfo_t* info, void* context);
/// The wait status of a child that is dead and not reaped yet; -1: it lives, or is no child.
int status_of_dead(int pid);
/// Called by who is handed the turn: waits for the process that passed it on and ended.
void await_ended_process();
/// Waits until the process is dead, its descriptors closed and its locks given up.
void await_death(int pid);
/// It has ended, or will be gone before anybody looks, and no process of the domain waits for it: its real
/// parent is whichever of its ancestors is left, and has to let the kernel forget it. Turn in hand.
void note_orphan(int pid);
/// The number is another process's now.
void forget_orphan(int pid);
/// Such a one, which no program is to see any more.
bool is_ended_orphan(int pid);
/// The kernel forgets the child, which has ended or is about to.
void reap(int pid);
/// Makes this process the one that orphans below it come to.
void adopt_orphans();

}  // namespace crane::interpose
