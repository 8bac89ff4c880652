#include "interpose/core/signals.hpp"

#include "interpose/core/deaths.hpp"
#include "interpose/core/passed.hpp"
#include "interpose/core/processes.hpp"
#include "interpose/core/signal_fds.hpp"
#include "interpose/core/tsc.hpp"
#include "interpose/core/user_memory.hpp"

namespace crane::interpose {

namespace {

ThreadExtra& own() {
    return domain().threads[self.slot];
}

bool ignored_by_default(int signal) {
    return signal == SIGCHLD || signal == SIGURG || signal == SIGWINCH || signal == SIGCONT;
}

uint64_t handler_of(const Process& p, int signal) {
    return p.actions[signal].handler;
}

bool is_ignored(const Process& p, int signal) {
    const uint64_t handler = handler_of(p, signal);
    if (handler == reinterpret_cast<uint64_t>(SIG_IGN)) return true;
    return handler == reinterpret_cast<uint64_t>(SIG_DFL) && ignored_by_default(signal);
}

bool waits_for(dmt::SlotId slot, int signal) {
    return domain().threads[slot].waiting_signals & signal_bit(signal);
}

/// Kills a process that leaves the signal to its default action, and does in its stead what its exit would
/// do.
void kill_process(uint32_t index, int signal) {
    Process& p = domain().processes[index];
    if (p.is_main) end_domain(signal);
    const int pid = p.pid;
    p.death_expected = 1;
    raw(SYS_kill, pid, SIGKILL);
    await_death(pid);
    settle_passed_if_any();
    bury_process(index, signal);
}

dmt::SlotId choose_thread(uint32_t process, int signal) {
    DomainState& d = domain();
    dmt::SlotId chosen = dmt::kNoSlot;
    for (dmt::SlotId slot = 0; slot < d.scheduler.high_water; ++slot) {
        const dmt::Slot& s = d.scheduler.slots[slot];
        if (s.process != process || s.state == dmt::SlotState::kFree) continue;
        if (waits_for(slot, signal)) return slot;
        if (d.threads[slot].mask & signal_bit(signal)) continue;
        if (chosen == dmt::kNoSlot || slot == d.processes[process].main_slot) chosen = slot;
    }
    return chosen;
}

}  // namespace

bool is_synchronous(int signal) {
    return signal == SIGSEGV || signal == SIGBUS || signal == SIGFPE || signal == SIGILL ||
           signal == SIGTRAP || signal == SIGSYS || signal == SIGABRT;
}

int post_signal(uint32_t process, int signal, dmt::SlotId slot) {
    Process& p = domain().processes[process];
    if (p.state != ProcessState::kLive) return p.state == ProcessState::kOpaque ? EPERM : 0;
    if (signal == 0) return 0;
    const dmt::SlotId target = slot != dmt::kNoSlot ? slot : choose_thread(process, signal);
    const bool awaited = target != dmt::kNoSlot && waits_for(target, signal);
    const bool blocked = target == dmt::kNoSlot || (domain().threads[target].mask & signal_bit(signal));
    const bool fatal =
        handler_of(p, signal) == reinterpret_cast<uint64_t>(SIG_DFL) && !ignored_by_default(signal);
    if (signal == SIGKILL || (fatal && !blocked && !awaited && signal != SIGSTOP && signal != SIGTSTP)) {
        if (process != runtime.process_index) {
            kill_process(process, signal);
            return 0;
        }
        if (signal == SIGKILL) die_by_signal(signal);
    }
    if (is_ignored(p, signal) && !blocked && !awaited) return 0;
    (slot != dmt::kNoSlot ? domain().threads[slot].pending : p.pending) |= signal_bit(signal);
    p.attention = 1;
    ++p.signals_posted;
    if (domain().signal_fds_open != 0) wake_signal_fds(signal);
    if (target != dmt::kNoSlot && (awaited || !blocked)) scheduler().interrupt(target);
    return 0;
}

int take_pending(uint64_t set) {
    Process& p = *runtime.process;
    for (int signal = 1; signal < kSignals; ++signal) {
        const uint64_t bit = signal_bit(signal);
        if (!(set & bit)) continue;
        if (own().pending & bit) {
            own().pending &= ~bit;
            return signal;
        }
        if (p.pending & bit) {
            p.pending &= ~bit;
            return signal;
        }
    }
    return 0;
}

bool handler_due() {
    return ((own().pending | runtime.process->pending) & ~own().mask) != 0;
}

bool interruption_due() {
    if (runtime.process->attention != 0 && handler_due()) return true;
    // Said once: a thread that has cancellation disabled must be able to wait.
    if (own().cancelled != 1) return false;
    own().cancelled = 2;
    return true;
}

void die_by_signal(int signal) {
    leave_domain(signal);
    struct sigaction fallback {};
    fallback.sa_handler = SIG_DFL;
    real.sigaction(signal, &fallback, nullptr);
    sigset_t only;
    sigemptyset(&only);
    sigaddset(&only, signal);
    real.pthread_sigmask(SIG_UNBLOCK, &only, nullptr);
    raw(SYS_tgkill, raw(SYS_getpid), raw(SYS_gettid), signal);
    raw(SYS_exit_group, 128 + signal);
    __builtin_unreachable();
}

namespace {

void run_handler(int signal) {
    SignalAction& action = runtime.process->actions[signal];
    const SignalAction chosen = action;
    if (chosen.flags & SA_RESETHAND) action.handler = reinterpret_cast<uint64_t>(SIG_DFL);
    const uint64_t before = own().mask;
    own().mask |= chosen.mask;
    if (!(chosen.flags & SA_NODEFER)) own().mask |= signal_bit(signal);
    ++self.handler_depth;
    if (chosen.flags & SA_SIGINFO) {
        siginfo_t info{};
        info.si_signo = signal;
        info.si_code = SI_USER;
        ucontext_t context{};
        reinterpret_cast<void (*)(int, siginfo_t*, void*)>(chosen.handler)(signal, &info, &context);
    } else {
        reinterpret_cast<void (*)(int)>(chosen.handler)(signal);
    }
    --self.handler_depth;
    own().mask = before;
}

}  // namespace

void deliver_signals() {
    // Without the turn (parallel): what was posted is seen at this thread's next operation.
    if (!scheduler().holds_turn(self.slot)) return;
    for (int rounds = 0; rounds < 64; ++rounds) {
        const int signal = take_pending(~own().mask);
        if (signal == 0) break;
        const uint64_t handler = handler_of(*runtime.process, signal);
        if (is_ignored(*runtime.process, signal)) continue;
        if (handler == reinterpret_cast<uint64_t>(SIG_DFL)) {
            if (signal == SIGSTOP || signal == SIGTSTP || signal == SIGTTIN || signal == SIGTTOU) continue;
            die_by_signal(signal);
        }
        run_handler(signal);
    }
    uint64_t left = runtime.process->pending;
    const dmt::State& s = domain().scheduler;
    for (dmt::SlotId slot = 0; slot < s.high_water && left == 0; ++slot) {
        if (s.slots[slot].process == runtime.process_index && s.slots[slot].state != dmt::SlotState::kFree) {
            left |= domain().threads[slot].pending;
        }
    }
    if (left == 0) runtime.process->attention = 0;
}

void reset_handlers_after_exec() {
    for (SignalAction& action : runtime.process->actions) {
        if (action.handler != reinterpret_cast<uint64_t>(SIG_IGN)) action = {};
    }
}

namespace {

/// The program's own handler, kept behind ours as long as rdtsc faults.
bool run_fault_handler(int signal, siginfo_t* info, void* context) {
    const SignalAction& action = runtime.process->actions[signal];
    if (action.handler <= reinterpret_cast<uint64_t>(SIG_IGN)) return false;
    if (action.flags & SA_SIGINFO) {
        reinterpret_cast<void (*)(int, siginfo_t*, void*)>(action.handler)(signal, info, context);
    } else {
        reinterpret_cast<void (*)(int)>(action.handler)(signal);
    }
    return true;
}

void on_fault(int signal, siginfo_t* info, void* context) {
    if (leave_bad_copy(*static_cast<ucontext_t*>(context))) return;
    if (signal == SIGSEGV && emulate_tsc(*info, *static_cast<ucontext_t*>(context))) return;
    if (runtime.process && run_fault_handler(signal, info, context)) return;
    // The crash is part of the schedule: the end is reported in turn, then the kernel has its way.
    if (self.active) die_by_signal(signal);
    real.signal(signal, SIG_DFL);
}

void on_stray(int) {}

}  // namespace

void follow_action(int signal) {
    constexpr int kFirstOfProgram = 34;  // the two before are the C library's
    const bool reserved = signal >= 32 && signal < kFirstOfProgram;
    if (is_synchronous(signal) || signal == SIGCHLD || signal == SIGPIPE || reserved) return;
    const uint64_t wanted = handler_of(*runtime.process, signal);
    struct sigaction action {};
    action.sa_handler = on_stray;
    if (wanted <= reinterpret_cast<uint64_t>(SIG_IGN))
        action.sa_handler = reinterpret_cast<void (*)(int)>(wanted);
    action.sa_flags = SA_RESTART;
    real.sigaction(signal, &action, nullptr);
}

void install_fault_handlers() {
    real.signal(SIGPIPE, SIG_IGN);
    struct sigaction child {};
    child.sa_sigaction = on_child;
    child.sa_flags = SA_SIGINFO | SA_RESTART | SA_NOCLDSTOP;
    real.sigaction(SIGCHLD, &child, nullptr);
    sigset_t told;
    sigemptyset(&told);
    sigaddset(&told, SIGCHLD);
    real.pthread_sigmask(SIG_UNBLOCK, &told, nullptr);
    for (int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS}) {
        // Installed again when the program gives one back: the others may have handlers of its own.
        const uint64_t own = runtime.process->actions[signal].handler;
        if (own != reinterpret_cast<uint64_t>(SIG_DFL) && !(signal == SIGSEGV && tsc_trapped())) continue;

        struct sigaction action {};
        action.sa_sigaction = on_fault;
        action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
        real.sigaction(signal, &action, nullptr);
    }
}

}  // namespace crane::interpose
