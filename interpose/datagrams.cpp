#include "interpose/datagrams.hpp"

#include <netinet/in.h>

#include <cstddef>
#include <cstring>

#include "interpose/core/blocking.hpp"
#include "interpose/core/datagrams.hpp"
#include "interpose/core/own_addresses.hpp"
#include "interpose/core/socket_options.hpp"
#include "interpose/core/threads.hpp"
#include "interpose/core/user_memory.hpp"

namespace crane::interpose {

namespace {

/// Where the datagram came to, for a program that asked to be told (IP_PKTINFO).
long tell_address(const DatagramInfo& info, msghdr& message) {
    alignas(cmsghdr) char text[CMSG_SPACE(sizeof(in6_pktinfo))] = {};
    auto* head = reinterpret_cast<cmsghdr*>(text);
    if (info.to.family == AF_INET6) {
        in6_pktinfo told{};
        std::memcpy(&told.ipi6_addr, info.to.bytes, 16);
        told.ipi6_ifindex = static_cast<unsigned>(interface_of(info.to));
        *head = {CMSG_LEN(sizeof(told)), IPPROTO_IPV6, IPV6_PKTINFO};
        std::memcpy(CMSG_DATA(head), &told, sizeof(told));
    } else {
        in_pktinfo told{};
        std::memcpy(&told.ipi_addr, info.to.bytes, 4);
        told.ipi_spec_dst = told.ipi_addr;
        told.ipi_ifindex = interface_of(info.to);
        *head = {CMSG_LEN(sizeof(told)), IPPROTO_IP, IP_PKTINFO};
        std::memcpy(CMSG_DATA(head), &told, sizeof(told));
    }
    if (message.msg_controllen < head->cmsg_len) {
        message.msg_flags |= MSG_CTRUNC;
        message.msg_controllen = 0;
        return 0;
    }
    const size_t space = CMSG_ALIGN(head->cmsg_len);
    const size_t bytes = space < message.msg_controllen ? space : message.msg_controllen;
    if (crane_copy(message.msg_control, text, bytes) != 0) return -EFAULT;
    message.msg_controllen = bytes;
    return 0;
}

long tell_more(uint32_t socket, const DatagramInfo& info, const DatagramWanted& wanted, long taken) {
    const bool from_somebody = info.from.family != 0;
    if (wanted.message) {
        msghdr& message = *wanted.message;
        message.msg_flags = static_cast<size_t>(taken) < info.bytes ? MSG_TRUNC : 0;
        if (!domain().sockets[socket].datagram.tells_address || !from_somebody) {
            message.msg_controllen = 0;
        } else if (const long error = tell_address(info, message)) {
            return error;
        }
    }
    if (!wanted.length) return 0;
    if (wanted.address && from_somebody) return address_to_sockaddr(info.from, wanted.address, wanted.length);
    return store(wanted.length, socklen_t{0}) ? 0 : -EFAULT;
}

/// The least that says which group; 0: the option is none to join or leave one by.
size_t group_bytes(int level, int name, bool& joins) {
    joins = true;
    switch (name) {
        case MCAST_LEAVE_GROUP:
        case MCAST_LEAVE_SOURCE_GROUP:
            joins = false;
            [[fallthrough]];
        case MCAST_JOIN_GROUP:
        case MCAST_JOIN_SOURCE_GROUP:
            return sizeof(group_req);
        default:
            break;
    }
    if (level == IPPROTO_IPV6) {
        joins = name == IPV6_JOIN_GROUP;
        return joins || name == IPV6_LEAVE_GROUP ? sizeof(ipv6_mreq) : 0;
    }
    joins = name == IP_ADD_MEMBERSHIP || name == IP_ADD_SOURCE_MEMBERSHIP;
    return joins || name == IP_DROP_MEMBERSHIP || name == IP_DROP_SOURCE_MEMBERSHIP ? sizeof(ip_mreq) : 0;
}

bool names_group(int level, int name, const void* value) {
    Address group{static_cast<uint16_t>(level == IPPROTO_IPV6 ? AF_INET6 : AF_INET), 0, {}};
    if (name >= MCAST_JOIN_GROUP && name <= MCAST_LEAVE_SOURCE_GROUP) {
        sockaddr_in6 at;  // the longest that a group can have
        std::memcpy(&at, static_cast<const char*>(value) + offsetof(group_req, gr_group), sizeof(at));
        return address_from_sockaddr(reinterpret_cast<sockaddr*>(&at), sizeof(at), group) == 0 &&
               is_group(group);
    }
    std::memcpy(group.bytes, value, level == IPPROTO_IPV6 ? sizeof(in6_addr) : sizeof(in_addr));
    return is_group(group);
}

/// What is sent to a group leaves by no interface: but for whether this host hears it, it is only kept.
bool sends_to_groups(int level, int name) {
    if (level == IPPROTO_IP)
        return name == IP_MULTICAST_TTL || name == IP_MULTICAST_LOOP || name == IP_MULTICAST_IF ||
               name == IP_MULTICAST_ALL;
    return level == IPPROTO_IPV6 &&
           (name == IPV6_MULTICAST_HOPS || name == IPV6_MULTICAST_LOOP || name == IPV6_MULTICAST_IF);
}

bool is_loop(int level, int name) {
    return level == IPPROTO_IP ? name == IP_MULTICAST_LOOP : name == IPV6_MULTICAST_LOOP;
}

/// The interface is named by an address that a host of the cluster may have, and the container has not.
bool names_interface_elsewhere(int level, int name, const void* value, socklen_t bytes) {
    if (level != IPPROTO_IP || name != IP_MULTICAST_IF) return false;
    ip_mreqn wanted{};
    const bool alone = bytes < sizeof(ip_mreq);
    std::memcpy(alone ? &wanted.imr_address : static_cast<void*>(&wanted), value,
                alone                    ? sizeof(in_addr)
                : bytes < sizeof(wanted) ? sizeof(ip_mreq)
                                         : sizeof(wanted));
    Address address{AF_INET, 0, {}};
    std::memcpy(address.bytes, &wanted.imr_address, sizeof(in_addr));
    return wanted.imr_ifindex == 0 && !is_for_many(address);
}

/// A flag of one byte or more.
bool is_set(const void* value, socklen_t bytes) {
    int number = 0;
    std::memcpy(&number, value, bytes < sizeof(number) ? 1 : sizeof(number));
    return number != 0;
}

long set_group(DatagramSocket& socket, int level, int name, const void* value, bool joins) {
    if (!names_group(level, name, value)) return -EINVAL;
    if (!joins) return 0;
    refuse_call("datagrams from a group (multicast) but by the server's own processes");
    socket.groups |= kInGroups;
    return 0;
}

bool tells_address(int level, int name) {
    return (level == IPPROTO_IP && name == IP_PKTINFO) || (level == IPPROTO_IPV6 && name == IPV6_RECVPKTINFO);
}

}  // namespace

bool is_udp(int family, int type, int protocol) {
    return (family == AF_INET || family == AF_INET6) && (type & 0xf) == SOCK_DGRAM &&
           (protocol == 0 || protocol == IPPROTO_UDP);
}

long receive_datagram(uint32_t socket, const iovec* vector, int count, int flags,
                      const DatagramWanted& wanted) {
    if (flags & MSG_OOB) return -EOPNOTSUPP;
    if (flags & MSG_ERRQUEUE) return -EAGAIN;
    Operation turn(Op::kReceive, socket_key(socket));
    SocketHold hold;
    const VirtualSocket& s = domain().sockets[socket];
    const uint64_t deadline =
        s.receive_timeout_ns ? deadline_from_relative_ns(s.receive_timeout_ns) : dmt::kNoDeadline;
    for (;;) {
        DatagramInfo info;
        const long n = datagram_receive(socket, vector, count, flags & MSG_PEEK, info);
        if (n >= 0) {
            if (const long error = tell_more(socket, info, wanted, n)) return error;
            return flags & MSG_TRUNC ? static_cast<long>(info.bytes) : n;
        }
        if (n != -EAGAIN) return n;
        if (s.nonblocking || (flags & MSG_DONTWAIT)) {
            turn.yield();
            return -EAGAIN;
        }
        if (s.shut_read) {  // who would wait is told of the end: 0 bytes from nobody
            const long error = tell_more(socket, info, wanted, 0);
            return error ? error : 0;
        }
        if (const long error = wait_on_socket(turn, hold, socket, socket_key(socket), deadline)) return error;
    }
}

long send_datagram(uint32_t socket, const iovec* vector, int count, int flags, const sockaddr* address,
                   socklen_t length) {
    if (flags & MSG_OOB) return -EOPNOTSUPP;
    Operation turn(Op::kSend, socket_key(socket));
    if (flags & MSG_MORE) {
        refuse_call("a datagram in pieces (MSG_MORE)");
        return -EOPNOTSUPP;
    }
    if (!address) return datagram_send(socket, vector, count, nullptr);
    sockaddr_storage given{};
    if (length > sizeof(given)) return -EINVAL;
    if (crane_copy(&given, address, length) != 0) return -EFAULT;
    Address to;
    if (const int error = address_from_sockaddr(reinterpret_cast<sockaddr*>(&given), length, to))
        return error;
    return datagram_send(socket, vector, count, &to);
}

bool datagram_set_option(uint32_t socket, int level, int name, const void* value, socklen_t bytes, long& rc) {
    VirtualSocket& s = domain().sockets[socket];
    rc = 0;
    bool joins = false;
    const bool of_address = level == IPPROTO_IP || level == IPPROTO_IPV6;
    if (const size_t least = of_address ? group_bytes(level, name, joins) : 0) {
        if (bytes < least)
            rc = -EINVAL;
        else
            rc = readable(value, least) ? set_group(s.datagram, level, name, value, joins) : -EFAULT;
        return true;
    }
    if (sends_to_groups(level, name)) {
        rc = keep_option(socket, level, name, value, bytes);
        if (rc == -EADDRNOTAVAIL && names_interface_elsewhere(level, name, value, bytes)) rc = 0;
        if (rc < 0 || !is_loop(level, name)) return true;
        s.datagram.groups &= static_cast<uint8_t>(~kUnheard);
        if (!is_set(value, bytes)) s.datagram.groups |= kUnheard;
        return true;
    }
    if (!tells_address(level, name)) return false;
    int number = 0;
    if (bytes < sizeof(number)) {
        rc = -EINVAL;
        return true;
    }
    std::memcpy(&number, value, sizeof(number));
    s.datagram.tells_address = number != 0;
    return true;
}

bool datagram_get_option(uint32_t socket, int level, int name, int& number) {
    if (tells_address(level, name)) return number = domain().sockets[socket].datagram.tells_address, true;
    if (level != SOL_SOCKET) return false;
    switch (name) {
        case SO_TYPE:
            return number = SOCK_DGRAM, true;
        case SO_PROTOCOL:
            return number = IPPROTO_UDP, true;
        case SO_ERROR:
            return number = datagram_take_error(socket), true;
        default:
            return false;
    }
}

}  // namespace crane::interpose
