#include "proxy/own_limits.hpp"

#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <stdexcept>
#include <string>

namespace crane::proxy {

namespace {

constexpr rlim_t kAny = RLIM_INFINITY;  // the highest number
constexpr rlim_t kStackBytes = 8 << 20;

struct Limit {
    __rlimit_resource_t what;
    const char* name;
    const char* option;  ///< of ulimit
    const char* of_unit;
    rlim_t least;      ///< 0: it is only raised
    rlim_t unit;       ///< that ulimit counts in
    bool of_the_user;  ///< it does not count for root
};

constexpr Limit kLimits[] = {
    {RLIMIT_FSIZE, "the size of a file", "-f", "LimitFSIZE", kAny, 1024, false},
    {RLIMIT_CPU, "processor time", "-t", "LimitCPU", kAny, 1, false},
    {RLIMIT_AS, "address space", "-v", "LimitAS", 16ULL << 30, 1024, false},
    {RLIMIT_DATA, "data", "-d", "LimitDATA", 4ULL << 30, 1024, false},
    {RLIMIT_STACK, "the stack", "-s", "LimitSTACK", kStackBytes, 1024, false},
    {RLIMIT_NPROC, "processes", "-u", "LimitNPROC", 128, 1, true},
    {RLIMIT_MEMLOCK, "locked memory", "-l", "LimitMEMLOCK", 0, 1024, false},
    {RLIMIT_SIGPENDING, "signals that wait", "-i", "LimitSIGPENDING", 0, 1, false},
};

std::string in_units(const Limit& limit, rlim_t value) {
    return value == kAny ? "unlimited" : std::to_string(value / limit.unit);
}

/// The stack's also says where all else is mapped: it is not raised beyond need.
rlim_t goal(const Limit& limit, const rlimit& now) {
    if (limit.what != RLIMIT_STACK) return now.rlim_max;
    return std::min(now.rlim_max, std::max(now.rlim_cur, kStackBytes));
}

void settle(const Limit& limit) {
    rlimit now{};
    if (getrlimit(limit.what, &now) != 0) return;
    const rlimit raised{goal(limit, now), now.rlim_max};
    if (raised.rlim_cur > now.rlim_cur && setrlimit(limit.what, &raised) == 0) now = raised;
    if (now.rlim_cur >= limit.least || (limit.of_the_user && geteuid() == 0)) return;
    throw std::runtime_error(
        std::string("the hard limit of ") + limit.name + " is " + in_units(limit, now.rlim_max) +
        " here (ulimit -H" + (limit.option + 1) + "), and " +
        (limit.least == kAny ? "there must be none"
                             : "at least " + in_units(limit, limit.least) + " is needed") +
        ": raise it where craned is started (ulimit " + limit.option + " " + in_units(limit, limit.least) +
        "; " + limit.of_unit + "= of a systemd unit)");
}

/// The C library has looked at the limit already.
void settle_stacks_of_threads() {
    pthread_attr_t attributes;
    if (pthread_getattr_default_np(&attributes) != 0) return;
    size_t bytes = 0;
    if (pthread_attr_getstacksize(&attributes, &bytes) == 0 && bytes < kStackBytes &&
        pthread_attr_setstacksize(&attributes, kStackBytes) == 0)
        pthread_setattr_default_np(&attributes);
    pthread_attr_destroy(&attributes);
}

}  // namespace

void settle_own_limits() {
    // One that is set later is an error of the write that meets it, as of a full disk. A handler, which no
    // child inherits.
    struct sigaction nothing {};
    nothing.sa_handler = [](int) {};
    nothing.sa_flags = SA_RESTART;
    sigaction(SIGXFSZ, &nothing, nullptr);
    for (const Limit& limit : kLimits) settle(limit);
    settle_stacks_of_threads();
}

}  // namespace crane::proxy
