#include "interpose/core/births.hpp"

#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstddef>
#include <cstring>

#include "base/pid_numbers.hpp"
#include "interpose/core/runtime.hpp"

namespace crane::interpose {

namespace {

/// crane-init sleeps until it is told; only a host that is out of breath keeps it so long.
constexpr timeval kPatience{10, 0};

/// One word to crane-init and its answer, by a socket of its own.
int32_t ask(int fd, int32_t last) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    constexpr size_t kFamilyBytes = offsetof(sockaddr_un, sun_path);
    if (raw(SYS_bind, fd, &address, kFamilyBytes) != 0) return kNoPids;  // some name, to be answered at
    std::memcpy(address.sun_path, kPidSocket, sizeof(kPidSocket) - 1);
    if (raw(SYS_connect, fd, &address, kFamilyBytes + sizeof(kPidSocket) - 1) != 0) return kNoPids;
    raw(SYS_setsockopt, fd, SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof(kPatience));
    const PidOrder order{last};
    PidOrder before{kNoPids};
    long rc = 0;
    while ((rc = raw(SYS_sendto, fd, &order, sizeof(order), MSG_NOSIGNAL, nullptr, 0)) == -EINTR) {
    }
    if (rc != sizeof(order)) return kNoPids;
    while ((rc = raw(SYS_recvfrom, fd, &before, sizeof(before), 0, nullptr, nullptr)) == -EINTR) {
    }
    return rc == sizeof(before) ? before.last : kNoPids;
}

void tell_once() {
    if (domain().numbers_uncertain != 0) return;
    domain().numbers_uncertain = 1;
    report(
        "pids and tids may differ between replicas from here on: a program that cannot be scheduled has "
        "taken some, and those of the server cannot be kept apart from them");
}

long make_socket() {
    return raw(SYS_socket, AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
}

/// Also where the program has as many descriptors as it allowed itself. Nobody else opens one meanwhile.
long make_socket_beyond_limit() {
    const long fd = make_socket();
    rlimit64 limit;
    if (fd != -EMFILE || raw(SYS_prlimit64, 0, RLIMIT_NOFILE, nullptr, &limit) != 0) return fd;
    const rlimit64 raised{limit.rlim_max, limit.rlim_max};
    if (raw(SYS_prlimit64, 0, RLIMIT_NOFILE, &raised, nullptr) != 0) return fd;
    const long beyond = make_socket();
    raw(SYS_prlimit64, 0, RLIMIT_NOFILE, &limit, nullptr);
    return beyond;
}

/// The number behind which the kernel would have gone on; kNoPids: it cannot be changed.
int32_t go_on_behind(int32_t last) {
    // One whose own rules may end it for such a call makes none.
    const bool may = runtime.process->judged == Judged::kByNobody;
    const long fd = may ? make_socket_beyond_limit() : -EPERM;
    const int32_t before = fd < 0 ? kNoPids : ask(static_cast<int>(fd), last);
    if (fd >= 0) raw(SYS_close, fd);
    if (before == kNoPids) tell_once();
    return before;
}

}  // namespace

void number_others_apart() {
    DomainState& d = domain();
    if (d.numbers_its_own == 0 || d.numbers_apart != 0) return;
    const int32_t last = go_on_behind(kFarPids);
    if (last == kNoPids) return;
    d.last_number = last;
    d.numbers_apart = 1;
}

bool begin_birth() {
    return __builtin_expect(domain().numbers_apart == 0, 1) || go_on_behind(domain().last_number) != kNoPids;
}

void end_birth(bool begun, long number) {
    DomainState& d = domain();
    if (__builtin_expect(d.numbers_apart == 0, 1) || !begun) return;
    const int32_t last = go_on_behind(kFarPids);
    if (number > 0) {
        d.last_number = static_cast<int32_t>(number);
    } else if (last != kNoPids) {
        d.last_number = last;
    }
}

}  // namespace crane::interpose
