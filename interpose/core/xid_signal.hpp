// The signal by which libc has each thread of a process change its user or group (nptl's SIGSETXID).
#pragma once

namespace crane::interpose {

/// After libc has made a thread: its handler runs with the system calls let through from now on. It comes at
/// any instruction, and the thread that waits for it in the kernel may have the turn.
void lead_xid_signal();

}  // namespace crane::interpose
