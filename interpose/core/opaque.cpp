#include "interpose/core/opaque.hpp"

#include <fcntl.h>
#include <sys/prctl.h>

#include <cstdio>

#include "interpose/core/births.hpp"
#include "interpose/core/deaths.hpp"
#include "interpose/core/processes.hpp"
#include "interpose/core/raw.hpp"
#include "interpose/core/signals.hpp"
#include "interpose/core/virtual_time.hpp"

namespace crane::interpose {

namespace {

constexpr uint64_t kFirstLookNs = 10'000'000, kLongestLookNs = 1'000'000'000;
/// Between two looks at processes that run.
constexpr uint64_t kShortestPauseNs = 50'000, kLongestPauseNs = 1'000'000;

uint64_t real_now_ns() {
    timespec now{};
    raw(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

void pause_ns(uint64_t ns) {
    const timespec pause{0, static_cast<long>(ns)};
    raw(SYS_nanosleep, &pause, nullptr);
}

void tell_parent(const Process& p) {
    if (p.parent == kNone) return;
    post_signal(p.parent, SIGCHLD, dmt::kNoSlot);
    scheduler().signal(make_key(ObjectKind::kChild, p.parent), ~uint32_t{0});
}

void forget(Process& p) {
    note_orphan(p.pid);
    raw(SYS_wait4, p.pid, nullptr, WNOHANG, nullptr);
    p.state = ProcessState::kFree;
    --domain().opaque_processes;
    runtime.view.control->status.processes.fetch_sub(1, std::memory_order_relaxed);
}

void stand_anew(Process& p) {
    p.opaque_phase = OpaquePhase::kRuns;
    p.opaque_ran_ns = p.opaque_stood_ns = p.opaque_passed_ns = 0;
    p.opaque_effort = {};
}

/// The domain has stood for it so much longer. True: it goes on doing so.
bool is_worth_waiting_for(Process& p, uint64_t passed_ns) {
    constexpr uint64_t kBetweenLooksNs = 100'000'000;
    p.opaque_stood_ns += passed_ns;
    p.opaque_passed_ns += passed_ns;
    if (p.opaque_passed_ns >= kBetweenLooksNs) {
        const OpaqueEffort now = effort_of(p.pid);
        p.opaque_ran_ns += own_time_ns(p.opaque_effort, now, p.opaque_passed_ns);
        p.opaque_effort = now;
        p.opaque_passed_ns = 0;
    }
    return p.opaque_ran_ns < kPatienceMs * 1'000'000 && p.opaque_stood_ns < kMostPatienceMs * 1'000'000;
}

void leave_to_itself(Process& p) {
    char text[256];
    snprintf(text, sizeof(text),
             "process %d of the server, which cannot be scheduled, has run for %d s: nobody waits for it any "
             "longer, and what it writes and when it ends may differ between replicas",
             p.pid, static_cast<int>(p.opaque_stood_ns / 1'000'000'000));
    report(text);
    p.opaque_phase = OpaquePhase::kLeft;
    domain().left_streams |= p.opaque_streams;
    all_streams_event();
    if (p.parent == kNone) {
        forget(p);
    } else {
        tell_parent(p);
    }
}

/// One look at all of them. True: none runs.
bool look_at_all(uint64_t passed_ns) {
    bool quiet = true;
    for (uint32_t i = 0; i < domain().processes_high; ++i) {
        Process& p = domain().processes[i];
        if (p.state != ProcessState::kOpaque || p.opaque_phase == OpaquePhase::kLeft) continue;
        if (has_ended(p.pid)) {
            note_end_of_opaque(p);
            continue;
        }
        if (waits_for_streams(p.pid)) continue;
        if (is_worth_waiting_for(p, passed_ns)) {
            quiet = false;
        } else {
            leave_to_itself(p);
        }
    }
    return quiet;
}

}  // namespace

void note_end_of_opaque(Process& p) {
    all_streams_event();
    if (p.parent == kNone) {
        forget(p);
        return;
    }
    --domain().opaque_processes;
    runtime.view.control->status.processes.fetch_sub(1, std::memory_order_relaxed);
    p.state = ProcessState::kExited;
    p.status_unknown = 1;
    p.unseen = ignores_children(domain().processes[p.parent]);
    tell_parent(p);
}

void become_opaque() {
    Process& p = *runtime.process;
    number_others_apart();
    p.state = ProcessState::kOpaque;
    stand_anew(p);
    p.end_signal = SIGCHLD;
    release_maker(runtime.process_index);
    ++domain().opaque_processes;
    domain().opaque_started = 1;
    drop_virtual_descriptors();
    // It sees how many it has. None: a restored domain's are of another host.
    raw(SYS_sched_setaffinity, 0, sizeof(domain().given_cpus), &domain().given_cpus);
    // What nobody knows the other end of may be anybody's.
    p.opaque_streams = set_bit(ObjectKind::kStream, 0);
    for (int fd = 0; fd < static_cast<int>(p.fds_end); ++fd) {
        FdEntry& entry = p.fds[fd];
        if (entry.kind != FdKind::kStream) continue;
        if (raw(SYS_fcntl, fd, F_GETFD) & FD_CLOEXEC) {
            raw(SYS_close, fd);
            drop_entry(entry);
        } else {
            p.opaque_streams |= stream_bit(entry);
        }
    }
    // Who waits already, for its end or for a stream, looks again, and runs it there; one that waits for the
    // signal is told that there is something to wait for.
    tell_parent(p);
    all_streams_event();
    drop_other_threads();
    const dmt::SlotId slot = self.slot;
    drop_signals(domain().threads[slot].pending, ~uint64_t{0});
    drop_signals(p.pending, ~uint64_t{0});
    // Orphans come to the nearest process that can bury them.
    raw(SYS_prctl, PR_SET_CHILD_SUBREAPER, p.subreaper, 0, 0, 0);
    self.active = false;
    scheduler().finish(slot);
}

void part_from_opaque(uint32_t index, uint32_t heir) {
    Process& p = domain().processes[index];
    p.parent = heir;
    if (heir == kNone && p.opaque_phase == OpaquePhase::kLeft) forget(p);
}

long signal_opaque(Process& p, int signal) {
    const bool dies = p.opaque_phase == OpaquePhase::kLeft && dies_of(p.pid, signal);
    const long rc = raw(SYS_kill, p.pid, signal);
    if (rc == 0 && dies) {
        stand_anew(p);
        domain().opaque_started = 1;
    }
    return rc;
}

void run_opaque_processes() {
    domain().opaque_started = 0;
    uint64_t then_ns = real_now_ns(), pause = kShortestPauseNs, passed_ns = 0;
    // Twice: what one did while another was looked at may have moved that one on.
    for (int quiet = 0; quiet < 2;) {
        quiet = look_at_all(passed_ns) ? quiet + 1 : 0;
        if (quiet == 0) {
            pause_ns(pause);
            if (pause < kLongestPauseNs) pause *= 2;
        }
        const uint64_t now_ns = real_now_ns();
        passed_ns = now_ns - then_ns;
        then_ns = now_ns;
    }
}

void wake_parents_of_opaque() {
    for (uint32_t i = 0; i < domain().processes_high; ++i) {
        const Process& p = domain().processes[i];
        if (p.state == ProcessState::kOpaque && p.parent != kNone)
            scheduler().signal(make_key(ObjectKind::kChild, p.parent), ~uint32_t{0});
    }
}

uint64_t next_look_ns(uint32_t& looks) {
    const uint64_t pause = looks < 7 ? kFirstLookNs << looks : kLongestLookNs;
    ++looks;
    return deadline_from_relative_ns(pause < kLongestLookNs ? pause : kLongestLookNs);
}

}  // namespace crane::interpose
