// Epolls inside epolls: which may be, and what the ones inside add to what the outer one waits for. An epoll
// is readable while it has an event to tell.
#pragma once

#include <cstdint>

namespace crane::interpose {

/// -ELOOP where it would hold itself, or where more would be inside each other than the kernel allows.
int may_nest(uint32_t outer, uint32_t inner);
/// A descriptor of this process by which the kernel can be asked about the epoll, first of all `fd`; -1: it
/// has none any more, or the kernel knows nothing of it.
int descriptor_of_epoll(uint32_t epoll, int fd);
/// Signature of the kernel's streams in it and in those inside it; 0: none.
uint64_t epoll_streams(uint32_t epoll);

}  // namespace crane::interpose
