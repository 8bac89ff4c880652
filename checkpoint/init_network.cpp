#include "checkpoint/init_network.hpp"

#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/own_address.hpp"

namespace crane::checkpoint {
namespace {

std::string failed(const char* what) {
    return std::string(what) + ": " + std::strerror(errno);
}

std::string bring_loopback_up() {
    const int fd = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return failed("socket for the loopback interface");
    ifreq request{};
    std::strcpy(request.ifr_name, "lo");
    std::string error;
    if (::ioctl(fd, SIOCGIFFLAGS, &request) != 0) error = failed("reading the flags of lo");
    request.ifr_flags = static_cast<short>(request.ifr_flags | IFF_UP | IFF_RUNNING);
    if (error.empty() && ::ioctl(fd, SIOCSIFFLAGS, &request) != 0) error = failed("bringing lo up");
    ::close(fd);
    return error;
}

/// What rtnetlink wants to be asked with.
template <size_t kBytes>
struct AddressRequest {
    nlmsghdr header{};
    ifaddrmsg address{};
    struct {
        rtattr head{};
        uint8_t bytes[kBytes]{};
    } local;
};

/// 0, or the kernel's error; -1: errno.
int ask(int fd, const void* request, size_t bytes) {
    struct {
        nlmsghdr header;
        nlmsgerr said;
        char rest[256];
    } answer{};
    if (::send(fd, request, bytes, 0) != static_cast<ssize_t>(bytes)) return -1;
    if (::recv(fd, &answer, sizeof(answer), 0) < static_cast<ssize_t>(NLMSG_LENGTH(sizeof(nlmsgerr))))
        return -1;
    return answer.header.nlmsg_type == NLMSG_ERROR ? -answer.said.error : EPROTO;
}

template <size_t kBytes>
std::string add_address(unsigned char family, const uint8_t (&bytes)[kBytes]) {
    const int fd = ::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    if (fd < 0) return failed("socket for the addresses of lo");
    AddressRequest<kBytes> request;
    request.header.nlmsg_len = sizeof(request);
    request.header.nlmsg_type = RTM_NEWADDR;
    request.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_CREATE | NLM_F_REPLACE | NLM_F_ACK;
    request.address.ifa_family = family;
    request.address.ifa_prefixlen = kBytes * 8;
    request.address.ifa_scope = RT_SCOPE_UNIVERSE;
    request.address.ifa_index = ::if_nametoindex("lo");
    request.local.head.rta_len = sizeof(request.local);
    request.local.head.rta_type = IFA_LOCAL;
    std::memcpy(request.local.bytes, bytes, kBytes);
    const int error = ask(fd, &request, sizeof(request));
    if (error > 0) errno = error;
    std::string what = error == 0 ? "" : failed("adding an address to lo");
    ::close(fd);
    return what;
}

}  // namespace

std::string bring_network_up() {
    std::string error = bring_loopback_up();
    if (error.empty()) error = add_address(AF_INET, kOwnAddress);
    // Without IPv6 in the kernel a host has ::1 no more than this.
    if (error.empty()) add_address(AF_INET6, kOwnAddressSix);
    return error;
}

}  // namespace crane::checkpoint
