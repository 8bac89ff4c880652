// wait and its kin: for the end of a child, or its stop and its going on.
#include "interpose/waiting.hpp"

#include <climits>

#include "interpose/core/blocking.hpp"
#include "interpose/core/deaths.hpp"
#include "interpose/core/opaque.hpp"
#include "interpose/core/processes.hpp"
#include "interpose/core/signals.hpp"
#include "interpose/core/threads.hpp"
#include "interpose/core/user_memory.hpp"

namespace crane::interpose {
namespace {

bool matches(const Process& p, int pid) {
    if (pid > 0) return p.pid == pid;
    if (pid == -1) return true;
    const long group = raw(SYS_getpgid, p.pid);
    return group == (pid == 0 ? raw(SYS_getpgid, 0) : -pid);
}

/// What a wait tells of a child besides its pid.
struct Told {
    int status = 0;
    uint64_t spent_ns = 0;  ///< time that it has lived, its children's included
};

/// The child really is gone, or about to be: the kernel's wait does not last.
long collect(Process& p, Told& told, bool keep) {
    const long pid = p.pid;
    if (p.status_unknown) {
        const int known = status_of_dead(p.pid);
        p.status = known < 0 ? 0 : known;
        p.status_unknown = 0;
    }
    told.status = p.status;
    if (p.born_ns != 0) told.spent_ns = now_realtime_ns() - p.born_ns + p.children_ns;
    if (keep) return pid;
    runtime.process->children_ns += told.spent_ns;
    reap(p.pid);
    p.state = ProcessState::kFree;
    return pid;
}

constexpr int kContinuedStatus = 0xffff;

/// A child among those that `pid` means, as waitpid has it.
struct Found {
    Process* exited = nullptr;
    Process* stopped = nullptr;  ///< or goes on again
    bool any = false;
    bool left_to_chance = false;
};

/// One that is to end with another signal than SIGCHLD is only waited for by those who say so.
bool is_of_asked_kind(const Process& p, int options) {
    return (options & __WALL) || (p.end_signal != SIGCHLD) == ((options & static_cast<int>(__WCLONE)) != 0);
}

bool has_news(const Process& p, int options) {
    return p.state == ProcessState::kLive &&
           ((p.stop_news == StopNews::kStopped && (options & WSTOPPED)) ||
            (p.stop_news == StopNews::kContinued && (options & WCONTINUED)));
}

Found find_child(int pid, int options) {
    Found found;
    for (uint32_t i = 0; i < domain().processes_high && !found.exited; ++i) {
        Process& p = domain().processes[i];
        if (p.state == ProcessState::kFree || p.parent != runtime.process_index || !matches(p, pid) ||
            !is_of_asked_kind(p, options))
            continue;
        const bool left = p.state == ProcessState::kOpaque && p.opaque_phase == OpaquePhase::kLeft;
        if (left && has_ended(p.pid)) note_end_of_opaque(p);
        if (p.state == ProcessState::kExited && p.unseen) continue;
        found.any = true;
        found.left_to_chance = found.left_to_chance || left;
        if (p.state == ProcessState::kExited && (options & WEXITED)) found.exited = &p;
        if (!found.stopped && has_news(p, options)) found.stopped = &p;
    }
    return found;
}

long tell_news(Process& p, Told& told, bool keep) {
    told.status = p.stop_news == StopNews::kStopped ? p.stop_signal << 8 | 0x7f : kContinuedStatus;
    if (!keep) p.stop_news = StopNews::kNone;
    return p.pid;
}

/// `options` are waitid's: what it shall be told of has to be named.
long wait_child(int pid, Told& told, int options) {
    const uint64_t key = make_key(ObjectKind::kChild, runtime.process_index);
    Operation turn(Op::kWaitChild, key);
    for (uint32_t looks = 0;;) {
        settle_opaque();
        const Found found = find_child(pid, options);
        if (found.exited) return collect(*found.exited, told, options & WNOWAIT);
        if (found.stopped) return tell_news(*found.stopped, told, options & WNOWAIT);
        if (!found.any) return -ECHILD;
        if (options & WNOHANG) {
            turn.yield();
            return 0;
        }
        const uint64_t look_ns = found.left_to_chance ? next_look_ns(looks) : dmt::kNoDeadline;
        if (turn.wait(key, look_ns, true) != dmt::WaitResult::kInterrupted) continue;
        // What a child has done is told before the signal that tells of it.
        const Found after = find_child(pid, options);
        if (after.any && !after.exited && !after.stopped && !restart_after_signals()) return -EINTR;
    }
}

/// What /proc tells of the process behind a pidfd that is gone.
constexpr int kReaped = -1;

/// As waitpid names children; -EINVAL, -EBADF or -ECHILD.
long children_by_id(idtype_t type, id_t id, int& pid) {
    switch (static_cast<int>(type)) {
        case P_ALL:
            pid = -1;
            return 0;
        case P_PID:
            pid = static_cast<int>(id);
            return pid > 0 ? 0 : -EINVAL;
        case P_PGID:
            pid = -static_cast<int>(id ? id : static_cast<id_t>(raw(SYS_getpgid, 0)));
            return 0;
        case P_PIDFD:
            pid = process_behind(static_cast<int>(id));
            return pid > 0 ? 0 : pid == kReaped ? -ECHILD : -EBADF;
        default:
            return -EINVAL;
    }
}

void fill_child(siginfo_t& info, int pid, int status) {
    info.si_signo = SIGCHLD;
    info.si_pid = pid;
    info.si_uid = static_cast<uid_t>(raw(SYS_getuid));
    if (WIFCONTINUED(status)) {
        info.si_code = CLD_CONTINUED;
        info.si_status = SIGCONT;
    } else if (WIFSTOPPED(status)) {
        info.si_code = CLD_STOPPED;
        info.si_status = WSTOPSIG(status);
    } else if (WIFEXITED(status)) {
        info.si_code = CLD_EXITED;
        info.si_status = WEXITSTATUS(status);
    } else {
        info.si_code = WCOREDUMP(status) ? CLD_DUMPED : CLD_KILLED;
        info.si_status = WTERMSIG(status);
    }
}

rusage usage_of(const Told& told) {
    rusage used{};
    used.ru_utime = {static_cast<time_t>(told.spent_ns / kNsPerSecond),
                     static_cast<suseconds_t>(told.spent_ns % kNsPerSecond / 1000)};
    return used;
}

constexpr int kStates = WEXITED | WSTOPPED | WCONTINUED;
constexpr int kOwnKinds = __WNOTHREAD | __WALL | static_cast<int>(__WCLONE);

long wait_by_id(idtype_t type, id_t id, siginfo_t* info, int options, rusage* usage) {
    if ((options & ~(kStates | WNOHANG | WNOWAIT | kOwnKinds)) || !(options & kStates)) return -EINVAL;
    int pid = -1;
    if (const long wrong = children_by_id(type, id, pid); wrong != 0) return wrong;
    const bool refuses_to_wait = static_cast<int>(type) == P_PIDFD && !(options & WNOHANG) &&
                                 (raw(SYS_fcntl, static_cast<int>(id), F_GETFL) & O_NONBLOCK);
    Told told;
    const long rc = wait_child(pid, told, refuses_to_wait ? options | WNOHANG : options);
    if (rc < 0) return rc;
    if (rc == 0 && refuses_to_wait) return -EAGAIN;
    if (rc > 0 && usage && !store(usage, usage_of(told))) return -EFAULT;
    if (info) {
        *info = {};
        if (rc > 0) fill_child(*info, static_cast<int>(rc), told.status);
    }
    return 0;
}

long wait_by_pid(int pid, int* status, int options, rusage* usage) {
    if (options & ~(WNOHANG | WUNTRACED | WCONTINUED | kOwnKinds)) return -EINVAL;
    if (pid == INT_MIN) return -ESRCH;
    Told told;
    const long rc = wait_child(pid, told, options | WEXITED);
    if (rc <= 0) return rc;
    const rusage used = usage_of(told);
    // The kernel, too, finds out when the child has been waited for.
    if ((usage && !store(usage, used)) || (status && !store(status, told.status))) return -EFAULT;
    return rc;
}

}  // namespace
}  // namespace crane::interpose

