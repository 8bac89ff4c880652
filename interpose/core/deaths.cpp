#include "interpose/core/deaths.hpp"

#include <poll.h>
#include <sys/prctl.h>

#include <cstdio>
#include <cstring>

#include "interpose/core/opaque.hpp"
#include "interpose/core/passed.hpp"
#include "interpose/core/processes.hpp"
#include "interpose/core/signals.hpp"

namespace crane::interpose {

namespace {

/// The thread of that process that had the turn when it died.
dmt::SlotId holder_in(uint32_t index) {
    const dmt::State& s = domain().scheduler;
    if (s.holder == dmt::kNoSlot) return dmt::kNoSlot;
    const dmt::Slot& slot = s.slots[s.holder];
    return slot.process == index && slot.has_turn ? s.holder : dmt::kNoSlot;
}

[[noreturn]] void give_up(const Process& p, int status) {
    char text[200];
    if (WIFSIGNALED(status)) {
        const char* name = sigabbrev_np(WTERMSIG(status));
        snprintf(text, sizeof(text),
                 "process %d of the server was killed by signal %d (SIG%s) while it waited: from outside the "
                 "domain, or for want of memory",
                 p.pid, WTERMSIG(status), name ? name : "?");
    } else {
        snprintf(text, sizeof(text),
                 "process %d of the server exited with status %d while it waited for its turn", p.pid,
                 WEXITSTATUS(status));
    }
    refuse_domain(text);
}

/// A process that had the turn has not died by what its program does: no signal of the domain's comes from
/// the kernel but those that an instruction or a limit raises, and SIGKILL (a limit, want of memory) strikes
/// who runs. Who is in the midst of an operation waits (for input, a disk, a child), or has changed half of
/// what others go on with.
bool is_from_outside(int status) {
    if (!WIFSIGNALED(status)) return false;
    const int signal = WTERMSIG(status);
    if (signal == SIGKILL) return runtime.view.control->gate.working.load(std::memory_order_relaxed) != 0;
    return !is_synchronous(signal) && signal != SIGXCPU && signal != SIGXFSZ;
}

/// Some process has said already that the domain cannot go on.
bool is_given_up() {
    const uint32_t attachment = runtime.view.control->status.attachment.load(std::memory_order_acquire);
    return attachment > static_cast<uint32_t>(timebubble::Attachment::kAttached);
}

void tell_of_kill(const Process& p) {
    char text[200];
    snprintf(text, sizeof(text),
             "process %d of the server was killed by SIGKILL while it ran: its own deed, a limit, or want of "
             "memory. If that happened to this replica alone, they differ from here on",
             p.pid);
    report(text);
}

void look_at(uint32_t index) {
    Process& p = domain().processes[index];
    const int status = status_of_dead(p.pid);
    if (status < 0) return;
    if (is_given_up()) raw(SYS_exit_group, 125);
    const dmt::SlotId holder = holder_in(index);
    const bool live = p.state == ProcessState::kLive;
    if (holder == dmt::kNoSlot || (live && is_from_outside(status))) {
        if (live && !p.death_expected) give_up(p, status);
        return;
    }
    // Two threads of the parent may be told at once.
    if (__atomic_exchange_n(&p.buried, 1, __ATOMIC_ACQ_REL) != 0) return;
    if (status == SIGKILL) tell_of_kill(p);
    settle_passed_if_any();
    bury_holder(index, status, holder);
}

/// Those that had nobody in the domain to wait for them may be this process's to reap. Without the turn:
/// another process may do the same, or note one.
void reap_orphans() {
    DomainState& d = domain();
    for (uint32_t i = 0; i < d.orphans; ++i) {
        int32_t pid = __atomic_load_n(&d.orphan_pids[i], __ATOMIC_RELAXED);
        if (pid == 0 || raw(SYS_wait4, pid, nullptr, WNOHANG, nullptr) != pid) continue;
        __atomic_compare_exchange_n(&d.orphan_pids[i], &pid, 0, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    }
}

/// A free place of orphan_pids, kNone if there is none.
uint32_t place_for_orphan() {
    DomainState& d = domain();
    for (uint32_t i = 0; i < d.orphans; ++i)
        if (__atomic_load_n(&d.orphan_pids[i], __ATOMIC_RELAXED) == 0) return i;
    return d.orphans < kMaxOrphans ? d.orphans++ : kNone;
}

}  // namespace

int status_of_dead(int pid) {
    siginfo_t info{};
    const long rc = raw(SYS_waitid, P_PID, pid, &info, WEXITED | WNOHANG | WNOWAIT, nullptr);
    if (rc != 0 || info.si_pid != pid) return -1;
    // Whether a core was written is the host's affair.
    return info.si_code == CLD_EXITED ? exited_status(info.si_status) : info.si_status;
}

void on_child(int, siginfo_t*, void*) {
    if (!runtime.domain || !runtime.process) return;
    const int saved = errno;
    // All children: several deaths may be told by one signal.
    for (uint32_t i = 0; i < domain().processes_high; ++i) {
        const Process& p = domain().processes[i];
        const bool present = p.state == ProcessState::kLive || holder_in(i) != dmt::kNoSlot;
        if (present && i != runtime.process_index) look_at(i);
    }
    reap_orphans();
    errno = saved;
}

void note_orphan(int pid) {
    DomainState& d = domain();
    uint32_t place = place_for_orphan();
    if (place == kNone) {
        // Reaped by somebody outside of the domain.
        for (int32_t& orphan : d.orphan_pids)
            if (raw(SYS_kill, orphan, 0) == -ESRCH) orphan = 0;
        place = place_for_orphan();
    }
    if (place != kNone) __atomic_store_n(&d.orphan_pids[place], pid, __ATOMIC_RELAXED);
}

void forget_orphan(int pid) {
    DomainState& d = domain();
    for (uint32_t i = 0; i < d.orphans; ++i)
        if (d.orphan_pids[i] == pid) d.orphan_pids[i] = 0;
}

bool is_ended_orphan(int pid) {
    const DomainState& d = domain();
    for (uint32_t i = 0; i < d.orphans; ++i)
        if (d.orphan_pids[i] == pid) return has_ended(pid);
    return false;
}

void reap(int pid) {
    for (;;) {
        const long rc = raw(SYS_wait4, pid, nullptr, 0, nullptr);
        if (rc == -EINTR) continue;
        // It was left to this process, in the schedule, by one that is nearer to it.
        if (rc == -ECHILD && raw(SYS_kill, pid, 0) != -ESRCH) note_orphan(pid);
        return;
    }
}

void await_death(int pid) {
    const long pidfd = raw(SYS_pidfd_open, pid, 0);
    if (pidfd < 0) return;  // reaped already
    pollfd dead{static_cast<int>(pidfd), POLLIN, 0};
    while (raw(SYS_poll, &dead, 1, -1) == -EINTR) {
    }
    raw(SYS_close, pidfd);
}

void await_ended_process() {
    const int pid = domain().ending_pid;
    if (__builtin_expect(pid == 0, 1)) return;
    domain().ending_pid = 0;
    await_death(pid);
    settle_passed_if_any();
}

void adopt_orphans() {
    raw(SYS_prctl, PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
}

}  // namespace crane::interpose
