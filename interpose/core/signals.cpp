#include "interpose/core/signals.hpp"

#include <cstdio>
#include <cstring>

#include "interpose/core/backstop.hpp"
#include "interpose/core/deaths.hpp"
#include "interpose/core/endless_rounds.hpp"
#include "interpose/core/handler_frames.hpp"
#include "interpose/core/interrupted_place.hpp"
#include "interpose/core/passed.hpp"
#include "interpose/core/pauses.hpp"
#include "interpose/core/processes.hpp"
#include "interpose/core/signal_fds.hpp"
#include "interpose/core/signal_masks.hpp"
#include "interpose/core/signal_targets.hpp"
#include "interpose/core/terminals.hpp"
#include "interpose/core/threads.hpp"
#include "interpose/core/tsc.hpp"
#include "interpose/core/user_memory.hpp"
#include "timebubble/look.hpp"

namespace crane::interpose {

namespace {

ThreadExtra& own() {
    return domain().threads[self.slot];
}

bool stops_by_default(int signal) {
    return signal == SIGTSTP || signal == SIGTTIN || signal == SIGTTOU;
}

constexpr uint64_t kStopSignals =
    signal_bit(SIGSTOP) | signal_bit(SIGTSTP) | signal_bit(SIGTTIN) | signal_bit(SIGTTOU);

/// By which the C library stops and cancels threads.
bool is_of_libc(int signal) {
    constexpr int kFirstOfProgram = 34;
    return signal >= 32 && signal < kFirstOfProgram;
}

uint64_t handler_of(const Process& p, int signal) {
    return p.actions[signal].handler;
}

bool is_ignored(const Process& p, int signal) {
    const uint64_t handler = handler_of(p, signal);
    if (handler == reinterpret_cast<uint64_t>(SIG_IGN)) return true;
    return handler == reinterpret_cast<uint64_t>(SIG_DFL) && ignored_by_default(signal);
}

/// Ends a process that leaves it to its default action.
bool is_fatal(const Process& p, int signal) {
    return handler_of(p, signal) == reinterpret_cast<uint64_t>(SIG_DFL) && !stops_by_default(signal) &&
           !ignored_by_default(signal);
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

}  // namespace

bool ignored_by_default(int signal) {
    return signal == SIGCHLD || signal == SIGURG || signal == SIGWINCH || signal == SIGCONT;
}

bool is_synchronous(int signal) {
    return signal == SIGSEGV || signal == SIGBUS || signal == SIGFPE || signal == SIGILL ||
           signal == SIGTRAP || signal == SIGSYS || signal == SIGABRT;
}

namespace {

uint64_t stopped_key(uint32_t process) {
    return make_key(ObjectKind::kSignal, uint64_t{1} << 32 | process);
}

void tell_of_stop(uint32_t process, StopNews news, int code, int signal) {
    Process& p = domain().processes[process];
    p.stop_news = news;
    if (p.parent == kNone) return;
    scheduler().signal(make_key(ObjectKind::kChild, p.parent), ~uint32_t{0});
    if (domain().processes[p.parent].actions[SIGCHLD].flags & SA_NOCLDSTOP) return;
    post_signal(p.parent, signal_of_child(process, code, signal), dmt::kNoSlot);
}

/// A terminal's stop signals do nothing to a process group that nobody outside of it in its session could
/// make go on (POSIX: orphaned).
bool is_orphaned_group(uint32_t process) {
    const DomainState& d = domain();
    const long group = raw(SYS_getpgid, d.processes[process].pid);
    for (uint32_t i = 0; i < d.processes_high; ++i) {
        const Process& p = d.processes[i];
        if (p.state != ProcessState::kLive || p.parent == kNone || raw(SYS_getpgid, p.pid) != group) continue;
        const int parent = d.processes[p.parent].pid;
        if (raw(SYS_getpgid, parent) != group && raw(SYS_getsid, parent) == raw(SYS_getsid, p.pid))
            return false;
    }
    return true;
}

void stop_process(uint32_t process, int signal) {
    Process& p = domain().processes[process];
    if (p.stop_signal != 0) return;
    p.stop_signal = signal;
    p.attention = 1;
    tell_of_stop(process, StopNews::kStopped, CLD_STOPPED, signal);
}

/// What was sent to a stopped process and ends it now that it goes on. 0: nothing.
int fatal_signal_due(uint32_t process) {
    const DomainState& d = domain();
    const Process& p = d.processes[process];
    uint64_t due = 0;
    for (dmt::SlotId slot = 0; slot < d.scheduler.high_water; ++slot) {
        const dmt::Slot& s = d.scheduler.slots[slot];
        if (s.process != process || s.state == dmt::SlotState::kFree) continue;
        due |= (p.pending.set | d.threads[slot].pending.set) & ~d.threads[slot].mask;
    }
    for (int signal = 1; signal < kSignals; ++signal)
        if ((due & signal_bit(signal)) && is_fatal(p, signal)) return signal;
    return 0;
}

void continue_process(uint32_t process) {
    Process& p = domain().processes[process];
    if (p.stop_signal == 0) return;
    p.stop_signal = 0;
    scheduler().signal(stopped_key(process), ~uint32_t{0});
    tell_of_stop(process, StopNews::kContinued, CLD_CONTINUED, SIGCONT);
    if (process == runtime.process_index) return;  // then it takes it itself
    if (const int signal = fatal_signal_due(process)) kill_process(process, signal);
}

/// A stop signal undoes a SIGCONT that is pending, and the other way round, whatever becomes of them.
void undo_opposites(uint32_t process, int signal) {
    uint64_t opposites = 0;
    if (signal == SIGCONT) opposites = kStopSignals;
    if (kStopSignals & signal_bit(signal)) opposites = signal_bit(SIGCONT);
    if (opposites == 0) return;
    DomainState& d = domain();
    drop_signals(d.processes[process].pending, opposites);
    for (dmt::SlotId slot = 0; slot < d.scheduler.high_water; ++slot)
        if (d.scheduler.slots[slot].process == process) drop_signals(d.threads[slot].pending, opposites);
    if (signal == SIGCONT) continue_process(process);
}

/// Its threads come out of no operation until somebody sends SIGCONT.
void stand_while_stopped() {
    Operation turn(Op::kSignal, own_key());
    while (runtime.process->stop_signal != 0) turn.wait(stopped_key(runtime.process_index));
}

}  // namespace

int post_signal(uint32_t process, const SignalInfo& info, dmt::SlotId slot) {
    Process& p = domain().processes[process];
    const int signal = info.signal;
    if (p.state != ProcessState::kLive) return p.state == ProcessState::kOpaque ? EPERM : 0;
    if (signal == 0) return 0;
    undo_opposites(process, signal);
    if (p.state != ProcessState::kLive) return 0;  // it went on to its end
    const dmt::SlotId target = slot != dmt::kNoSlot ? slot : choose_thread(process, signal);
    const bool awaited = target != dmt::kNoSlot && waits_for(target, signal);
    const bool blocked = target == dmt::kNoSlot || (domain().threads[target].mask & signal_bit(signal));
    const bool by_default = handler_of(p, signal) == reinterpret_cast<uint64_t>(SIG_DFL);
    const bool stops = signal == SIGSTOP || (by_default && stops_by_default(signal));
    if (signal == SIGSTOP || (stops && !blocked && !awaited)) {
        if (signal == SIGSTOP || !is_orphaned_group(process)) stop_process(process, signal);
        return 0;
    }
    const bool fatal = is_fatal(p, signal);
    // Nothing but SIGKILL ends a process that is stopped: the rest is pending until it goes on.
    if (signal == SIGKILL || (fatal && !blocked && !awaited && p.stop_signal == 0)) {
        if (process != runtime.process_index) {
            kill_process(process, signal);
            return 0;
        }
        if (signal == SIGKILL) die_by_signal(signal);
    }
    if (is_ignored(p, signal) && !blocked && !awaited) return 0;
    if (slot == dmt::kNoSlot) {
        // Its end is for nobody in particular: whoever sent it to its own process does not come back.
        const bool for_one = awaited || (!blocked && !fatal);
        note_choice(process, signal, for_one ? target : dmt::kNoSlot);
    }
    if (!queue_signal(slot != dmt::kNoSlot ? domain().threads[slot].pending : p.pending, info)) return EAGAIN;
    p.attention = 1;
    ++p.signals_posted;
    if (domain().signal_fds_open != 0) wake_signal_fds(signal);
    if (target != dmt::kNoSlot && (awaited || !blocked)) scheduler().interrupt(target);
    return 0;
}

int post_signal(uint32_t process, int signal, dmt::SlotId slot) {
    return post_signal(process, signal_from_self(signal, SI_USER), slot);
}

bool take_pending(uint64_t set, SignalInfo& info) {
    return unqueue_signal(own().pending, set, info) || unqueue_signal(runtime.process->pending, set, info);
}

void drop_pending(int signal) {
    DomainState& d = domain();
    drop_signals(runtime.process->pending, signal_bit(signal));
    for (dmt::SlotId slot = 0; slot < d.scheduler.high_water; ++slot)
        if (d.scheduler.slots[slot].process == runtime.process_index)
            drop_signals(d.threads[slot].pending, signal_bit(signal));
}

uint64_t pending_signals() {
    return own().pending.set | runtime.process->pending.set;
}

uint64_t due_signals() {
    const uint64_t let_through = ~own().mask, shared = runtime.process->pending.set & let_through;
    const uint64_t mine = own().pending.set & let_through;
    return shared == 0 ? mine : mine | not_for_others(shared);
}

bool handler_due() {
    for (uint64_t due = due_signals(); due != 0; due &= due - 1) {
        const int signal = 1 + __builtin_ctzll(due);
        const bool by_default = handler_of(*runtime.process, signal) == reinterpret_cast<uint64_t>(SIG_DFL);
        if (!is_ignored(*runtime.process, signal) && !(by_default && stops_by_default(signal))) return true;
    }
    return false;
}

void mask_has_changed() {
    if (due_signals() == 0 && !blocks_what_it_is_chosen_for()) return;
    Operation turn(Op::kSignal, own_key());
    pass_on_signals();
}

bool is_cut_short() {
    return handler_due() || cancel_due();
}

bool interruption_due() {
    if (runtime.process->attention != 0 && handler_due()) return true;
    // Said once, and not to a thread that has it disabled.
    if (own().cancelled != 1 || own().cancel_disabled != 0) return false;
    own().cancelled = 2;
    return true;
}

void end_by_signal(int signal) {
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

void die_by_signal(int signal) {
    leave_domain(signal);
    end_by_signal(signal);
}

namespace {

void deliver_due(int& rounds);

void call_handler(const SignalAction& action, const SignalInfo& about, uint64_t mask_before) {
    siginfo_t info = as_siginfo(about);
    InterruptedPlace place(mask_before);
    const CallsTrap trap;
    volatile bool has_run = false;
    crane_mark_place(&place.context());
    if (has_run) return;  // somebody has gone on from the context
    has_run = true;
    place.marked();
    crane_call_on_stack(stack_for_handler(action.flags), reinterpret_cast<Handler>(action.handler),
                        about.signal, &info, &place.context());
    own().mask = place.mask();
    if (place.is_changed()) place.go_on();
}

void run_handler(const SignalInfo& info, int& rounds) {
    SignalAction& action = runtime.process->actions[info.signal];
    const SignalAction chosen = action;
    if (chosen.flags & SA_RESETHAND) action.handler = reinterpret_cast<uint64_t>(SIG_DFL);
    const uint64_t before = own().mask;
    own().mask |= chosen.mask;
    if (!(chosen.flags & SA_NODEFER)) own().mask |= signal_bit(info.signal);
    // Without the turn (parallel), once a handler has run: whoever comes by takes it.
    if (scheduler().holds_turn(self.slot) && blocks_what_it_is_chosen_for()) pass_on_signals();
    // The kernel puts the frames of all that are due on the stack, and the last one runs first.
    if (due_signals() != 0) deliver_due(rounds);
    ++self.handlers_run;
    HandlerFrame frame;
    call_handler(chosen, info, before);
}

void take_default_action(int signal) {
    if (!stops_by_default(signal)) die_by_signal(signal);
    if (!is_orphaned_group(runtime.process_index)) stop_process(runtime.process_index, signal);
}

void deliver_due(int& rounds) {
    SignalInfo info;
    while (rounds-- > 0 && take_pending(due_signals(), info)) {
        if (is_ignored(*runtime.process, info.signal)) continue;
        if (handler_of(*runtime.process, info.signal) == reinterpret_cast<uint64_t>(SIG_DFL)) {
            take_default_action(info.signal);
        } else {
            run_handler(info, rounds);
        }
    }
}

/// Whether something is pending for the process or for any of its threads.
bool any_pending() {
    if (runtime.process->pending.set != 0) return true;
    const dmt::State& s = domain().scheduler;
    for (dmt::SlotId slot = 0; slot < s.high_water; ++slot) {
        if (s.slots[slot].process == runtime.process_index && s.slots[slot].state != dmt::SlotState::kFree &&
            domain().threads[slot].pending.set != 0)
            return true;
    }
    return false;
}

}  // namespace

void deliver_signals() {
    constexpr int kMostAtOnce = 4096;
    // Without the turn (parallel): what was posted is seen at this thread's next operation.
    if (!scheduler().holds_turn(self.slot)) return;
    settle_hangups_if_any();
    if (runtime.process->stop_signal != 0) stand_while_stopped();
    if (blocks_what_it_is_chosen_for()) pass_on_signals();
    int rounds = kMostAtOnce;
    deliver_due(rounds);
    if (runtime.process->stop_signal != 0) stand_while_stopped();
    if (!any_pending() && runtime.process->stop_signal == 0) runtime.process->attention = 0;
}

void reset_handlers_after_exec() {
    for (SignalAction& action : runtime.process->actions) {
        if (action.handler != reinterpret_cast<uint64_t>(SIG_IGN)) action = {};
    }
}

SignalsLeft signals_left() {
    return {own().mask, pending_signals()};
}

void leave_signals_to_kernel(const SignalsLeft& left) {
    for (int signal = 1; signal < kSignals; ++signal) {
        if (signal == SIGKILL || signal == SIGSTOP || is_of_libc(signal)) continue;
        const bool ignored = handler_of(*runtime.process, signal) == reinterpret_cast<uint64_t>(SIG_IGN);
        const auto does = reinterpret_cast<uint64_t>(ignored ? SIG_IGN : SIG_DFL);
        install_action(signal, reinterpret_cast<Handler>(does), 0);
    }
    raw(SYS_rt_sigprocmask, SIG_SETMASK, &left.mask, nullptr, sizeof(left.mask));
    for (int signal = 1; signal < kSignals; ++signal)
        if (left.pending & signal_bit(signal)) raw(SYS_kill, raw(SYS_getpid), signal);
}

namespace {

/// The program's own handler, called from ours: the masks are the schedule's, not the kernel's, and rdtsc may
/// fault in it as everywhere. False: it has none, or had it blocked, which ends a process.
bool run_fault_handler(int signal, siginfo_t* info, ucontext_t& context) {
    SignalAction& action = runtime.process->actions[signal];
    const SignalAction chosen = action;
    if (chosen.handler <= reinterpret_cast<uint64_t>(SIG_IGN)) return false;
    if (!self.active) {
        reinterpret_cast<Handler>(chosen.handler)(signal, info, &context);
        return true;
    }
    if (own().mask & signal_bit(signal)) return false;
    if (chosen.flags & SA_RESETHAND) action.handler = reinterpret_cast<uint64_t>(SIG_DFL);
    leave_loops_in_place(static_cast<uint64_t>(context.uc_mcontext.gregs[REG_RIP]));
    const sigset_t kernels = context.uc_sigmask;
    mask_to(own().mask, &context.uc_sigmask);
    own().mask |= chosen.mask;
    if (!(chosen.flags & SA_NODEFER)) own().mask |= signal_bit(signal);
    {
        const CallsTrap trap;
        HandlerFrame frame;
        reinterpret_cast<Handler>(chosen.handler)(signal, info, &context);
    }
    own().mask = mask_from(&context.uc_sigmask);
    context.uc_sigmask = kernels;
    return true;
}

/// No instruction raised it, and no process of the domain's: those send signals in the schedule.
bool is_sent_from_outside(const siginfo_t& info) {
    const bool by_somebody = info.si_code == SI_USER || info.si_code == SI_QUEUE || info.si_code == SI_TKILL;
    if (!by_somebody || !runtime.domain || !runtime.process) return false;
    return info.si_pid != raw(SYS_getpid) && find_process(info.si_pid) == kNone;
}

/// It came at no place of the schedule: the thread may be anywhere in the shim, asleep with the turn or
/// without it, so neither the program's handler nor the end that it stands for can be had there.
void end_as_struck(int signal, int sender) {
    if (runtime.process->actions[signal].handler == reinterpret_cast<uint64_t>(SIG_IGN)) return;
    char text[160];
    const char* name = sigabbrev_np(signal);
    snprintf(
        text, sizeof(text),
        "process %d of the server was sent signal %d (SIG%s) from outside the domain, by none of its own "
        "instructions",
        runtime.process->pid, signal, name ? name : "?");
    // In a container nobody but who is outside of it has no number.
    refuse_domain(text, sender == 0 ? timebubble::Attachment::kStruck : timebubble::Attachment::kRefused);
}

void on_fault(int signal, siginfo_t* info, void* given) {
    ucontext_t& context = *static_cast<ucontext_t*>(given);
    constexpr int kDispatched = 2;  // SYS_USER_DISPATCH
    if (signal == SIGSYS && info->si_code == kDispatched) {
        leave_round(context);
        return trapped_call(*info, context);
    }
    if (signal == SIGSYS && info->si_call_addr == crane_judged_call_made)
        info->si_call_addr = reinterpret_cast<void*>(self.trapped_at);
    if (is_sent_from_outside(*info)) return end_as_struck(signal, info->si_pid);
    if (leave_bad_copy(context)) return;
    if (signal == SIGSEGV && emulate_tsc(*info, context)) return;
    if (signal == SIGTRAP && (take_pause(*info, context) || follow_round(*info, context))) return;
    if (runtime.process && run_fault_handler(signal, info, context)) return;
    // The crash is part of the schedule: the end is reported in turn, then the kernel has its way.
    if (self.active) die_by_signal(signal);
    real.signal(signal, SIG_DFL);
}

void on_stray(int, siginfo_t*, void*) {}

void on_look(int, siginfo_t* info, void* given) {
    look_for_round(*info, *static_cast<ucontext_t*>(given));
}

}  // namespace

void follow_action(int signal) {
    if (is_synchronous(signal) || signal == SIGCHLD || signal == SIGPIPE || is_of_libc(signal)) return;
    if (signal == SIGXFSZ) return;  // size_limit.hpp
    if (signal == timebubble::kLookSignal) return;
    uint64_t wanted = handler_of(*runtime.process, signal);
    // A terminal's: the kernel would end or stop a process that waits for its turn. The schedule sends its
    // own.
    const bool of_terminal = signal == SIGHUP || signal == SIGINT || signal == SIGQUIT || signal == SIGTSTP;
    const bool of_background = signal == SIGTTIN || signal == SIGTTOU;
    if (of_background) wanted = reinterpret_cast<uint64_t>(SIG_IGN);
    const bool by_default = wanted == reinterpret_cast<uint64_t>(SIG_DFL);
    const bool handled = wanted > reinterpret_cast<uint64_t>(SIG_IGN) || (by_default && of_terminal);
    install_action(signal, handled ? on_stray : reinterpret_cast<Handler>(wanted), SA_RESTART);
}

void install_fault_handlers() {
    for (int signal : {SIGPIPE, SIGXFSZ}) real.signal(signal, SIG_IGN);
    for (int signal : {SIGHUP, SIGINT, SIGQUIT, SIGTSTP, SIGTTIN, SIGTTOU}) follow_action(signal);
    install_action(SIGCHLD, on_child, SA_SIGINFO | SA_RESTART | SA_NOCLDSTOP);
    install_action(timebubble::kLookSignal, on_look, SA_SIGINFO | SA_RESTART | SA_ONSTACK);
    sigset_t told;
    sigemptyset(&told);
    sigaddset(&told, SIGCHLD);
    sigaddset(&told, SIGSYS);
    sigaddset(&told, timebubble::kLookSignal);
    real.pthread_sigmask(SIG_UNBLOCK, &told, nullptr);
    for (int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS})
        follow_fault_action(signal);
}

void step_on_signal_stack(bool wanted) {
    if (wanted)
        install_action(SIGTRAP, on_fault, SA_SIGINFO | SA_NODEFER | SA_ONSTACK);
    else
        follow_fault_action(SIGTRAP);
}

void follow_fault_action(int signal) {
    const SignalAction& wanted = runtime.process->actions[signal];
    unsigned long flags = SA_SIGINFO | SA_NODEFER;
    // What nobody handles may be an overflown stack, but for a trap, which gives way where it is; a handler
    // runs where the program wants it to. A trapped call may take long, and comes from anywhere.
    const bool by_default = wanted.handler <= reinterpret_cast<uint64_t>(SIG_IGN);
    if (signal != SIGSYS && ((by_default && signal != SIGTRAP) || (wanted.flags & SA_ONSTACK)))
        flags |= SA_ONSTACK;
    install_action(signal, on_fault, flags);
}

}  // namespace crane::interpose
