#include "interpose/core/signal_fds.hpp"

#include <cstring>

#include "interpose/core/blocking.hpp"
#include "interpose/core/epolls.hpp"
#include "interpose/core/signals.hpp"
#include "interpose/core/user_memory.hpp"

namespace crane::interpose {

uint32_t new_signal_fd(uint64_t mask, bool nonblocking) {
    DomainState& d = domain();
    for (uint32_t i = 0; i < kMaxSignalFds; ++i) {
        if (d.signal_fds[i].references != 0) continue;
        d.signal_fds[i] = {1, nonblocking, mask};
        ++d.signal_fds_open;
        return i;
    }
    return kNone;
}

void release_signal_fd(uint32_t index) {
    SignalFd& fd = domain().signal_fds[index];
    if (--fd.references != 0) return;
    drop_watches(Watched::kSignals, index);
    fd = {};
    --domain().signal_fds_open;
}

bool signal_fd_ready(uint32_t index) {
    return (pending_signals() & domain().signal_fds[index].mask) != 0;
}

long read_signals(uint32_t index, void* out, size_t bytes) {
    const SignalFd& fd = domain().signal_fds[index];
    size_t done = 0;
    if (bytes < sizeof(signalfd_siginfo)) return -EINVAL;
    if (!writable(out, bytes)) return -EFAULT;
    Operation turn(Op::kSigwait, make_key(ObjectKind::kSignalFd, index));
    for (;;) {
        while (bytes - done >= sizeof(signalfd_siginfo)) {
            SignalInfo info;
            if (!take_pending(fd.mask, info)) break;
            const signalfd_siginfo shown = as_signalfd(info);
            std::memcpy(static_cast<char*>(out) + done, &shown, sizeof(shown));
            done += sizeof(shown);
        }
        if (done) return static_cast<long>(done);
        if (fd.nonblocking) {
            turn.yield();
            return -EAGAIN;
        }
        if (turn.wait(own_key(), dmt::kNoDeadline, true, signal_fd_bit()) == dmt::WaitResult::kInterrupted &&
            !restart_after_signals()) {
            return -EINTR;
        }
    }
}

void wake_signal_fds(int signal) {
    scheduler().signal_set(signal_fd_bit());
    signal_fd_event(signal_bit(signal));
}

}  // namespace crane::interpose
