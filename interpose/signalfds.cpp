// signalfd: a placeholder descriptor over the signals pending in the schedule. Its read and readiness are
// served in transfer.cpp, polling.cpp and core/epolls.cpp.
#include "interpose/core/blocking.hpp"
#include "interpose/core/fds.hpp"
#include "interpose/core/signal_fds.hpp"
#include "interpose/core/signal_masks.hpp"

using namespace crane::interpose;

namespace {

long make_signal_fd(int fd, uint64_t mask, int flags) {
    if (flags & ~(SFD_NONBLOCK | SFD_CLOEXEC)) return -EINVAL;
    Operation turn(Op::kSigwait, descriptor_key(fd));
    if (fd != -1) {
        const FdEntry* entry = entry_of_kind(fd, FdKind::kSignals);
        if (!entry) return raw(SYS_fcntl, fd, F_GETFD) < 0 ? -EBADF : -EINVAL;
        domain().signal_fds[entry->object].mask = mask;
        for (int signal = 1; signal < kSignals; ++signal) {
            if (mask >> (signal - 1) & 1) wake_signal_fds(signal);
        }
        return fd;
    }
    const uint32_t made = new_signal_fd(mask, flags & SFD_NONBLOCK);
    if (made == kNone) return -ENFILE;
    fd = new_placeholder(flags & SFD_CLOEXEC);
    if (fd < 0) {
        release_signal_fd(made);
        return -errno;
    }
    set_entry(fd, FdKind::kSignals, made);
    return fd;
}

}  // namespace

CRANE_EXPORT int signalfd(int fd, const sigset_t* mask, int flags) noexcept {
    if (!active()) return resolve_real(), real.signalfd(fd, mask, flags);
    return static_cast<int>(as_libc(make_signal_fd(fd, mask_from(mask), flags)));
}
