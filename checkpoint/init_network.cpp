#include "checkpoint/init_network.hpp"

#include <fcntl.h>
#include <linux/ethtool.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <linux/sockios.h>
#include <linux/veth.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <span>

#include "base/own_address.hpp"
#include "checkpoint/netlink_request.hpp"

namespace crane::checkpoint {
namespace {

constexpr char kName[] = "eth0";
constexpr int kIndex = 2;

std::string failed(const std::string& what, int error = errno) {
    return what + ": " + std::strerror(error);
}

std::string bring_up(const char* name) {
    const int fd = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return failed(std::string("socket for the interface ") + name);
    ifreq request{};
    std::strncpy(request.ifr_name, name, IFNAMSIZ - 1);
    std::string error;
    if (::ioctl(fd, SIOCGIFFLAGS, &request) != 0) error = failed(std::string("reading the flags of ") + name);
    request.ifr_flags = static_cast<short>(request.ifr_flags | IFF_UP | IFF_RUNNING);
    if (error.empty() && ::ioctl(fd, SIOCSIFFLAGS, &request) != 0)
        error = failed(std::string("bringing up ") + name);
    ::close(fd);
    return error;
}

/// Of an IPv4 network: its address with ones for what is the hosts'.
uint32_t broadcast_of(const OwnAddress& own) {
    uint32_t bits = 0;
    std::memcpy(&bits, own.bytes, sizeof(bits));
    return bits | htonl(own.prefix == 32 ? 0 : UINT32_MAX >> own.prefix);
}

std::string add_address(const char* name, const OwnAddress& own) {
    ifaddrmsg address{};
    address.ifa_family = static_cast<uint8_t>(own.family);
    address.ifa_prefixlen = static_cast<uint8_t>(own.prefix);
    address.ifa_scope = RT_SCOPE_UNIVERSE;
    address.ifa_index = ::if_nametoindex(name);
    NetlinkRequest request(RTM_NEWADDR, address);
    request.attribute(IFA_LOCAL, own.bytes, own.size());
    // A network of two has none for all (RFC 3021).
    if (own.family == AF_INET && own.prefix < 31) request.attribute(IFA_BROADCAST, broadcast_of(own));
    const int error = request.ask();
    return error == 0 ? "" : failed(std::string("adding an address to ") + name, error);
}

/// The kernel looks once a second whether an interface has what it needs, and at once when it is asked.
void look_at_carrier(int fd, ifreq request) {
    ethtool_value carrier{};
    carrier.cmd = ETHTOOL_GLINK;
    request.ifr_data = reinterpret_cast<char*>(&carrier);
    (void)!::ioctl(fd, SIOCETHTOOL, &request);
}

/// Until it shows in its flags.
std::string await_running(const char* name) {
    constexpr int kPatienceMs = 5000;
    const int changes = ::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);
    sockaddr_nl links{};
    links.nl_family = AF_NETLINK;
    links.nl_groups = RTMGRP_LINK;
    const int asked = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    ifreq request{};
    std::strncpy(request.ifr_name, name, IFNAMSIZ - 1);
    std::string error;
    if (changes < 0 || asked < 0 || ::bind(changes, reinterpret_cast<sockaddr*>(&links), sizeof(links)) != 0)
        error = failed("listening to changes of interfaces");
    while (error.empty()) {
        char news[4096];
        pollfd some{changes, POLLIN, 0};
        look_at_carrier(asked, request);
        if (::ioctl(asked, SIOCGIFFLAGS, &request) != 0)
            error = failed(std::string("reading the flags of ") + name);
        else if (request.ifr_flags & IFF_RUNNING)
            break;
        else if (::poll(&some, 1, kPatienceMs) <= 0)
            error = std::string(name) + " does not come up";
        else
            (void)!::recv(changes, news, sizeof(news), 0);
    }
    if (changes >= 0) ::close(changes);
    if (asked >= 0) ::close(asked);
    return error;
}

/// Of the network namespace that the caller is in. IPv6 speaks by itself, of which counters tell.
bool forbid_six(const std::string& interface) {
    const int fd =
        ::open(("/proc/sys/net/ipv6/conf/" + interface + "/disable_ipv6").c_str(), O_WRONLY | O_CLOEXEC);
    if (fd < 0) return errno == ENOENT;  // the kernel has no IPv6
    const bool written = ::write(fd, "1", 1) == 1;
    ::close(fd);
    return written;
}

/// The other end of eth0: a network namespace of its own, with nobody in it. It lives as long as the
/// descriptor, which stays open for as long as this process is there.
class OtherEnd {
  public:
    OtherEnd() : here_(open_namespace()) {
        if (here_ < 0 || ::unshare(CLONE_NEWNET) != 0) return;
        there_ = open_namespace();
        if (!forbid_six("default") || ::setns(here_, CLONE_NEWNET) != 0) there_ = -1;
    }
    ~OtherEnd() {
        if (here_ >= 0) ::close(here_);
    }
    OtherEnd(const OtherEnd&) = delete;
    OtherEnd& operator=(const OtherEnd&) = delete;
    int descriptor() const { return there_; }
    std::string bring_up() const {
        if (::setns(there_, CLONE_NEWNET) != 0) return failed("entering the network behind eth0");
        std::string error = checkpoint::bring_up(kName);
        if (::setns(here_, CLONE_NEWNET) != 0) return failed("coming back from the network behind eth0");
        return error;
    }

