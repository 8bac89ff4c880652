#include "interpose/core/main_process.hpp"

#include <sys/wait.h>

#include <csignal>

#include "interpose/core/deaths.hpp"
#include "interpose/core/fds.hpp"
#include "interpose/core/processes.hpp"
#include "interpose/core/signals.hpp"

namespace crane::interpose {

namespace {

/// Only daemons begin a session, and they do so before who started them ends.
bool is_in_session_of_its_own(const Process& p) {
    return raw(SYS_getsid, p.pid) != raw(SYS_getsid, 0);
}

[[noreturn]] void end_as(int wait_status) {
    if (WIFSIGNALED(wait_status)) end_by_signal(WTERMSIG(wait_status));
    raw(SYS_exit_group, WEXITSTATUS(wait_status));
    __builtin_unreachable();
}

}  // namespace

uint32_t heir_of_main(int wait_status) {
    const DomainState& d = domain();
    if (wait_status != 0 || d.asked_by_signal) return kNone;
    uint32_t chosen = kNone;
    bool chosen_has_session = false;
    for (uint32_t i = 0; i < d.processes_high; ++i) {
        const Process& p = d.processes[i];
        if (p.state != ProcessState::kLive || i == runtime.process_index) continue;
        const bool has_session = is_in_session_of_its_own(p);
        // One that has served clients and leaves some child behind has ended.
        if (!has_session && d.served) continue;
        const bool older = chosen == kNone || p.ordinal < d.processes[chosen].ordinal;
        if (has_session == chosen_has_session ? !older : chosen_has_session) continue;
        chosen = i;
        chosen_has_session = has_session;
    }
    return chosen;
}

void pass_main_to(uint32_t heir) {
    DomainState& d = domain();
    runtime.process->is_main = 0;
    d.processes[heir].is_main = 1;
    d.main_process = heir;
    runtime.view.control->status.server_pid.store(static_cast<uint32_t>(d.processes[heir].pid),
                                                  std::memory_order_relaxed);
}

bool is_first_process() {
    return runtime.process->ordinal == 0;
}

void vanish() {
    domain().staying_pid = runtime.process->pid;
    raw(SYS_close_range, 0, reserved_fd(0) - 1, 0);
    raw(SYS_close_range, reserved_fd(kReservedFds), ~0U, 0);
}

bool has_vanished(int pid) {
    return pid == domain().staying_pid;
}

void stay_for_the_others() {
    sigset_t all;
    sigfillset(&all);
    raw(SYS_rt_sigprocmask, SIG_SETMASK, &all, nullptr, sizeof(uint64_t));
    runtime.process_index = kNone;  // its entry is another process's soon
    for (;;) {
        siginfo_t info{};
        const long rc = raw(SYS_waitid, P_ALL, 0, &info, WEXITED | WNOWAIT, nullptr);
        if (rc == -EINTR) continue;
        if (rc != 0) end_as(0);
        const bool is_server = domain().processes[domain().main_process].pid == info.si_pid;
        const int status = status_of_dead(info.si_pid);
        if (!is_server) on_child(SIGCHLD, nullptr, nullptr);
        raw(SYS_wait4, info.si_pid, nullptr, WNOHANG, nullptr);
        if (is_server && status >= 0) end_as(status);
    }
}

}  // namespace crane::interpose
