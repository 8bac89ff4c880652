#include "checkpoint/netlink_request.hpp"

#include <linux/rtnetlink.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/check.hpp"

namespace crane::checkpoint {

void NetlinkRequest::raw(const void* value, size_t bytes) {
    const size_t at = NLMSG_ALIGN(header().nlmsg_len);
    CRANE_CHECK(at + bytes <= sizeof(bytes_));
    std::memcpy(bytes_ + at, value, bytes);
    header().nlmsg_len = static_cast<uint32_t>(at + bytes);
}

void NetlinkRequest::attribute(uint16_t type, const void* value, size_t bytes) {
    const rtattr head{static_cast<uint16_t>(RTA_LENGTH(bytes)), type};
    raw(&head, sizeof(head));
    raw(value, bytes);
}

void NetlinkRequest::attribute(uint16_t type, std::string_view text) {
    char copy[64]{};
    CRANE_CHECK(text.size() < sizeof(copy));
    std::memcpy(copy, text.data(), text.size());
    attribute(type, copy, text.size() + 1);
}

size_t NetlinkRequest::begin(uint16_t type) {
    const size_t place = NLMSG_ALIGN(header().nlmsg_len);
    const rtattr head{0, type};
    raw(&head, sizeof(head));
    return place;
}

void NetlinkRequest::end(size_t place) {
    reinterpret_cast<rtattr*>(bytes_ + place)->rta_len = static_cast<uint16_t>(header().nlmsg_len - place);
}

int NetlinkRequest::ask() const {
    const int fd = ::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    if (fd < 0) return errno;
    struct {
        nlmsghdr header;
        nlmsgerr said;
        char rest[1024];
    } answer{};
    const size_t bytes = reinterpret_cast<const nlmsghdr*>(bytes_)->nlmsg_len;
    int error = 0;
    if (::send(fd, bytes_, bytes, 0) != static_cast<ssize_t>(bytes)) error = errno;
    const ssize_t got = error != 0 ? 0 : ::recv(fd, &answer, sizeof(answer), 0);
    if (error == 0 && got < 0) error = errno;
    if (error == 0)
        error = got >= static_cast<ssize_t>(NLMSG_LENGTH(sizeof(nlmsgerr))) &&
                        answer.header.nlmsg_type == NLMSG_ERROR
                    ? -answer.said.error
                    : EPROTO;
    ::close(fd);
    return error;
}

}  // namespace crane::checkpoint
