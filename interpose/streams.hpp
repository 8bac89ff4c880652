// Reading and writing what the kernel keeps and the domain's own processes are both ends of: pipes, eventfds,
// unix and datagram sockets.
//
// Rules:
//  - no call waits in the kernel, where nobody could end its wait: a socket's is made with MSG_DONTWAIT, a
//    pipe's when the pipe is ready, in pieces that it takes whole. What blocks waits in the schedule;
//  - a blocking call writes all, as the kernel's does, in as many turns as the reader needs to make room;
//  - the kernel's SIGPIPE is ignored, and the program's comes in the schedule.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include "interpose/core/fds.hpp"

namespace crane::interpose {

/// All return the bytes that were moved, or a negative error. The vectors were checked before.
long read_stream(int fd, const FdEntry& entry, const iovec* vector, int count);
long write_stream(int fd, const FdEntry& entry, const iovec* vector, int count);
long receive_from_stream(int fd, const FdEntry& entry, void* buffer, size_t bytes, int flags,
                         sockaddr* address, socklen_t* length);
long receive_from_stream(int fd, const FdEntry& entry, msghdr* message, int flags);
long send_to_stream(int fd, const FdEntry& entry, const void* buffer, size_t bytes, int flags,
                    const sockaddr* address, socklen_t length);
long send_to_stream(int fd, const FdEntry& entry, const msghdr* message, int flags);
long send_file_to_stream(int fd, const FdEntry& entry, int file, off_t* offset, size_t bytes);
/// As splice() does, of what there is to be read (splice.cpp).
long splice_stream(int in, int pipe, size_t bytes);

}  // namespace crane::interpose
