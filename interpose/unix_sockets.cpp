#include "interpose/unix_sockets.hpp"

#include <poll.h>
#include <sys/un.h>

#include <cstddef>

#include "interpose/core/blocking.hpp"
#include "interpose/core/user_memory.hpp"

namespace crane::interpose {

namespace {

/// SO_SNDBUF and SO_RCVBUF as Linux has them where no administrator has changed it, and the most that is set.
constexpr int kUnixRoom = 212'992, kMostUnixRoom = 212'992;

}  // namespace

void set_unix_room(int fd) {
    const int half = kUnixRoom / 2;  // the kernel doubles it
    raw(SYS_setsockopt, fd, SOL_SOCKET, SO_SNDBUF, &half, sizeof(half));
    raw(SYS_setsockopt, fd, SOL_SOCKET, SO_RCVBUF, &half, sizeof(half));
}

long set_kernel_option(int fd, int level, int name, const void* value, socklen_t length) {
    int wanted = 0;
    const bool room = level == SOL_SOCKET && (name == SO_SNDBUF || name == SO_RCVBUF);
    if (!room || length < sizeof(wanted) || !fetch(wanted, static_cast<const int*>(value)))
        return raw(SYS_setsockopt, fd, level, name, value, length);
    if (wanted < 0 || wanted > kMostUnixRoom) wanted = kMostUnixRoom;  // it takes it for unsigned
    return raw(SYS_setsockopt, fd, level, name, &wanted, sizeof(wanted));
}

long bind_to_free_name(int fd) {
    constexpr uint32_t kNames = 1 << 20, kDigits = 5;
    sockaddr_un at{};
    socklen_t length = sizeof(at);
    if (const long error = raw(SYS_getsockname, fd, &at, &length)) return error;
    if (length > sizeof(at.sun_family)) return 0;  // it has one
    at = {};
    at.sun_family = AF_UNIX;
    for (uint32_t tries = 0; tries < kNames; ++tries) {
        const uint32_t number = domain().unix_names++;
        for (uint32_t i = 0; i < kDigits; ++i)
            at.sun_path[1 + i] = "0123456789abcdef"[number >> (kDigits - 1 - i) * 4 & 0xf];
        const long rc = raw(SYS_bind, fd, &at, offsetof(sockaddr_un, sun_path) + 1 + kDigits);
        if (rc != -EADDRINUSE) return rc;
    }
    return -ENOSPC;
}

bool is_unix(int fd) {
    int family = 0;
    socklen_t length = sizeof(family);
    return raw(SYS_getsockopt, fd, SOL_SOCKET, SO_DOMAIN, &family, &length) == 0 && family == AF_UNIX;
}

long connect_unix(int fd, const sockaddr* address, socklen_t length) {
    fd_entry(fd);
    Operation turn(Op::kConnect, descriptor_key(fd), object_of(fd));
    const uint64_t deadline_ns = stream_deadline(fd, POLLOUT);
    for (;;) {
        const bool waits = !kernel_nonblocking(fd);
        long rc = 0;
        {
            const WithoutWaiting kernel(fd);
            rc = uninterrupted([&] { return raw(SYS_connect, fd, address, length); });
        }
        if (rc != -EAGAIN || !waits) {
            scheduler().spend(self.slot, crane::dmt::kKernelStepNs);
            all_streams_event();
            return rc;
        }
        // Whoever accepts says so to all that wait for streams.
        switch (turn.wait(own_key(), deadline_ns, true, ~uint64_t{0})) {
            case dmt::WaitResult::kTimedOut:
                return -EAGAIN;
            case dmt::WaitResult::kInterrupted:
                if (!restart_on_socket(deadline_ns)) return -EINTR;
                break;
            case dmt::WaitResult::kSignaled:
                break;
        }
    }
}

}  // namespace crane::interpose
