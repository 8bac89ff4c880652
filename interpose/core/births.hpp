// The numbers of processes and threads, which are the kernel's: each has the next one.
//
// Rules:
//  - As long as nobody but the schedule makes any, the kernel's order is the schedule's.
//  - A program that is not in the schedule makes some by timing. From the first one on the kernel numbers
//    from far off, and from where the schedule was only while that makes one: crane-init, which may, changes
//    it at the shim's word (base/pid_numbers.hpp).
#pragma once

namespace crane::interpose {

/// A program that cannot be scheduled is about to run. Turn in hand.
void number_others_apart();
/// Around what makes a process or thread of the schedule. Turn in hand. `number`: what it was given, 0 if
/// that is not known; in a child nothing is to be said. Begun in vain, it has a number of the others', behind
/// which the schedule's do not go on.
bool begin_birth();
void end_birth(bool begun, long number);

}  // namespace crane::interpose
