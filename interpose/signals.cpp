// Signals: actions, masks, sending, waiting. See core/signals.hpp for the rules.
#include <csignal>
#include <cstring>

#include "interpose/core/blocking.hpp"
#include "interpose/core/deaths.hpp"
#include "interpose/core/main_process.hpp"
#include "interpose/core/opaque.hpp"
#include "interpose/core/processes.hpp"
#include "interpose/core/signal_masks.hpp"
#include "interpose/core/signal_targets.hpp"
#include "interpose/core/threads.hpp"
#include "interpose/core/tsc.hpp"
#include "interpose/core/user_memory.hpp"

namespace crane::interpose {

namespace {

ThreadExtra& own() {
    return domain().threads[self.slot];
}

long change_action(int signal, const struct sigaction* action, struct sigaction* old) {
    if (signal < 1 || signal >= kSignals) return -EINVAL;
    if (action && (signal == SIGKILL || signal == SIGSTOP)) return -EINVAL;
    struct sigaction wanted {};
    if (action) wanted = *action;  // `old` may be the same
    Operation turn(Op::kSignal, process_key(runtime.process->pid));
    SignalAction& mine = runtime.process->actions[signal];
    if (old) {
        *old = {};
        old->sa_handler = reinterpret_cast<void (*)(int)>(mine.handler);
        old->sa_flags = static_cast<int>(mine.flags);
        mask_to(mine.mask, &old->sa_mask);
    }
    if (!action) return 0;
    mine.handler = reinterpret_cast<uint64_t>(wanted.sa_handler);
    mine.flags = static_cast<uint64_t>(static_cast<unsigned>(wanted.sa_flags));
    mine.mask = mask_from(&wanted.sa_mask);
    if (wanted.sa_handler == SIG_IGN || (wanted.sa_handler == SIG_DFL && ignored_by_default(signal)))
        drop_pending(signal);
    // What an instruction raises comes as a real signal.
    if (is_synchronous(signal)) {
        follow_fault_action(signal);
    } else {
        follow_action(signal);
    }
    return 0;
}

long change_mask(int how, const sigset_t* set, sigset_t* old) {
    count_cheap_call();
    if (set && how != SIG_BLOCK && how != SIG_UNBLOCK && how != SIG_SETMASK) return -EINVAL;
    const uint64_t before = own().mask;
    if (set) {
        const uint64_t given = mask_from(set);
        if (how == SIG_BLOCK) own().mask |= given;
        if (how == SIG_UNBLOCK) own().mask &= ~given;
        if (how == SIG_SETMASK) own().mask = given;
    }
    if (old) mask_to(before, old);
    if (set) mask_has_changed();
    return 0;
}

/// Any of its threads names a process, too.
uint32_t process_of(int pid) {
    if (pid == runtime.process->pid) return runtime.process_index;
    if (const uint32_t process = find_process(pid); process != kNone) return process;
    const dmt::SlotId slot = slot_of_tid(pid);
    return slot == dmt::kNoSlot ? kNone : domain().scheduler.slots[slot].process;
}

/// Whether the kernel would let this process send one: 0 or -EPERM.
long may_signal(int pid) {
    if (pid == runtime.process->pid) return 0;
    return raw(SYS_kill, pid, 0) == -EPERM ? -EPERM : 0;
}

/// To one process, to a group (0, -group) or to all (-1) of the domain.
long send_signal(int pid, const SignalInfo& info) {
    const int signal = info.signal;
    if (signal < 0 || signal >= kSignals) return -EINVAL;
    Operation turn(Op::kSignal, process_key(pid));
    if (pid > 0) {
        const uint32_t process = process_of(pid);
        if (process == kNone)
            return has_vanished(pid) || is_ended_orphan(pid) ? -ESRCH : raw(SYS_kill, pid, signal);
        Process& target = domain().processes[process];
        if (target.state == ProcessState::kExited && target.unseen) return -ESRCH;
        if (const long refused = may_signal(pid); refused != 0) return refused;
        if (target.state == ProcessState::kOpaque) return signal_opaque(target, signal);
        return -post_signal(process, info, dmt::kNoSlot);
    }
    const int group = pid == 0 ? static_cast<int>(raw(SYS_getpgid, 0)) : -pid;
    long rc = -ESRCH;
    bool self_too = false;
    for (uint32_t i = 0; i < domain().processes_high; ++i) {
        Process& p = domain().processes[i];
        if (p.state != ProcessState::kLive && p.state != ProcessState::kOpaque) continue;
        if (pid != -1 && raw(SYS_getpgid, p.pid) != group) continue;
        if (may_signal(p.pid) != 0) {
            if (rc == -ESRCH) rc = -EPERM;
            continue;
        }
        rc = 0;
        if (p.state == ProcessState::kOpaque) {
            signal_opaque(p, signal);
            continue;
        }
        if (i == runtime.process_index) {
            self_too = pid != -1;
            continue;
        }
        post_signal(i, info, dmt::kNoSlot);
    }
    if (self_too) post_signal(runtime.process_index, info, dmt::kNoSlot);
    return rc;
}

/// Only to itself may a thread say that a signal is the kernel's, or one of kill().
bool may_claim(const siginfo_t& given, int tid) {
    return (given.si_code < 0 && given.si_code != SI_TKILL) || tid == raw(SYS_gettid);
}

/// Waits for one of `set` and takes it. Negative: -EAGAIN at the deadline, -EINTR for another signal's
/// handler.
long await_signal(uint64_t set, uint64_t deadline, bool just_look, siginfo_t* shown) {
    Operation turn(Op::kSigwait, make_key(ObjectKind::kSignal, self.slot));
    for (bool timed_out = false;;) {
        SignalInfo info;
        if (take_pending(set, info)) {
            siginfo_t told = as_siginfo(info);
            if (told.si_code == SI_TKILL) told.si_code = SI_USER;  // as libc has it
            return shown && !store(shown, told) ? -EFAULT : info.signal;
        }
        if (timed_out) return -EAGAIN;
        if (just_look) {
            turn.yield();
            return -EAGAIN;
        }
        own().waiting_signals = set;
        const dmt::WaitResult result = turn.wait(make_key(ObjectKind::kSignal, self.slot), deadline, true);
        own().waiting_signals = 0;
        // One that comes in the same moment is for this thread all the same.
        timed_out = result == dmt::WaitResult::kTimedOut;
        if (handler_due() && !(pending_signals() & set)) return -EINTR;
        if (cancel_due()) return -EINTR;
    }
}

int signal_thread(pthread_t thread, int signal, int code, uint64_t value) {
    if (signal < 0 || signal >= kSignals) return EINVAL;
    Operation turn(Op::kSignal, thread_key(thread));
    const dmt::SlotId slot = slot_of_thread(thread);
    if (slot == dmt::kNoSlot) return is_ended_thread(thread) ? 0 : ESRCH;
    return post_signal(runtime.process_index, signal_from_self(signal, code, value), slot);
}

long suspend(uint64_t mask) {
    const uint64_t before = own().mask;
    own().mask = mask;
    {
        Operation turn(Op::kSigwait, make_key(ObjectKind::kSignal, self.slot));
        if (blocks_what_it_is_chosen_for()) pass_on_signals();
        const uint32_t run = self.handlers_run;
        while (self.handlers_run == run && !is_cut_short()) {
            // What is ignored is taken, and a stop is stood, and neither ends the call.
            if (due_signals() == 0) {
                turn.wait(make_key(ObjectKind::kSignal, self.slot), 0, true);
                continue;
            }
            deliver_signals();
            scheduler().get_turn(self.slot);
        }
    }
    own().mask = before;
    test_cancel();
    return -EINTR;
}

}  // namespace

namespace {

long send_to_task(int group, int tid, const SignalInfo& info) {
    if (info.signal < 0 || info.signal >= kSignals || tid <= 0 || group == 0) return -EINVAL;
    Operation turn(Op::kSignal, process_key(tid));
    const dmt::SlotId slot = slot_of_tid(tid);
    if (slot == dmt::kNoSlot) return -ESRCH;
    const uint32_t process = domain().scheduler.slots[slot].process;
    if (group > 0 && domain().processes[process].pid != group) return -ESRCH;
    return -post_signal(process, info, slot);
}

}  // namespace

long signal_task(int group, int tid, int signal) {
    return send_to_task(group, tid, signal_from_self(signal, SI_TKILL));
}

long queue_to_process(int pid, int signal, const siginfo_t& given) {
    if (pid <= 0) return -ESRCH;  // no groups, unlike kill()
    return may_claim(given, pid) ? send_signal(pid, signal_as_given(signal, given)) : -EPERM;
}

long queue_to_task(int group, int tid, int signal, const siginfo_t& given) {
    if (group <= 0 || tid <= 0) return -EINVAL;
    return may_claim(given, tid) ? send_to_task(group, tid, signal_as_given(signal, given)) : -EPERM;
}

}  // namespace crane::interpose

