// Making, naming and ending sockets. TCP and UDP are virtual from socket() on; every other family is the
// kernel's, inside the domain's own network namespace, and waiting on it is scheduled.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>

#include <cstring>

#include "interpose/core/blocking.hpp"
#include "interpose/core/datagrams.hpp"
#include "interpose/core/egress.hpp"
#include "interpose/core/native_ports.hpp"
#include "interpose/core/socket_options.hpp"
#include "interpose/core/sockets.hpp"
#include "interpose/core/threads.hpp"
#include "interpose/core/user_memory.hpp"
#include "interpose/datagrams.hpp"
#include "interpose/unix_sockets.hpp"

namespace crane::interpose {
namespace {

VirtualSocket& at(const FdEntry& entry) {
    return domain().sockets[entry.object];
}

FdEntry* virtual_socket(int fd) {
    return entry_of_kind(fd, FdKind::kSocket);
}

bool is_tcp(int family, int type, int protocol) {
    return (family == AF_INET || family == AF_INET6) && (type & 0xf) == SOCK_STREAM &&
           (protocol == 0 || protocol == IPPROTO_TCP);
}

/// What the kernel would make, or not, by what modules it has, and nobody could reach: MPTCP, SCTP, UDP-Lite.
/// 0: it is to be asked.
long refuse_transport(int family, int type, int protocol) {
    constexpr int kProtocols = 263;  // up to IPPROTO_MPTCP
    if (family != AF_INET && family != AF_INET6) return 0;
    switch (type & 0xf) {
        case SOCK_STREAM:
        case SOCK_DGRAM:
            return protocol < 0 || protocol >= kProtocols ? 0 : -EPROTONOSUPPORT;
        case SOCK_SEQPACKET:
        case SOCK_DCCP:
            return -ESOCKTNOSUPPORT;
        default:
            return 0;
    }
}

/// Puts a descriptor in front of a virtual socket; on failure the socket is given back.
long install(uint32_t socket, bool close_on_exec) {
    const int fd = new_placeholder(close_on_exec);
    if (fd < 0) {
        release_socket(socket);
        return -errno;
    }
    set_entry(fd, FdKind::kSocket, socket);
    return fd;
}

long make_virtual(int family, int type) {
    Operation turn(Op::kSocket, process_key(runtime.process->pid));
    const bool stream = (type & 0xf) == SOCK_STREAM;
    const bool nonblocking = type & SOCK_NONBLOCK;
    const uint32_t socket =
        stream ? new_socket(family, nonblocking) : new_datagram_socket(family, nonblocking);
    return socket == kNone ? -ENFILE : install(socket, type & SOCK_CLOEXEC);
}

long accept_virtual(const FdEntry& entry, sockaddr* address, socklen_t* length, int flags) {
    if (flags & ~(SOCK_NONBLOCK | SOCK_CLOEXEC)) return -EINVAL;
    Operation turn(Op::kAccept, socket_key(entry.object));
    if (is_datagram(entry.object)) return -EOPNOTSUPP;
    const uint32_t listener = entry.object;
    const VirtualSocket& l = domain().sockets[listener];
    SocketHold hold;
    const uint64_t timeout = l.receive_timeout_ns;
    if (address && !writable(length, sizeof(*length))) return -EFAULT;
    const uint64_t deadline = timeout ? deadline_from_relative_ns(timeout) : dmt::kNoDeadline;
    for (;;) {
        if (l.state != SocketState::kListening) return -EINVAL;
        if (l.queued != 0) {
            // Without a descriptor for it the client goes on waiting.
            const int fd = new_placeholder(flags & SOCK_CLOEXEC);
            if (fd < 0) {
                const int error = errno;
                turn.yield();
                return -error;
            }
            const uint32_t socket = socket_accept(listener);
            VirtualSocket& s = domain().sockets[socket];
            s.nonblocking = (flags & SOCK_NONBLOCK) != 0;
            if (const int error = address ? address_to_sockaddr(s.peer, address, length) : 0) {
                release_socket(socket);
                raw(SYS_close, fd);
                return error;
            }
            set_entry(fd, FdKind::kSocket, socket);
            return fd;
        }
        if (l.nonblocking) {
            turn.yield();
            return -EAGAIN;
        }
        hold.take(listener);
        switch (turn.wait(socket_key(listener), deadline, true)) {
            case dmt::WaitResult::kTimedOut:
                return -EAGAIN;
            case dmt::WaitResult::kInterrupted:
                if (!restart_on_socket(deadline)) return -EINTR;
                break;
            case dmt::WaitResult::kSignaled:
                break;
        }
    }
}

/// -errno where accept() would wait for what nobody can connect to. 0: it listens.
long why_no_listener(int fd) {
    int listens = 0;
    socklen_t size = sizeof(listens);
    if (const long error = raw(SYS_getsockopt, fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size)) return error;
    return listens ? 0 : raw(SYS_accept4, fd, nullptr, nullptr, SOCK_NONBLOCK);
}

/// accept and connect on the kernel's sockets (unix): waits in the schedule, then makes the call.
template <typename Call>
long on_kernel_socket(Op op, int fd, short events, Call call) {
    const FdEntry* entry = fd_entry(fd);
    Operation turn(op, descriptor_key(fd), object_of(fd));
    if (const long error = op == Op::kAccept ? why_no_listener(fd) : 0) return error;
    if (entry && entry->kind == FdKind::kStream && events) {
        if (const long error = wait_for_stream(turn, fd, *entry, events)) return error;
    }
    const long rc = uninterrupted(call);
    all_streams_event();
    return rc;
}

/// The address that a call was given, out of the program's memory. Negative: the call's error.
long take_address(sockaddr_storage& into, const sockaddr* given, socklen_t length) {
    if (length > sizeof(into)) return -EINVAL;
    into = {};
    return crane_copy(&into, given, length) == 0 ? 0 : -EFAULT;
}

using AddressCall = int (*)(uint32_t socket, const sockaddr* address, socklen_t length);
long with_address(AddressCall call, uint32_t socket, const sockaddr* given, socklen_t length) {
    sockaddr_storage address;
    if (const long error = take_address(address, given, length)) return error;
    return call(socket, reinterpret_cast<sockaddr*>(&address), length);
}

long connect_virtual(const FdEntry& entry, const sockaddr* address, socklen_t length) {
    Operation turn(Op::kConnect, socket_key(entry.object));
    const uint32_t socket = entry.object;
    long rc = with_address(socket_connect, socket, address, length);
    const VirtualSocket& s = domain().sockets[socket];
    if (rc != -EINPROGRESS || s.nonblocking) return rc;
    SocketHold hold;
    const uint64_t timeout = s.send_timeout_ns;
    const uint64_t deadline = timeout ? deadline_from_relative_ns(timeout) : dmt::kNoDeadline;
    while ((rc = egress_outcome(socket)) == -EINPROGRESS) {
        const long error = wait_on_socket(turn, hold, socket, socket_write_key(socket), deadline);
        if (error) return error == -EAGAIN ? -EINPROGRESS : error;
    }
    return rc;
}

uint64_t timeval_ns(const void* value) {
    timeval t;
    std::memcpy(&t, value, sizeof(t));
    if (t.tv_sec < 0) return 1;  // not at all, as the kernel has it; 0 is for ever
    const uint64_t most = UINT64_MAX / 2'000'000'000, seconds = static_cast<uint64_t>(t.tv_sec);
    if (seconds > most) return 0;
    return seconds * 1'000'000'000 + static_cast<uint64_t>(t.tv_usec) * 1000;
}

/// Options that have no meaning for a socket that lives in memory, and that servers set on every connection.
bool is_common_option(int level, int name) {
    if (level == IPPROTO_TCP) {
        return name == TCP_NODELAY || name == TCP_CORK || name == TCP_QUICKACK;
    }
    return level == SOL_SOCKET && (name == SO_REUSEADDR || name == SO_REUSEPORT);
}

/// Of these, those that have no place of their own in the socket.
bool is_kept_switch(int level, int name) {
    return level == SOL_SOCKET ? name == SO_REUSEADDR
                               : level == IPPROTO_TCP && (name == TCP_CORK || name == TCP_QUICKACK);
}

long set_timeout(VirtualSocket& s, int name, const void* value, socklen_t length) {
    if (length < sizeof(timeval)) return -EINVAL;
    timeval given;
    std::memcpy(&given, value, sizeof(given));
    if (given.tv_usec < 0 || given.tv_usec >= 1'000'000) return -EDOM;
    (name == SO_RCVTIMEO ? s.receive_timeout_ns : s.send_timeout_ns) = timeval_ns(value);
    return 0;
}

long set_option(const FdEntry& entry, int level, int name, const void* value, socklen_t length) {
    VirtualSocket& s = at(entry);
    // No option that is looked at here is longer; what is asked of the idle socket goes there as it is.
    if (static_cast<int>(length) < 0) return -EINVAL;
    if (!readable(value, length < 64 ? length : 64)) return -EFAULT;
    if (level == SOL_SOCKET && (name == SO_RCVTIMEO || name == SO_SNDTIMEO))
        return set_timeout(s, name, value, length);
    if (level == SOL_SOCKET && name == SO_LINGER && length >= sizeof(linger)) {
        linger wanted;
        std::memcpy(&wanted, value, sizeof(wanted));
        s.linger_reset = wanted.l_onoff && wanted.l_linger == 0;
        return keep_option(entry.object, level, name, value, length);
    }
    // What completes in the error queue, and what is cut in the kernel: a program that is told goes without.
    if (level == SOL_SOCKET && name == SO_ZEROCOPY) return -EOPNOTSUPP;
    if (level == IPPROTO_UDP && name == UDP_SEGMENT) return -ENOPROTOOPT;
    long rc = 0;
    if (is_datagram(entry.object) && datagram_set_option(entry.object, level, name, value, length, rc))
        return rc;
    // IPV6_V6ONLY is asked of IPv6 sockets alone, and the idle socket is IPv4.
    if (level == IPPROTO_IPV6) {
        int number = 0;
        if (length >= sizeof(number)) std::memcpy(&number, value, sizeof(number));
        if (name == IPV6_V6ONLY) s.v6_only = number != 0;
        if (s.local.family != AF_INET6) return -ENOPROTOOPT;
        return name == IPV6_V6ONLY ? 0 : keep_option(entry.object, level, name, value, length);
    }
    const bool probe = is_probe_option(level, name);
    if (!is_common_option(level, name) && !probe) {
        rc = keep_option(entry.object, level, name, value, length);
        if (rc < 0) return rc;
    } else if (length < sizeof(int)) {
        return -EINVAL;
    }
    int number = 0;
    if (length >= sizeof(number)) std::memcpy(&number, value, sizeof(number));
    if (level == SOL_SOCKET && name == SO_REUSEPORT) s.reuse_port = number != 0;
    if (probe) return socket_set_probe(entry.object, level, name, number);
    if (is_kept_switch(level, name)) keep_switch(entry.object, level, name, number != 0);
    if (level == IPPROTO_TCP && name == TCP_NODELAY) s.nodelay = number != 0;
    if (level == IPPROTO_TCP && name == TCP_DEFER_ACCEPT) socket_defer_accept(entry.object, number);
    return 0;
}

long get_option(const FdEntry& entry, int level, int name, void* value, socklen_t* length) {
    VirtualSocket& s = at(entry);
    int number;
    socklen_t room;
    if (!fetch(room, length)) return -EFAULT;
    if (static_cast<int>(room) < 0) return -EINVAL;
    if (!writable(value, room < 64 ? room : 64) || !writable(length, sizeof(*length))) return -EFAULT;
    if (is_datagram(entry.object) && datagram_get_option(entry.object, level, name, number)) {
        // It has answered.
    } else if (level == SOL_SOCKET && name == SO_ERROR) {
        number = egress_take_error(entry.object);
        if (number == 0) number = take_reset_error(s);
    } else if (level == SOL_SOCKET && name == SO_ACCEPTCONN) {
        number = s.state == SocketState::kListening;
    } else if (level == SOL_SOCKET && name == SO_REUSEPORT) {
        number = s.reuse_port;
    } else if (is_probe_option(level, name)) {
        number = socket_get_probe(entry.object, level, name);
    } else if (level == SOL_SOCKET && name == SO_DOMAIN) {
        number = s.local.family;
    } else if (level == IPPROTO_IPV6 && name == IPV6_V6ONLY) {
        number = s.v6_only;
    } else if (level == IPPROTO_TCP && name == TCP_NODELAY) {
        number = s.nodelay;
    } else if (level == SOL_SOCKET && (name == SO_RCVTIMEO || name == SO_SNDTIMEO)) {
        const uint64_t ns = name == SO_RCVTIMEO ? s.receive_timeout_ns : s.send_timeout_ns;
        const timeval t{static_cast<time_t>(ns / 1'000'000'000),
                        static_cast<suseconds_t>(ns % 1'000'000'000 / 1000)};
        if (*length < sizeof(t)) return -EINVAL;
        std::memcpy(value, &t, sizeof(t));
        *length = sizeof(t);
        return 0;
    } else {
        return show_option(entry.object, level, name, value, length);
    }
    const socklen_t n = *length < sizeof(number) ? *length : static_cast<socklen_t>(sizeof(number));
    std::memcpy(value, &number, n);
    *length = n;
    return 0;
}

}  // namespace
}  // namespace crane::interpose

using namespace crane::interpose;

CRANE_EXPORT int socket(int family, int type, int protocol) noexcept {
    if (!active()) return resolve_real(), real.socket(family, type, protocol);
    if (is_tcp(family, type, protocol) || is_udp(family, type, protocol))
        return static_cast<int>(as_libc(make_virtual(family, type)));
    Operation turn(Op::kSocket, process_key(runtime.process->pid));
    if (const long error = refuse_transport(family, type, protocol)) return static_cast<int>(as_libc(error));
    const long fd = raw(SYS_socket, family, type, protocol);
    if (fd >= 0) set_entry(static_cast<int>(fd), FdKind::kStream, 0);
    if (fd >= 0 && family == AF_UNIX) set_unix_room(static_cast<int>(fd));
    return static_cast<int>(as_libc(fd));
}

CRANE_EXPORT int socketpair(int family, int type, int protocol, int fds[2]) noexcept {
    if (!active()) return resolve_real(), real.socketpair(family, type, protocol, fds);
    Operation turn(Op::kPipe, process_key(runtime.process->pid));
    const long rc = raw(SYS_socketpair, family, type, protocol, fds);
    if (rc == 0) set_stream(fds[0], fds[1]);
    if (rc == 0 && family == AF_UNIX) set_unix_room(fds[0]), set_unix_room(fds[1]);
    return static_cast<int>(as_libc(rc));
}

CRANE_EXPORT int bind(int fd, const sockaddr* address, socklen_t length) noexcept {
    if (!active()) return resolve_real(), bind_native(fd, address, length);
    if (only_seems_socket(fd)) return static_cast<int>(as_libc(-ENOTSOCK));
    if (const FdEntry* entry = virtual_socket(fd)) {
        Operation turn(Op::kBind, socket_key(entry->object));
        return static_cast<int>(as_libc(with_address(socket_bind, entry->object, address, length)));
    }
    Operation turn(Op::kBind, descriptor_key(fd));
    sa_family_t family = AF_UNSPEC;
    if (length == sizeof(family) && fetch(family, address) && family == AF_UNIX && is_unix(fd))
        return static_cast<int>(as_libc(bind_to_free_name(fd)));
    return static_cast<int>(as_libc(raw(SYS_bind, fd, address, length)));
}

CRANE_EXPORT int listen(int fd, int backlog) noexcept {
    if (!active()) return resolve_real(), listen_native(fd, backlog);
    if (only_seems_socket(fd)) return static_cast<int>(as_libc(-ENOTSOCK));
    Operation turn(Op::kListen, descriptor_key(fd), object_of(fd));
    if (const FdEntry* entry = virtual_socket(fd)) {
        return static_cast<int>(as_libc(socket_listen(entry->object, backlog)));
    }
    return static_cast<int>(as_libc(raw(SYS_listen, fd, backlog)));
}

CRANE_EXPORT int accept4(int fd, sockaddr* address, socklen_t* length, int flags) {
    if (!active()) return resolve_real(), real.accept4(fd, address, length, flags);
    test_cancel();
    if (only_seems_socket(fd)) return static_cast<int>(as_libc(-ENOTSOCK));
    long rc;
    if (const FdEntry* entry = virtual_socket(fd)) {
        rc = accept_virtual(*entry, address, length, flags);
    } else {
        rc = on_kernel_socket(Op::kAccept, fd, POLLIN, [&] {
            const long got = raw(SYS_accept4, fd, address, length, flags);
            if (got >= 0) set_entry(static_cast<int>(got), FdKind::kStream, 0);
            if (got >= 0) set_unix_room(static_cast<int>(got));
            return got;
        });
    }
    if (rc == -EINTR) test_cancel();
    return static_cast<int>(as_libc(rc));
}

CRANE_EXPORT int accept(int fd, sockaddr* address, socklen_t* length) {
    if (!active()) return resolve_real(), real.accept(fd, address, length);
    return accept4(fd, address, length, 0);
}

CRANE_EXPORT int connect(int fd, const sockaddr* address, socklen_t length) {
    if (!active()) return resolve_real(), real.connect(fd, address, length);
    test_cancel();
    if (only_seems_socket(fd)) return static_cast<int>(as_libc(-ENOTSOCK));
    if (const FdEntry* entry = virtual_socket(fd)) {
        const long rc = connect_virtual(*entry, address, length);
        if (rc == -EINTR) test_cancel();
        return static_cast<int>(as_libc(rc));
    }
    sa_family_t family = AF_UNSPEC;
    if (length >= sizeof(family) && fetch(family, address) && family == AF_UNIX) {
        const long rc = connect_unix(fd, address, length);
        if (rc == -EINTR) test_cancel();
        return static_cast<int>(as_libc(rc));
    }
    return static_cast<int>(as_libc(
        on_kernel_socket(Op::kConnect, fd, 0, [&] { return raw(SYS_connect, fd, address, length); })));
}

CRANE_EXPORT int shutdown(int fd, int how) noexcept {
    if (!active()) return resolve_real(), real.shutdown(fd, how);
    if (only_seems_socket(fd)) return static_cast<int>(as_libc(-ENOTSOCK));
    if ((how < SHUT_RD || how > SHUT_RDWR) && virtual_socket(fd)) return static_cast<int>(as_libc(-EINVAL));
    Operation turn(Op::kShutdown, descriptor_key(fd), object_of(fd));
    if (const FdEntry* entry = virtual_socket(fd))
        return static_cast<int>(as_libc(socket_shutdown(entry->object, how)));
    const long rc = raw(SYS_shutdown, fd, how);
    all_streams_event();
    return static_cast<int>(as_libc(rc));
}

CRANE_EXPORT int getsockname(int fd, sockaddr* address, socklen_t* length) noexcept {
    if (!active()) return resolve_real(), getsockname_native(fd, address, length);
    if (only_seems_socket(fd)) return static_cast<int>(as_libc(-ENOTSOCK));
    if (const FdEntry* entry = virtual_socket(fd)) {
        return static_cast<int>(as_libc(address_to_sockaddr(at(*entry).local, address, length)));
    }
    return static_cast<int>(as_libc(raw(SYS_getsockname, fd, address, length)));
}

CRANE_EXPORT int getpeername(int fd, sockaddr* address, socklen_t* length) noexcept {
    if (!active()) return resolve_real(), real.getpeername(fd, address, length);
    if (only_seems_socket(fd)) return static_cast<int>(as_libc(-ENOTSOCK));
    if (const FdEntry* entry = virtual_socket(fd)) {
        const VirtualSocket& s = at(*entry);
        const bool datagrams = is_datagram(entry->object);
        if (datagrams ? !s.datagram.has_peer : s.state != SocketState::kConnected || s.reset)
            return static_cast<int>(as_libc(-ENOTCONN));
        return static_cast<int>(as_libc(address_to_sockaddr(s.peer, address, length)));
    }
    return static_cast<int>(as_libc(raw(SYS_getpeername, fd, address, length)));
}

CRANE_EXPORT int setsockopt(int fd, int level, int name, const void* value, socklen_t length) noexcept {
    if (!active()) return resolve_real(), real.setsockopt(fd, level, name, value, length);
    if (only_seems_socket(fd)) return static_cast<int>(as_libc(-ENOTSOCK));
    if (FdEntry* entry = virtual_socket(fd)) {
        Operation turn(Op::kSocketOption, socket_key(entry->object));
        return static_cast<int>(as_libc(set_option(*entry, level, name, value, length)));
    }
    return static_cast<int>(as_libc(set_kernel_option(fd, level, name, value, length)));
}

CRANE_EXPORT int getsockopt(int fd, int level, int name, void* value, socklen_t* length) noexcept {
    if (!active()) return resolve_real(), real.getsockopt(fd, level, name, value, length);
    if (only_seems_socket(fd)) return static_cast<int>(as_libc(-ENOTSOCK));
    if (const FdEntry* entry = virtual_socket(fd)) {
        Operation turn(Op::kSocketOption, socket_key(entry->object));
        return static_cast<int>(as_libc(get_option(*entry, level, name, value, length)));
    }
    return static_cast<int>(as_libc(raw(SYS_getsockopt, fd, level, name, value, length)));
}