  private:
    static int open_namespace() { return ::open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC); }
    int here_, there_ = -1;
};

std::string make_pair(int other_end) {
    constexpr uint8_t kHardware[6] = {2, 0, 192, 0, 0, 8}, kOther[6] = {2, 0, 192, 0, 0, 1};
    ifinfomsg link{};
    link.ifi_index = kIndex;
    NetlinkRequest request(RTM_NEWLINK, link);
    // One queue: the kernel would make one for each CPU.
    const auto describe = [&](const uint8_t* hardware) {
        request.attribute(IFLA_IFNAME, kName);
        request.attribute(IFLA_ADDRESS, hardware, sizeof(kHardware));
        request.attribute(IFLA_MTU, 1500U);
        request.attribute(IFLA_NUM_TX_QUEUES, 1U);
        request.attribute(IFLA_NUM_RX_QUEUES, 1U);
    };
    describe(kHardware);
    const size_t info = request.begin(IFLA_LINKINFO);
    request.attribute(IFLA_INFO_KIND, "veth");
    const size_t data = request.begin(IFLA_INFO_DATA), peer = request.begin(VETH_INFO_PEER);
    request.raw(&link, sizeof(link));
    describe(kOther);
    request.attribute(IFLA_NET_NS_FD, static_cast<uint32_t>(other_end));
    request.end(peer);
    request.end(data);
    request.end(info);
    const int error = request.ask();
    return error == 0 ? "" : failed("making the interface eth0 (veth)", error);
}

std::string make_interface() {
    const OtherEnd other;
    if (other.descriptor() < 0) return failed("making a network behind eth0");
    if (std::string error = make_pair(other.descriptor()); !error.empty()) return error;
    if (!forbid_six(kName)) return failed("keeping eth0 without IPv6");
    std::string error = other.bring_up();
    if (error.empty()) error = bring_up(kName);
    if (error.empty()) error = await_running(kName);
    return error;
}

}  // namespace

Network bring_network_up(const std::vector<std::string>& addresses) {
    Network network{bring_up("lo"), ""};
    if (!network.error.empty()) return network;
    network.weaker = make_interface();
    const OwnAddresses all = own_addresses_of(addresses);
    for (OwnAddress own : std::span(all.list, all.count)) {
        const bool on_loopback = own.family == AF_INET6 || !network.weaker.empty();
        if (on_loopback) own.prefix = static_cast<uint16_t>(own.size() * 8);
        const std::string error = add_address(on_loopback ? "lo" : kName, own);
        // Without IPv6 in the kernel a host has ::1 no more than this.
        if (own.family == AF_INET && network.error.empty()) network.error = error;
    }
    if (!network.weaker.empty()) network.weaker = "the server finds no interface but lo: " + network.weaker;
    return network;
}

}  // namespace crane::checkpoint
