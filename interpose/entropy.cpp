// Random bytes asked of libc. The devices are served in files.cpp and descriptors.cpp.
#include <sys/random.h>

#include "interpose/core/entropy.hpp"
#include "interpose/core/shared_operation.hpp"
#include "interpose/core/user_memory.hpp"

using namespace crane::interpose;

namespace {

void random_bytes(void* place, size_t bytes) {
    SharedOperation turn(Op::kEntropy, entropy_key());
    fill_random(place, bytes);
}

uint32_t random_word() {
    uint32_t word;
    random_bytes(&word, sizeof(word));
    return word;
}

int fail(int error) {
    errno = error;
    return -1;
}

}  // namespace

CRANE_EXPORT ssize_t getrandom(void* place, size_t bytes, unsigned int flags) {
    if (!active()) return resolve_real(), real.getrandom(place, bytes, flags);
    constexpr unsigned int kInsecure = 4;  // GRND_INSECURE
    if (flags & ~(GRND_NONBLOCK | GRND_RANDOM | kInsecure)) return fail(EINVAL);
    constexpr size_t kMost = 33554431;  // the kernel gives no more at once
    if (bytes > kMost) bytes = kMost;
    if (!writable(place, bytes)) return fail(EFAULT);
    random_bytes(place, bytes);
    return static_cast<ssize_t>(bytes);
}

CRANE_EXPORT int getentropy(void* place, size_t bytes) {
    if (!active()) return resolve_real(), real.getentropy(place, bytes);
    if (bytes > 256) return fail(EIO);
    if (!writable(place, bytes)) return fail(EFAULT);
    random_bytes(place, bytes);
    return 0;
}

// glibc has these since 2.36; on an older one nobody can have been linked against them.

CRANE_EXPORT uint32_t arc4random() noexcept {
    if (active()) return random_word();
    uint32_t word = 0;
    real.getentropy(&word, sizeof(word));
    return word;
}

CRANE_EXPORT void arc4random_buf(void* place, size_t bytes) noexcept {
    if (active()) return random_bytes(place, bytes);
    auto* at = static_cast<char*>(place);
    while (bytes > 0) {
        const size_t step = bytes < 256 ? bytes : 256;
        real.getentropy(at, step);
        at += step;
        bytes -= step;
    }
}

CRANE_EXPORT uint32_t arc4random_uniform(uint32_t bound) noexcept {
    if (bound < 2) return 0;
    // Below the largest multiple of the bound every remainder is as likely.
    const uint32_t skip = -bound % bound;
    for (;;) {
        const uint32_t word = ::arc4random();
        if (word >= skip) return word % bound;
    }
}
