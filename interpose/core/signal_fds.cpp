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
    const uint64_t pending = domain().threads[self.slot].pending | runtime.process->pending;
    return (pending & domain().signal_fds[index].mask) != 0;
}

long read_signals(uint32_t index, void* out, size_t bytes) {
    const SignalFd& fd = domain().signal_fds[index];
    size_t done = 0;
    if (bytes < sizeof(signalfd_siginfo)) return -EINVAL;
    if (!writable(out, bytes)) return -EFAULT;
    Operation turn(Op::kSigwait, make_key(ObjectKind::kSignalFd, index));
    for (;;) {
        while (bytes - done >= sizeof(signalfd_siginfo)) {
            const int signal = take_pending(fd.mask);
            if (signal == 0) break;
            signalfd_siginfo info{};
            info.ssi_signo = static_cast<uint32_t>(signal);
            info.ssi_code = SI_USER;
            std::memcpy(static_cast<char*>(out) + done, &info, sizeof(info));
            done += sizeof(info);
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
