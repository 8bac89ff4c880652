// Unread input of virtual sockets: chains of fixed chunks from one pool in the domain's memory.
#pragma once

#include <sys/uio.h>

#include "interpose/core/runtime.hpp"

namespace crane::interpose {

/// False, and nothing appended, when the pool is used up.
bool chunks_append(VirtualSocket& s, const uint8_t* bytes, size_t count);
/// How much was read, or -EFAULT. `discard`: the bytes go nowhere, only the vector's lengths count.
long chunks_read(VirtualSocket& s, const iovec* vector, int count, bool peek, bool discard = false);
void chunks_drop(VirtualSocket& s);

}  // namespace crane::interpose
