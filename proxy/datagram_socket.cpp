#include "proxy/datagram_socket.hpp"

#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "timebubble/limits.hpp"

namespace crane::proxy {

using timebubble::DatagramPayload;

namespace {

constexpr int kAtOnce = 256;  // datagrams: others of the loop shall have their turn
constexpr int kBufferBytes = 4 * 1024 * 1024;

/// Room for the address that a datagram came to, aligned as the kernel wants it.
union Control {
    cmsghdr head;
    char bytes[CMSG_SPACE(sizeof(in6_pktinfo))];
};

void read_local(msghdr& message, DatagramPayload& call) {
    for (cmsghdr* head = CMSG_FIRSTHDR(&message); head; head = CMSG_NXTHDR(&message, head)) {
        if (head->cmsg_level == IPPROTO_IP && head->cmsg_type == IP_PKTINFO) {
            in_pktinfo info;
            memcpy(&info, CMSG_DATA(head), sizeof(info));
            memcpy(call.local, &info.ipi_addr, sizeof(info.ipi_addr));
        } else if (head->cmsg_level == IPPROTO_IPV6 && head->cmsg_type == IPV6_PKTINFO) {
            in6_pktinfo info;
            memcpy(&info, CMSG_DATA(head), sizeof(info));
            memcpy(call.local, &info.ipi6_addr, sizeof(info.ipi6_addr));
        }
    }
}

bool read_peer(const sockaddr_storage& from, DatagramPayload& call) {
    call.family = from.ss_family;
    if (from.ss_family == AF_INET) {
        const auto& in = reinterpret_cast<const sockaddr_in&>(from);
        call.peer_port = ntohs(in.sin_port);
        memcpy(call.peer, &in.sin_addr, sizeof(in.sin_addr));
        return true;
    }
    if (from.ss_family != AF_INET6) return false;
    const auto& in = reinterpret_cast<const sockaddr_in6&>(from);
    call.peer_port = ntohs(in.sin6_port);
    memcpy(call.peer, &in.sin6_addr, sizeof(in.sin6_addr));
    return true;
}

socklen_t write_peer(const DatagramPayload& call, sockaddr_storage& to) {
    to = {};
    to.ss_family = call.family;
    if (call.family == AF_INET) {
        auto& in = reinterpret_cast<sockaddr_in&>(to);
        in.sin_port = htons(call.peer_port);
        memcpy(&in.sin_addr, call.peer, sizeof(in.sin_addr));
        return sizeof(in);
    }
    auto& in = reinterpret_cast<sockaddr_in6&>(to);
    in.sin6_port = htons(call.peer_port);
    memcpy(&in.sin6_addr, call.peer, sizeof(in.sin6_addr));
    return sizeof(in);
}

/// The address that it is to come from.
void write_local(const DatagramPayload& call, msghdr& message, Control& control) {
    message.msg_control = &control;
    if (call.family == AF_INET) {
        in_pktinfo info{};
        memcpy(&info.ipi_spec_dst, call.local, sizeof(info.ipi_spec_dst));
        control.head = {CMSG_LEN(sizeof(info)), IPPROTO_IP, IP_PKTINFO};
        memcpy(CMSG_DATA(&control.head), &info, sizeof(info));
        message.msg_controllen = CMSG_SPACE(sizeof(info));
    } else {
        in6_pktinfo info{};
        memcpy(&info.ipi6_addr, call.local, sizeof(info.ipi6_addr));
        control.head = {CMSG_LEN(sizeof(info)), IPPROTO_IPV6, IPV6_PKTINFO};
        memcpy(CMSG_DATA(&control.head), &info, sizeof(info));
        message.msg_controllen = CMSG_SPACE(sizeof(info));
    }
}

}  // namespace

void prepare_datagram_socket(int fd, int family) {
    const int on = 1;
    if (family == AF_INET6) {
        setsockopt(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, &on, sizeof(on));
    } else {
        setsockopt(fd, IPPROTO_IP, IP_PKTINFO, &on, sizeof(on));
    }
    // What comes in a burst waits here, where that is let.
    if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &kBufferBytes, sizeof(kBufferBytes)) != 0)
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &kBufferBytes, sizeof(kBufferBytes));
}

void receive_datagrams(int fd, uint16_t port, const std::function<void(std::string payload)>& taken) {
    static thread_local char bytes[timebubble::kMaxDatagramBytes + 1];
    for (int i = 0; i < kAtOnce; ++i) {
        sockaddr_storage from{};
        Control control{};
        iovec one{bytes, sizeof(bytes)};
        msghdr message{&from, sizeof(from), &one, 1, &control, sizeof(control), 0};
        const ssize_t got = recvmsg(fd, &message, MSG_DONTWAIT);
        if (got < 0 && (errno == ECONNREFUSED || errno == EINTR)) continue;  // word of an earlier answer
        if (got < 0) return;
        DatagramPayload call{};
        call.port = port;
        if (got > static_cast<ssize_t>(timebubble::kMaxDatagramBytes) || !read_peer(from, call)) continue;
        read_local(message, call);
        std::string payload(reinterpret_cast<const char*>(&call), sizeof(call));
        payload.append(bytes, static_cast<size_t>(got));
        taken(std::move(payload));
    }
}

bool send_datagram(int fd, const DatagramPayload& to, std::string_view bytes) {
    sockaddr_storage peer;
    Control control{};
    iovec one{const_cast<char*>(bytes.data()), bytes.size()};
    msghdr message{&peer, write_peer(to, peer), &one, 1, nullptr, 0, 0};
    write_local(to, message, control);
    for (;;) {
        if (sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return true;
        if (errno != EINTR) return false;
    }
}

}  // namespace crane::proxy