using namespace crane::interpose;

CRANE_EXPORT int sigaction(int signal, const struct sigaction* action, struct sigaction* old) noexcept {
    if (!active()) return resolve_real(), real.sigaction(signal, action, old);
    return static_cast<int>(as_libc(change_action(signal, action, old)));
}

CRANE_EXPORT sighandler_t signal(int number, sighandler_t handler) noexcept {
    if (!active()) return resolve_real(), real.signal(number, handler);
    struct sigaction action {
    }, old{};
    action.sa_handler = handler;
    action.sa_flags = SA_RESTART;
    return sigaction(number, &action, &old) == 0 ? old.sa_handler : SIG_ERR;
}

CRANE_EXPORT sighandler_t __sysv_signal(int number, sighandler_t handler) noexcept {
    struct sigaction action {
    }, old{};
    action.sa_handler = handler;
    action.sa_flags = static_cast<int>(SA_RESETHAND | SA_NODEFER);
    return sigaction(number, &action, &old) == 0 ? old.sa_handler : SIG_ERR;
}

CRANE_EXPORT sighandler_t bsd_signal(int number, sighandler_t handler) noexcept {
    return signal(number, handler);
}

CRANE_EXPORT int siginterrupt(int number, int flag) noexcept {
    struct sigaction action {};
    if (sigaction(number, nullptr, &action) != 0) return -1;
    action.sa_flags = flag ? action.sa_flags & ~SA_RESTART : action.sa_flags | SA_RESTART;
    return sigaction(number, &action, nullptr);
}

