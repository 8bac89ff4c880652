#include "checkpoint/init_pids.hpp"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fstream>

namespace crane::checkpoint {
namespace {

constexpr long kLowestPid = 1;

std::string failed(const char* what) {
    return std::string(
               "after a program that cannot be scheduled has run, pids may differ between replicas: ") +
           what + ": " + std::strerror(errno);
}

}  // namespace

std::string describe_pid_bound(long pid_max) {
    if (pid_max == kMostPids || pid_max == 0) return {};
    return "pids begin anew after " + std::to_string(pid_max) +
           " on this host, and replicas need the same: sysctl -w kernel.pid_max=" +
           std::to_string(kMostPids) + " on all of them, and in /etc/sysctl.d";
}

long read_pid_bound() {
    long bound = 0;
    std::ifstream("/proc/sys/kernel/pid_max") >> bound;
    return bound;
}

PidNumbers::~PidNumbers() {
    if (fd_ >= 0) ::close(fd_);
}

std::string PidNumbers::open() {
    const long now = cursor_.get();
    if (now < 0 || !cursor_.set(now)) return failed("ns_last_pid (CAP_CHECKPOINT_RESTORE)");
    fd_ = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, kPidSocket, sizeof kPidSocket - 1);
    constexpr socklen_t kBytes = offsetof(sockaddr_un, sun_path) + sizeof kPidSocket - 1;
    if (fd_ < 0 || ::bind(fd_, reinterpret_cast<const sockaddr*>(&address), kBytes) != 0)
        return failed("socket");
    return {};
}

long PidNumbers::exchange(long last) {
    const long before = cursor_.get();
    if (before < 0) return kNoPids;
    if (last == kFarPids) {
        last = far_;
    } else {
        far_ = before < first_far() ? first_far() : before;  // they have begun anew
    }
    return last >= kLowestPid && last < pid_max_ && cursor_.set(last) ? before : kNoPids;
}

void PidNumbers::answer() {
    PidOrder order{};
    sockaddr_un from{};
    socklen_t bytes = sizeof from;
    const ssize_t got = ::recvfrom(fd_, &order, sizeof order, 0, reinterpret_cast<sockaddr*>(&from), &bytes);
    if (got != static_cast<ssize_t>(sizeof order)) return;
    const PidOrder before{static_cast<int32_t>(exchange(order.last))};
    (void)!::sendto(fd_, &before, sizeof before, MSG_NOSIGNAL, reinterpret_cast<const sockaddr*>(&from),
                    bytes);
}

}  // namespace crane::checkpoint
