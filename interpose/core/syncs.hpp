// Waiting for the disk: while a thread syncs a file, the others go on.
//
// Nobody in the domain can see what a sync does, so it may run beside the schedule if only where it begins
// and where its thread goes on are the schedule's: that is at the tail of the run queue, and when its turn
// comes the domain waits for its own disk. So transactions that come together still share a sync, as
// natively.
//
// Rules:
//  - Where no other thread can go on, and under a filter of the program's own, the turn is kept.
//  - A descriptor is closed only when no sync of it is under way any more: another file might have its number
//    when the kernel looks at it.
#pragma once

#include "interpose/core/runtime.hpp"

namespace crane::interpose {

/// fsync(), fdatasync(), syncfs(), sync_file_range() of a descriptor, by number. Result or -errno.
long sync_beside(long number, int fd, long from = 0, long bytes = 0, long flags = 0);
/// Returns when no sync of a descriptor from `first` to `last` is under way in this process. Turn in hand.
void await_syncs(unsigned first, unsigned last);

}  // namespace crane::interpose
