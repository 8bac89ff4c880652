#include "checkpoint/init_sandbox.hpp"

#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/personality.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace crane::checkpoint {
namespace {

struct Limit {
    __rlimit_resource resource;
    rlim_t soft, hard;
    const char* name;
};

// Programs size their tables by these, and the stack's decides where mmap starts: the same on every host.
constexpr rlim_t kNone = RLIM_INFINITY;
constexpr Limit kLimits[] = {
    {RLIMIT_NOFILE, 32768, 32768, "RLIMIT_NOFILE"},  // as many as the shim has places for
    {RLIMIT_STACK, 8 << 20, kNone, "RLIMIT_STACK"},
    {RLIMIT_CORE, 0, kNone, "RLIMIT_CORE"},
    {RLIMIT_NPROC, kNone, kNone, "RLIMIT_NPROC"},
    {RLIMIT_MEMLOCK, 8 << 20, 8 << 20, "RLIMIT_MEMLOCK"},
    {RLIMIT_SIGPENDING, 65536, 65536, "RLIMIT_SIGPENDING"},
    {RLIMIT_MSGQUEUE, 819200, 819200, "RLIMIT_MSGQUEUE"},
    {RLIMIT_AS, kNone, kNone, "RLIMIT_AS"},
    {RLIMIT_DATA, kNone, kNone, "RLIMIT_DATA"},
    {RLIMIT_RSS, kNone, kNone, "RLIMIT_RSS"},
    {RLIMIT_FSIZE, kNone, kNone, "RLIMIT_FSIZE"},
    {RLIMIT_CPU, kNone, kNone, "RLIMIT_CPU"},
    {RLIMIT_LOCKS, kNone, kNone, "RLIMIT_LOCKS"},
    {RLIMIT_NICE, 0, 0, "RLIMIT_NICE"},
    {RLIMIT_RTPRIO, 0, 0, "RLIMIT_RTPRIO"},
    {RLIMIT_RTTIME, kNone, kNone, "RLIMIT_RTTIME"},
};

std::string failed(const char* what) {
    return std::string(what) + ": " + std::strerror(errno);
}

/// Without CAP_SYS_RESOURCE a hard limit only goes down: then as near as it can be had.
std::string set_limit(const Limit& wanted) {
    const rlimit both{wanted.soft, wanted.hard};
    if (::setrlimit(wanted.resource, &both) == 0) return {};
    rlimit limit{};
    if (::getrlimit(wanted.resource, &limit) != 0) return failed(wanted.name);
    limit.rlim_max = std::min(wanted.hard, limit.rlim_max);  // RLIM_INFINITY is the highest number
    limit.rlim_cur = std::min(wanted.soft, limit.rlim_max);
    return ::setrlimit(wanted.resource, &limit) == 0 ? std::string() : failed(wanted.name);
}

}  // namespace

std::string set_personality() {
    const int now = ::personality(0xffffffff);
    if (now < 0 || ::personality(static_cast<unsigned>(now) | ADDR_NO_RANDOMIZE) < 0)
        return failed("personality(ADDR_NO_RANDOMIZE)");
    return {};
}

std::string set_limits() {
    for (const Limit& limit : kLimits) {
        std::string error = set_limit(limit);
        if (!error.empty()) return error;
    }
    return {};
}

std::string set_stack_limit() {
    const auto stack = std::find_if(std::begin(kLimits), std::end(kLimits),
                                    [](const Limit& limit) { return limit.resource == RLIMIT_STACK; });
    return set_limit(*stack);
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

void pin_to_cpu(unsigned cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu % CPU_SETSIZE, &set);
    ::sched_setaffinity(0, sizeof set, &set);
}

void reset_signals() {
    for (int number = 1; number < NSIG; ++number) ::signal(number, SIG_DFL);
    sigset_t none;
    sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

}  // namespace crane::checkpoint
