#include "interpose/core/processes.hpp"

#include <elf.h>
#include <sys/prctl.h>
#include <sys/statvfs.h>

#include <cstdlib>
#include <cstring>

#include "interpose/core/backstop.hpp"
#include "interpose/core/deaths.hpp"
#include "interpose/core/environment.hpp"
#include "interpose/core/fds.hpp"
#include "interpose/core/file_identity.hpp"
#include "interpose/core/main_process.hpp"
#include "interpose/core/opaque.hpp"
#include "interpose/core/queue_notices.hpp"
#include "interpose/core/signals.hpp"
#include "interpose/core/sockets.hpp"
#include "interpose/core/terminals.hpp"

namespace crane::interpose {

namespace {

uint32_t free_process() {
    for (uint32_t i = 0; i < kMaxProcesses; ++i) {
        if (domain().processes[i].state == ProcessState::kFree) return i;
    }
    return kNone;
}

/// Its children go to the nearest ancestor that asked for orphans, or to nobody in the domain.
void part_from_children(uint32_t index) {
    DomainState& d = domain();
    uint32_t heir = d.processes[index].parent;
    while (heir != kNone && !d.processes[heir].subreaper) heir = d.processes[heir].parent;
    for (uint32_t i = 0; i < d.processes_high; ++i) {
        Process& child = d.processes[i];
        if (child.state == ProcessState::kFree || child.parent != index) continue;
        child.parent = heir;
        child.end_signal = SIGCHLD;
        if (child.state == ProcessState::kOpaque) {
            if (child.death_signal) signal_opaque(child, child.death_signal);
            part_from_opaque(i, heir);
        }
        if (child.state == ProcessState::kExited && heir == kNone) {
            note_orphan(child.pid);
            child.state = ProcessState::kFree;
        }
        if (child.state == ProcessState::kLive && child.death_signal) {
            post_signal(i, child.death_signal, dmt::kNoSlot);
        }
    }
    if (heir != kNone) scheduler().signal(make_key(ObjectKind::kChild, heir), ~uint32_t{0});
}

/// What the threads of a process hold in the schedule; `kept` goes on there.
void drop_threads(uint32_t index, dmt::SlotId kept) {
    DomainState& d = domain();
    for (dmt::SlotId slot = 0; slot < d.scheduler.high_water; ++slot) {
        const dmt::Slot& s = d.scheduler.slots[slot];
        if (s.process != index || s.state == dmt::SlotState::kFree) continue;
        release_held_sockets(slot);
        if (slot == kept) continue;
        drop_signals(d.threads[slot].pending, ~uint64_t{0});
        scheduler().discard(slot);
    }
}

/// Everything of an ending process that others in the domain can see. Turn in hand, the thread's own or, of a
/// process that died with it, `last`'s.
void withdraw(uint32_t index, int wait_status, bool own, dmt::SlotId last) {
    DomainState& d = domain();
    Process& p = d.processes[index];
    for (size_t fd = 0; fd < p.fds_end; ++fd) {
        FdEntry& entry = p.fds[fd];
        if (entry.kind == FdKind::kUnknown) continue;
        // Ends of pipes, and files with locks, are closed now, not when the kernel gets to it, so that others
        // see it in order.
        const bool lock = entry.kind == FdKind::kPlain && d.file_lock_waiters != 0;
        if (own && (lock || entry.kind == FdKind::kStream)) raw(SYS_close, fd);
        drop_entry(entry);
    }
    all_streams_event();
    scheduler().signal_set(robust_bit());
    release_maker(index);
    p.has_terminal = 0;  // what happens to it is said to others only
    settle_hangups_if_any();
    drop_threads(index, last);
    if (last != dmt::kNoSlot) drop_signals(d.threads[last].pending, ~uint64_t{0});
    drop_signals(p.pending, ~uint64_t{0});
    drop_queue_notices(index, 0);
    p.stop_news = StopNews::kNone;
    const timebubble::ExitRecord record{static_cast<uint32_t>(p.pid), wait_status, p.is_main, 0};
    emit(timebubble::OutputKind::kExit, 0, 0, &record, sizeof(record));
    // Not before: one that has unmapped the ring dies there, and another has to do all this for it.
    p.state = ProcessState::kExited;
    p.status = wait_status;
    hang_up_session_of(index);
    part_from_children(index);
    runtime.view.control->status.processes.fetch_sub(1, std::memory_order_relaxed);
    if (p.parent == kNone) {
        note_orphan(p.pid);
        p.state = ProcessState::kFree;
        return;
    }
    p.unseen = p.end_signal == SIGCHLD && ignores_children(d.processes[p.parent]);
    if (p.end_signal != 0) post_signal(p.parent, signal_of_end(index, wait_status), dmt::kNoSlot);
    scheduler().signal(make_key(ObjectKind::kChild, p.parent), ~uint32_t{0});
}

/// Most of a process' places for descriptors were never used: those of a parent are not copied, and none of
/// an earlier process' is left.
void copy_process(const Process& from, Process& to) {
    static_assert(std::is_trivially_copyable_v<Process>);
    const size_t kept = from.fds_end, stale = to.fds_end;
    std::memcpy(static_cast<void*>(&to), &from, offsetof(Process, fds) + kept * sizeof(FdEntry));
    for (size_t fd = kept; fd < stale; ++fd) to.fds[fd] = {};
}

}  // namespace

void release_maker(uint32_t index) {
    if (domain().processes[index].suspends_maker == 0) return;
    domain().processes[index].suspends_maker = 0;
    scheduler().signal(maker_key(index), ~uint32_t{0});
}

void drop_other_threads() {
    drop_threads(runtime.process_index, self.slot);
    drop_queue_notices(runtime.process_index, 0);
}

bool ignores_children(const Process& parent) {
    const SignalAction& action = parent.actions[SIGCHLD];
    return action.handler == reinterpret_cast<uint64_t>(SIG_IGN) || (action.flags & SA_NOCLDWAIT);
}

uint32_t make_child() {
    uint32_t index = free_process();
    if (index == kNone) {
        settle_opaque();
        index = free_process();
    }
    if (index == kNone) return kNone;
    DomainState& d = domain();
    if (index >= d.processes_high) d.processes_high = index + 1;
    Process& p = d.processes[index];
    copy_process(*runtime.process, p);
    p.state = ProcessState::kLive;
    p.parent = runtime.process_index;
    p.is_main = 0;
    p.pending = {};
    p.stop_signal = 0;
    p.alarm_ns = 0;
    p.has_terminal = 0;
    p.front_group = 0;
    p.waits_for_lock_of = 0;
    p.born_ns = now_realtime_ns();
    p.children_ns = 0;
    p.stop_news = StopNews::kNone;
    p.attention = 0;
    p.subreaper = 0;
    p.death_signal = 0;
    p.end_signal = SIGCHLD;
    p.suspends_maker = 0;
    p.status_unknown = 0;
    p.ordinal = ++d.processes_started;
    p.entropy_at = 0;
    for (size_t fd = 0; fd < p.fds_end; ++fd)
        if (p.fds[fd].kind != FdKind::kUnknown) add_reference(p.fds[fd]);
    p.main_slot = scheduler().create(index, false);
    if (p.main_slot == dmt::kNoSlot) {
        forget_child(index);
        return kNone;
    }
    ThreadExtra& extra = d.threads[p.main_slot];
    extra = {};
    extra.mask = d.threads[self.slot].mask;
    extra.policy = d.threads[self.slot].policy;
    extra.processors_off = d.threads[self.slot].processors_off;
    extra.counter_denied = d.threads[self.slot].counter_denied;
    if (extra.policy.reset_on_fork) extra.policy = {};
    return index;
}

void forget_child(uint32_t index) {
    Process& p = domain().processes[index];
    for (size_t fd = 0; fd < p.fds_end; ++fd) {
        FdEntry& entry = p.fds[fd];
        if (entry.kind == FdKind::kSocket || entry.kind == FdKind::kEpoll || entry.kind == FdKind::kTimer ||
            entry.kind == FdKind::kSignals) {
            drop_entry(entry);
        }
    }
    if (p.main_slot != dmt::kNoSlot) scheduler().discard(p.main_slot);
    std::memset(static_cast<void*>(&p), 0, offsetof(Process, fds) + p.fds_end * sizeof(FdEntry));
}

void name_child(uint32_t index, int pid) {
    forget_orphan(pid);
    domain().processes[index].pid = static_cast<int32_t>(pid);
    runtime.view.control->status.processes.fetch_add(1, std::memory_order_relaxed);
}

void become_child(uint32_t index) {
    runtime.process_index = index;
    runtime.process = &domain().processes[index];
    __atomic_store_n(&runtime.process->death_expected, 0, __ATOMIC_RELEASE);
    self.slot = runtime.process->main_slot;
    self.generation = scheduler().slot(self.slot).generation;
    scheduler().start(self.slot);
    scheduler().slot(self.slot).tid = static_cast<uint32_t>(raw(SYS_gettid));
    adopt_orphans();
    start_backstop();
}

bool leave_domain(int wait_status) {
    // One that faults here dies with the turn in hand, and is buried by its parent.
    if (!self.active || self.leaves) return false;
    scheduler().get_turn(self.slot);
    self.leaves = true;
    const bool alone = runtime.process->state == ProcessState::kLive;
    const uint32_t heir = alone && runtime.process->is_main ? heir_of_main(wait_status) : kNone;
    const bool stays = heir != kNone && is_first_process();
    if (heir != kNone) pass_main_to(heir);
    if (alone) withdraw(runtime.process_index, wait_status, true, self.slot);
    if (stays)
        vanish();
    else
        domain().ending_pid = runtime.process->pid;
    const dmt::SlotId slot = self.slot;
    self.active = self.leaves = false;
    leave_backstop();
    // With the main process the domain ends: its exit is the last that is heard, and nobody has a turn again.
    if (!runtime.process->is_main) scheduler().finish(slot);
    return stays;
}

void leave(int code) {
    if (leave_domain(exited_status(code))) stay_for_the_others();
    raw(SYS_exit_group, code & 0xff);
    __builtin_unreachable();
}

void end_domain(int wait_status) {
    const timebubble::ExitRecord record{static_cast<uint32_t>(domain().processes[domain().main_process].pid),
                                        wait_status, 1, 0};
    emit(timebubble::OutputKind::kExit, 0, 0, &record, sizeof(record));
    for (;;) raw(SYS_pause);  // craned ends all processes
}

void bury_process(uint32_t index, int wait_status) {
    withdraw(index, wait_status, false, dmt::kNoSlot);
}

void bury_holder(uint32_t index, int wait_status, dmt::SlotId holder) {
    if (domain().processes[index].state == ProcessState::kLive) withdraw(index, wait_status, false, holder);
    if (!domain().processes[index].is_main) scheduler().finish(holder);
}

void drop_virtual_descriptors() {
    for (size_t fd = 0; fd < runtime.process->fds_end; ++fd) {
        FdEntry& entry = runtime.process->fds[fd];
        if (entry.kind == FdKind::kSocket || entry.kind == FdKind::kEpoll || entry.kind == FdKind::kTimer ||
            entry.kind == FdKind::kSignals) {
            drop_entry(entry);
        }
    }
}

uint32_t find_process(int pid) {
    for (uint32_t i = 0; i < domain().processes_high; ++i) {
        const Process& p = domain().processes[i];
        if (p.state != ProcessState::kFree && p.pid == pid) return i;
    }
    return kNone;
}

namespace {

/// The C library that the shim stands on loads it (musl has a loader of its own).
bool has_own_loader(int fd, const Elf64_Phdr& interpreter) {
    char path[64] = {};
    if (interpreter.p_filesz >= sizeof(path)) return false;
    raw(SYS_pread64, fd, path, interpreter.p_filesz, interpreter.p_offset);
    return strstr(path, "/ld-linux-x86-64.so.") != nullptr;
}

/// Set-user-ID bits count on this file, for this process.
bool gives_its_ids(int fd) {
    struct statfs system;
    if (raw(SYS_prctl, PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1) return false;
    return raw(SYS_fstatfs, fd, &system) != 0 || !(system.f_flags & ST_NOSUID);
}

/// A program that has other rights than who started it, by its file or because effective and real user
/// differ: the loader leaves out what is to be preloaded (AT_SECURE).
bool is_privileged(int fd) {
    struct stat info;
    if (raw(SYS_fstat, fd, &info) != 0) return false;
    auto user = static_cast<uid_t>(raw(SYS_geteuid));
    auto group = static_cast<gid_t>(raw(SYS_getegid));
    if ((info.st_mode & (S_ISUID | S_ISGID)) && gives_its_ids(fd)) {
        if (info.st_mode & S_ISUID) user = info.st_uid;
        // Without the right to execute the bit is one of locks.
        if ((info.st_mode & S_ISGID) && (info.st_mode & S_IXGRP)) group = info.st_gid;
    }
    if (user != static_cast<uid_t>(raw(SYS_getuid)) || group != static_cast<gid_t>(raw(SYS_getgid)))
        return true;
    return raw(SYS_getuid) != 0 && raw(SYS_fgetxattr, fd, "security.capability", nullptr, 0) > 0;
}

bool is_program(const char* path) {
    struct stat info;
    return raw(SYS_newfstatat, AT_FDCWD, path, &info, 0) == 0 && S_ISREG(info.st_mode);
}

/// 1: dynamic native program, 0: cannot be scheduled, -1: not a program by itself (a script, or not
/// readable).
int inspect_elf(int fd, char* head, size_t head_bytes) {
    const long got = raw(SYS_pread64, fd, head, head_bytes, 0);
    if (got < static_cast<long>(sizeof(Elf64_Ehdr)) || std::memcmp(head, ELFMAG, SELFMAG) != 0) return -1;
    Elf64_Ehdr elf;
    std::memcpy(&elf, head, sizeof(elf));
    if (elf.e_ident[EI_CLASS] != ELFCLASS64 || elf.e_machine != EM_X86_64) return 0;
    for (unsigned i = 0; i < elf.e_phnum && i < 64; ++i) {
        Elf64_Phdr ph;
        const long at = static_cast<long>(elf.e_phoff + i * elf.e_phentsize);
        if (raw(SYS_pread64, fd, &ph, sizeof(ph), at) != sizeof(ph)) return 0;
        if (ph.p_type == PT_INTERP) return has_own_loader(fd, ph) ? 1 : 0;
    }
    return 0;
}

}  // namespace

bool is_executable(const char* path) {
    const long rc = raw(SYS_faccessat2, AT_FDCWD, path, X_OK, AT_EACCESS);
    return (rc == -ENOSYS ? raw(SYS_faccessat, AT_FDCWD, path, X_OK) : rc) == 0;
}

bool can_be_scheduled(const char* path) {
    char next[256];
    if (!shim_is_readable()) return false;  // behind a chroot, or for a user who may not read it
    for (int depth = 0; depth < 4; ++depth) {
        const long fd = raw(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
        // Else the kernel will say what is wrong.
        if (fd < 0) return fd != -EACCES || !is_program(path) || !is_executable(path);
        const bool privileged = is_privileged(static_cast<int>(fd));
        char head[256] = {};
        const int kind = inspect_elf(static_cast<int>(fd), head, sizeof(head) - 1);
        raw(SYS_close, fd);
        if (privileged) return false;
        if (kind >= 0) return kind == 1;
        if (head[0] != '#' || head[1] != '!') return true;
        const char* from = head + 2;
        while (*from == ' ' || *from == '\t') ++from;
        size_t n = strcspn(from, " \t\n");
        if (n == 0 || n >= sizeof(next)) return true;
        std::memcpy(next, from, n);
        next[n] = 0;
        path = next;
    }
    return true;
}

int process_behind(int fd) {
    char path[40], text[512];
    snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
    const long info = raw(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
    if (info < 0) return -EBADF;
    const long n = raw(SYS_read, info, text, sizeof(text) - 1);
    raw(SYS_close, info);
    text[n > 0 ? n : 0] = 0;
    const char* line = strstr(text, "\nPid:");
    return line ? atoi(line + 5) : -EBADF;
}

int process_of_folder(int fd) {
    char path[64];
    if (!path_of_descriptor(fd, path, sizeof(path)) || strncmp(path, "/proc/", 6) != 0) return -EBADF;
    char* end = path + 6;
    const long pid = strtol(path + 6, &end, 10);
    if (end != path + 6 && strcmp(end, " (deleted)") == 0) return -1;
    if (end == path + 6 || *end != 0) return -EBADF;
    return raw(SYS_kill, pid, 0) == -ESRCH || is_ended_orphan(static_cast<int>(pid)) ? -1
                                                                                     : static_cast<int>(pid);
}

}  // namespace crane::interpose
