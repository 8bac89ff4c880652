// The older ways to handle, hold and wait for signals (sigset and its kin, BSD's masks): by those of
// signals.cpp.
#include <csignal>

#include "interpose/core/blocking.hpp"
#include "interpose/core/signal_masks.hpp"

using namespace crane::interpose;

namespace {

sigset_t set_of(uint64_t mask) {
    sigset_t set;
    mask_to(mask, &set);
    return set;
}

/// -EINVAL for what is no signal; whether it was blocked before.
long change_one(int how, int signal) {
    if (signal < 1 || signal >= kSignals) return -EINVAL;
    const sigset_t only = set_of(signal_bit(signal));
    sigset_t before;
    const int error = ::pthread_sigmask(how, &only, &before);
    return error ? -error : sigismember(&before, signal);
}

int change_first_signals(int how, int mask) {
    const sigset_t set = set_of(static_cast<unsigned>(mask));
    sigset_t before;
    if (::sigprocmask(how, &set, &before) != 0) return -1;
    return static_cast<int>(mask_from(&before));
}

}  // namespace

extern "C" {

CRANE_EXPORT sighandler_t sigset(int signal, sighandler_t handler) noexcept {
    const bool holds = handler == SIG_HOLD;
    struct sigaction action {
    }, old{};
    action.sa_handler = handler;
    if (::sigaction(signal, holds ? nullptr : &action, &old) != 0) return SIG_ERR;
    const long blocked = change_one(holds ? SIG_BLOCK : SIG_UNBLOCK, signal);
    if (blocked < 0) return as_libc(blocked), SIG_ERR;
    return blocked ? SIG_HOLD : old.sa_handler;
}

CRANE_EXPORT int sighold(int signal) noexcept {
    return as_libc(change_one(SIG_BLOCK, signal)) < 0 ? -1 : 0;
}

CRANE_EXPORT int sigrelse(int signal) noexcept {
    return as_libc(change_one(SIG_UNBLOCK, signal)) < 0 ? -1 : 0;
}

CRANE_EXPORT int sigignore(int signal) noexcept {
    struct sigaction action {};
    action.sa_handler = SIG_IGN;
    return ::sigaction(signal, &action, nullptr);
}

/// Waits with one signal let through (X/Open's sigpause).
CRANE_EXPORT int __xpg_sigpause(int signal) {
    sigset_t set;
    if (::sigprocmask(SIG_BLOCK, nullptr, &set) != 0 || sigdelset(&set, signal) != 0) return -1;
    return ::sigsuspend(&set);
}

/// BSD's: waits with these of the first 32 signals blocked.
CRANE_EXPORT int __sigpause(int signal_or_mask, int is_signal) {
    if (is_signal) return __xpg_sigpause(signal_or_mask);
    const sigset_t set = set_of(static_cast<unsigned>(signal_or_mask));
    return ::sigsuspend(&set);
}

/// The header has the name for X/Open's.
CRANE_EXPORT int crane_bsd_sigpause(int mask) asm("sigpause");
int crane_bsd_sigpause(int mask) {
    return __sigpause(mask, 0);
}

CRANE_EXPORT int sigblock(int mask) noexcept {
    return change_first_signals(SIG_BLOCK, mask);
}

CRANE_EXPORT int sigsetmask(int mask) noexcept {
    return change_first_signals(SIG_SETMASK, mask);
}

CRANE_EXPORT int siggetmask() noexcept {
    return change_first_signals(SIG_BLOCK, 0);
}

CRANE_EXPORT sighandler_t ssignal(int signal, sighandler_t handler) noexcept {
    return ::signal(signal, handler);
}

CRANE_EXPORT int gsignal(int signal) noexcept {
    return ::raise(signal);
}
}
