// epoll over virtual sockets; descriptors of the kernel are watched through the real epoll behind the same
// number. Edges, one-shot and the order of events are the kernel's own rules: a ready list, in order of
// becoming ready.
#pragma once

#include <sys/epoll.h>

#include "interpose/core/runtime.hpp"

namespace crane::interpose {

uint32_t new_epoll();
void release_epoll(uint32_t epoll);
/// -errno or 0. `object` is the virtual socket, timer, signalfd or epoll behind fd.
int epoll_control(uint32_t epoll, int operation, int fd, Watched watched, uint32_t object,
                  const epoll_event* event);
int epoll_control_kernel(uint32_t epoll, int real_epoll, int operation, int fd, epoll_event* event);
/// Events that are ready now; never blocks.
int epoll_collect(uint32_t epoll, int real_epoll, epoll_event* events, int most);
bool epoll_ready(uint32_t epoll, int real_epoll);
/// When the earliest timer in it falls due; dmt::kNoDeadline: never.
uint64_t epoll_deadline(uint32_t epoll);
/// Something happened on the socket: `events` may have become true.
void notify_watchers(uint32_t socket, uint32_t events);
/// The socket, timer, signalfd or epoll is gone, and its place may be used again.
void drop_watches(Watched watched, uint32_t object);
/// Kernel streams whose signature meets `mask` were acted on: epolls that watch such are looked at again.
void kernel_stream_event(uint64_t mask);
/// Some of `signals` became pending somewhere: epolls with such a signalfd are looked at again.
void signal_fd_event(uint64_t signals);
inline uint64_t epoll_key(uint32_t epoll) {
    return make_key(ObjectKind::kEpoll, epoll);
}

}  // namespace crane::interpose
