// Opening a fifo, which waits until somebody opens its other end.
#pragma once

#include <sys/types.h>

namespace crane::interpose {

/// Whether an open with these flags would wait for another process in the kernel.
bool opens_fifo(int directory, const char* path, int flags);
/// The same in turn: others run meanwhile. A descriptor, or -errno.
long open_fifo(int directory, const char* path, int flags);
/// A descriptor opened without waiting: if it is of a fifo, who waits for its other end goes on.
void tell_other_end(int fd);
/// Of fopen(); -1: `mode` says that it is opened for both, which does not wait.
int fifo_flags(const char* mode);

}  // namespace crane::interpose