using namespace crane::interpose;

pid_t crane::interpose::wait_for_child(pid_t pid, int* status, int options, rusage* usage) {
    return static_cast<pid_t>(
        as_libc(at_cancellation_point([&] { return wait_by_pid(pid, status, options, usage); })));
}

CRANE_EXPORT pid_t waitpid(pid_t pid, int* status, int options) {
    if (!active()) return resolve_real(), real.waitpid(pid, status, options);
    return wait_for_child(pid, status, options, nullptr);
}

CRANE_EXPORT pid_t wait(int* status) {
    return waitpid(-1, status, 0);
}

// A cancelled thread ends there, which the header's declarations leave no way out for.
extern "C" {
CRANE_EXPORT pid_t crane_wait4(pid_t pid, int* status, int options, struct rusage* usage) asm("wait4");
CRANE_EXPORT pid_t crane_wait3(int* status, int options, struct rusage* usage) asm("wait3");

pid_t crane_wait4(pid_t pid, int* status, int options, struct rusage* usage) {
    if (!active()) return static_cast<pid_t>(as_libc(raw(SYS_wait4, pid, status, options, usage)));
    return wait_for_child(pid, status, options, usage);
}

pid_t crane_wait3(int* status, int options, struct rusage* usage) {
    return crane_wait4(-1, status, options, usage);
}
}

int crane::interpose::wait_by_number(idtype_t type, id_t id, siginfo_t* info, int options, rusage* usage) {
    return static_cast<int>(as_libc(at_cancellation_point(
        [&] { return writable_if_given(info) ? wait_by_id(type, id, info, options, usage) : -EFAULT; })));
}

CRANE_EXPORT int waitid(idtype_t type, id_t id, siginfo_t* info, int options) {
    if (!active()) return resolve_real(), real.waitid(type, id, info, options);
    return wait_by_number(type, id, info, options, nullptr);
}
