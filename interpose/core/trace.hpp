// The trace of the schedule: a record for each scheduled operation, in a file that CRANE_TRACE names. For
// finding where two replicas part (docs/debugging.md); slow.
#pragma once

namespace crane::interpose {

/// A name that is no absolute path is one of the replica's shared folder. What the process has mapped is
/// appended to the same name with .maps, so that a caller's address can be given a name.
void open_trace(char** environment);

}  // namespace crane::interpose