CRANE_EXPORT int pthread_sigmask(int how, const sigset_t* set, sigset_t* old) noexcept {
    if (!active()) return resolve_real(), real.pthread_sigmask(how, set, old);
    return static_cast<int>(-change_mask(how, set, old));
}

CRANE_EXPORT int sigprocmask(int how, const sigset_t* set, sigset_t* old) noexcept {
    if (!active()) return resolve_real(), real.sigprocmask(how, set, old);
    return static_cast<int>(as_libc(change_mask(how, set, old)));
}

CRANE_EXPORT int sigpending(sigset_t* set) noexcept {
    if (!active()) return resolve_real(), real.sigpending(set);
    count_cheap_call();
    // The rest of libc's type is not the kernel's to write.
    return store(set, pending_signals() & own().mask) ? 0 : static_cast<int>(as_libc(-EFAULT));
}

CRANE_EXPORT int kill(pid_t pid, int signal) noexcept {
    if (!active()) return resolve_real(), real.kill(pid, signal);
    return static_cast<int>(as_libc(send_signal(pid, signal_from_self(signal, SI_USER))));
}

CRANE_EXPORT int pidfd_send_signal(int fd, int signal, siginfo_t* info, unsigned flags) noexcept {
    if (!active()) return static_cast<int>(as_libc(raw(SYS_pidfd_send_signal, fd, signal, info, flags)));
    if (flags != 0) return static_cast<int>(as_libc(-EINVAL));
    int pid = process_behind(fd);
    if (pid == -EBADF) pid = process_of_folder(fd);
    if (pid == -1) return static_cast<int>(as_libc(-ESRCH));  // it has been waited for
    if (pid < 0) return static_cast<int>(as_libc(pid));
    if (!info) return ::kill(pid, signal);
    siginfo_t given;
    if (!fetch(given, info)) return static_cast<int>(as_libc(-EFAULT));
    if (given.si_signo != signal) return static_cast<int>(as_libc(-EINVAL));
    return static_cast<int>(as_libc(queue_to_process(pid, signal, given)));
}

CRANE_EXPORT int killpg(pid_t group, int signal) noexcept {
    return kill(group > 0 ? -group : 0, signal);
}

