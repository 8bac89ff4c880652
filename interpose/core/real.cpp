#include "interpose/core/real.hpp"

#include <string.h>

#include "base/check.hpp"

namespace crane::interpose {

Real real;

namespace {

bool resolved = false;

void* find(const char* name) {
    // dlsym is interposed too: its own next definition has to come by version.
    void* found = real.dlsym(RTLD_NEXT, name);
    CRANE_CHECK(found != nullptr);
    return found;
}

void* find_version(const char* name, const char* version) {
    void* found = dlvsym(RTLD_NEXT, name, version);
    return found ? found : find(name);
}

/// Into a pointer to a function, or into what holds one and nothing else.
void put(void* place, size_t bytes, void* found) {
    CRANE_CHECK(bytes == sizeof(found));
    memcpy(place, &found, sizeof(found));
}

}  // namespace

void resolve_real() noexcept {
    if (resolved) return;
    real.dlsym = reinterpret_cast<decltype(real.dlsym)>(dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34"));
    if (!real.dlsym)
        real.dlsym = reinterpret_cast<decltype(real.dlsym)>(dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5"));
    CRANE_CHECK(real.dlsym != nullptr);
// clang-format off
#define X(name) put(&real.name, sizeof(real.name), find(#name));
    CRANE_REAL_FUNCTIONS(X)
    CRANE_REAL_FAMILIES(X)
    CRANE_REAL_TRAPPED(X)
    X(fcntl)
    X(ioctl)
    X(syscall)
    X(open)
    X(openat) X(fopen)
#undef X
    // The default versions: an unversioned look-up may give the 2.2.5 ones, whose pthread_cond_t is another.
#define X(name) put(&real.name, sizeof(real.name), find_version(#name, "GLIBC_2.3.2"));
        X(pthread_cond_wait) X(pthread_cond_timedwait) X(pthread_cond_signal) X(pthread_cond_broadcast)
#undef X
        // clang-format on
        put(&real.pthread_cond_clockwait, sizeof(real.pthread_cond_clockwait),
            find("pthread_cond_clockwait"));
    resolved = true;
}

}  // namespace crane::interpose
