// The size of stdio's buffers, the same on every file system.
//
// libc makes a stream's buffer at its first use, as large as a block of the file system that the file is on,
// which it asks the kernel for past every wrapper. Where hosts differ in that, so would all that lies on the
// heap behind it, and what is read or written at once.
#pragma once

#include <stdio.h>

namespace crane::interpose {

/// Gives a stream over a regular file the buffer that libc would give it at its first use on blocks of 4 KiB.
/// Others keep libc's own, whose size is not the host's. `stream` may be null. Keeps errno.
void give_buffer(FILE* stream);

}  // namespace crane::interpose