CRANE_EXPORT int sigqueue(pid_t pid, int signal, const union sigval value) noexcept {
    if (!active()) return resolve_real(), real.sigqueue(pid, signal, value);
    if (pid <= 0) return static_cast<int>(as_libc(-ESRCH));
    return static_cast<int>(as_libc(
        send_signal(pid, signal_from_self(signal, SI_QUEUE, reinterpret_cast<uint64_t>(value.sival_ptr)))));
}

CRANE_EXPORT int raise(int signal) noexcept {
    if (!active()) return resolve_real(), real.raise(signal);
    if (signal < 0 || signal >= kSignals) return static_cast<int>(as_libc(-EINVAL));
    Operation turn(Op::kSignal, own_key());
    return static_cast<int>(
        as_libc(-post_signal(runtime.process_index, signal_from_self(signal, SI_TKILL), self.slot)));
}

CRANE_EXPORT void abort() noexcept {
    if (active()) {
        struct sigaction action {};
        sigaction(SIGABRT, nullptr, &action);
        if (action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN) {
            own().mask &= ~signal_bit(SIGABRT);
            raise(SIGABRT);
        }
        if (active()) die_by_signal(SIGABRT);
    }
    raw(SYS_tgkill, raw(SYS_getpid), raw(SYS_gettid), SIGABRT);
    raw(SYS_exit_group, 134);
    __builtin_unreachable();
}

CRANE_EXPORT int pthread_kill(pthread_t thread, int signal) noexcept {
    if (!active()) return resolve_real(), real.pthread_kill(thread, signal);
    return signal_thread(thread, signal, SI_TKILL, 0);
}

CRANE_EXPORT int pthread_sigqueue(pthread_t thread, int signal, const union sigval value) noexcept {
    if (!active()) return resolve_real(), real.pthread_sigqueue(thread, signal, value);
    return signal_thread(thread, signal, SI_QUEUE, reinterpret_cast<uint64_t>(value.sival_ptr));
}

CRANE_EXPORT int tgkill(pid_t group, pid_t tid, int signal) {
    if (!active()) return static_cast<int>(as_libc(raw(SYS_tgkill, group, tid, signal)));
    if (group <= 0) return static_cast<int>(as_libc(-EINVAL));
    return static_cast<int>(as_libc(signal_task(group, tid, signal)));
}

CRANE_EXPORT int sigwait(const sigset_t* set, int* signal) {
    if (!active()) return resolve_real(), real.sigwait(set, signal);
    if (!readable_mask(set)) return EFAULT;
    for (;;) {
        test_cancel();
        const long got = await_signal(mask_from(set), crane::dmt::kNoDeadline, false, nullptr);
        if (got == -EINTR) continue;
        if (got < 0) return static_cast<int>(-got);
        *signal = static_cast<int>(got);
        return 0;
    }
}

CRANE_EXPORT int sigwaitinfo(const sigset_t* set, siginfo_t* info) {
    if (!active()) return resolve_real(), real.sigwaitinfo(set, info);
    if (!readable_mask(set)) return static_cast<int>(as_libc(-EFAULT));
    return static_cast<int>(as_libc(at_cancellation_point(
        [&] { return await_signal(mask_from(set), crane::dmt::kNoDeadline, false, info); })));
}

CRANE_EXPORT int sigtimedwait(const sigset_t* set, siginfo_t* info, const timespec* timeout) {
    if (!active()) return resolve_real(), real.sigtimedwait(set, info, timeout);
    if (!readable_if_given(timeout) || !readable_mask(set)) return static_cast<int>(as_libc(-EFAULT));
    if (timeout && !valid_timespec(timeout)) return static_cast<int>(as_libc(-EINVAL));
    const bool just_look = timeout && to_ns(*timeout) == 0;
    const uint64_t deadline =
        timeout && !just_look ? deadline_from_relative_ns(to_ns(*timeout)) : crane::dmt::kNoDeadline;
    return static_cast<int>(as_libc(
        at_cancellation_point([&] { return await_signal(mask_from(set), deadline, just_look, info); })));
}

CRANE_EXPORT int sigsuspend(const sigset_t* mask) {
    if (!active()) return resolve_real(), real.sigsuspend(mask);
    if (!readable_mask(mask)) return static_cast<int>(as_libc(-EFAULT));
    return static_cast<int>(as_libc(suspend(mask_from(mask))));
}

CRANE_EXPORT int pause() {
    if (!active()) return resolve_real(), real.pause();
    return static_cast<int>(as_libc(suspend(own().mask)));
}
