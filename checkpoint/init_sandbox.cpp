#include "checkpoint/init_sandbox.hpp"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "base/reserved_descriptors.hpp"

namespace crane::checkpoint {
namespace {

struct Limit {
    __rlimit_resource resource;
    rlim_t soft, hard;
    const char* name;
};

// Programs size their tables by these, and the stack's decides where mmap starts: the same on every host.
constexpr rlim_t kNone = RLIM_INFINITY;
constexpr rlim_t kLeastFiles = 1024;
constexpr Limit kLimits[] = {
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

std::string set_file_limit(unsigned& begin) {
    rlimit host{};
    if (::getrlimit(RLIMIT_NOFILE, &host) != 0) return failed("RLIMIT_NOFILE");
    if (host.rlim_max < kLeastFiles)
        return "the hard limit of open files is " + std::to_string(host.rlim_max) + ", and " +
               std::to_string(kLeastFiles) +
               " are needed: raise it (ulimit -Hn, LimitNOFILE= of a systemd unit)";
    // CRIU puts descriptors of its own behind the server's highest, up to the next power of two.
    constexpr rlim_t kMost = kMostProgramFds, kOfCriu = 32;
    begin = static_cast<unsigned>(std::bit_floor(std::min(host.rlim_max, kMost)) - kOfCriu);
    return set_limit({RLIMIT_NOFILE, kMost, kMost, "RLIMIT_NOFILE"});
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

void pin_to_cpu(unsigned cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu % CPU_SETSIZE, &set);
    ::sched_setaffinity(0, sizeof set, &set);
}

void forget_what_craned_prefers() {
    const int fd = ::open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd >= 0) (void)!::write(fd, "0", 1);
    if (fd >= 0) ::close(fd);
    constexpr unsigned long kUsualSlackNs = 50'000;
    ::prctl(PR_SET_TIMERSLACK, kUsualSlackNs, 0, 0, 0);
}

void reset_signals() {
    for (int number = 1; number < NSIG; ++number) ::signal(number, SIG_DFL);
    sigset_t none;
    sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

}  // namespace crane::checkpoint
