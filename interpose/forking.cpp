// fork and its handlers. A child is in the schedule from the moment of its birth.
#include "interpose/forking.hpp"

#include <cstdlib>
#include <cstring>
#include <optional>

#include "interpose/core/births.hpp"
#include "interpose/core/blocking.hpp"
#include "interpose/core/deaths.hpp"
#include "interpose/core/pauses.hpp"
#include "interpose/core/processes.hpp"
#include "interpose/core/threads.hpp"

namespace crane::interpose {
namespace {

struct ForkHandlers {
    void (*prepare)();
    void (*parent)();
    void (*child)();
    void* owner;  ///< the object that has registered them
};
/// The first have their place: an allocator of the program's own may register its handlers from within its
/// first call, when it cannot be called again.
constexpr size_t kFirstForkHandlers = 64;
ForkHandlers first_fork_handlers[kFirstForkHandlers];
ForkHandlers* fork_handlers = first_fork_handlers;
size_t fork_handler_count = 0, fork_handler_room = kFirstForkHandlers;

bool add_fork_handlers(const ForkHandlers& handlers) {
    if (fork_handler_count == fork_handler_room) {
        const size_t room = 2 * fork_handler_room;
        void* const old = fork_handlers == first_fork_handlers ? nullptr : fork_handlers;
        void* const more = realloc(old, room * sizeof(ForkHandlers));
        if (!more) return false;
        if (!old) memcpy(more, first_fork_handlers, sizeof(first_fork_handlers));
        fork_handlers = static_cast<ForkHandlers*>(more);
        fork_handler_room = room;
    }
    fork_handlers[fork_handler_count++] = handlers;
    return true;
}

bool has_fork_handlers(const void* owner) {
    for (size_t i = 0; i < fork_handler_count; ++i)
        if (fork_handlers[i].owner == owner) return true;
    return false;
}

void drop_fork_handlers(const void* owner) {
    size_t kept = 0;
    for (size_t i = 0; i < fork_handler_count; ++i)
        if (fork_handlers[i].owner != owner) fork_handlers[kept++] = fork_handlers[i];
    fork_handler_count = kept;
}

void reap_children_nobody_waits_for() {
    for (uint32_t i = 0; i < domain().processes_high; ++i) {
        Process& p = domain().processes[i];
        if (p.state != ProcessState::kExited || p.parent != runtime.process_index || !p.unseen) continue;
        reap(p.pid);
        p.state = ProcessState::kFree;
    }
}

/// The program's own rules may end a child by a call that libc's fork() makes in it, before it is in the
/// schedule: the child takes the mark away that its death was expected. Turn in hand.
void await_entry(uint32_t child, int pid) {
    while (__atomic_load_n(&domain().processes[child].death_expected, __ATOMIC_ACQUIRE) != 0) {
        if (const int status = status_of_dead(pid); status >= 0) return bury_process(child, status);
        raw(SYS_sched_yield);
    }
}

/// The number that the descriptor of the child gets, taken before there is one: where there is none to be
/// had, no child is made.
class PlaceForPidfd {
  public:
    explicit PlaceForPidfd(bool wanted) {
        if (!wanted) return;
        fd_ = raw(SYS_pidfd_open, raw(SYS_getpid), 0);
        if (fd_ < 0) error_ = fd_;
    }
    ~PlaceForPidfd() {
        if (fd_ >= 0) raw(SYS_close, fd_);
    }
    PlaceForPidfd(const PlaceForPidfd&) = delete;
    PlaceForPidfd& operator=(const PlaceForPidfd&) = delete;

    long error() const { return error_; }
    /// Nobody else opens anything meanwhile: the number is the same. It is closed by exec, as the kernel's.
    int open(long pid) {
        raw(SYS_close, fd_);
        fd_ = -1;
        const int fd = static_cast<int>(raw(SYS_pidfd_open, pid, 0));
        if (fd >= 0) drop_entry(fd);  // one that libc closed by itself may still have its old meaning
        return fd;
    }

  private:
    long fd_ = -1, error_ = 0;
};

long fork_in_turn(const Birth& birth) {
    Operation turn(Op::kFork, process_key(runtime.process->pid));
    reap_children_nobody_waits_for();
    PlaceForPidfd place(birth.pidfd != nullptr);
    if (const long error = place.error(); error != 0) return error;
    const uint32_t child = make_child();
    if (child == kNone) return -EAGAIN;
    Process& made = domain().processes[child];
    made.end_signal = birth.end_signal;
    if (birth.as_sibling) made.parent = runtime.process->parent;
    made.suspends_maker = birth.suspends;
    const bool judged = runtime.process->judged != Judged::kByNobody;
    made.death_expected = judged;
    const bool begun = begin_birth();
    const long pid = real.fork();
    if (pid == 0) {
        become_child(child);
        keep_only_this_thread();
    } else if (pid < 0) {
        const int error = errno;
        end_birth(begun, 0);
        forget_child(child);
        return -error;
    } else {
        end_birth(begun, pid);
        name_child(child, static_cast<int>(pid));
        if (judged) await_entry(child, static_cast<int>(pid));
        if (birth.pidfd) *birth.pidfd = place.open(pid);
        const uint64_t ordinal = made.ordinal;
        while (made.ordinal == ordinal && made.suspends_maker != 0) turn.wait(maker_key(child));
    }
    return pid;
}

/// The first `handlers` of the program's run in the schedule: before the fork, and after it on both sides,
/// also if there is no child.
long do_fork(size_t handlers, const Birth& birth = {}) {
    trap_loops();
    for (size_t i = handlers; i > 0; --i) {
        if (fork_handlers[i - 1].prepare) fork_handlers[i - 1].prepare();
    }
    const long pid = fork_in_turn(birth);
    for (size_t i = 0; i < handlers; ++i) {
        void (*after)() = pid == 0 ? fork_handlers[i].child : fork_handlers[i].parent;
        if (after) after();
    }
    return pid;
}

}  // namespace
}  // namespace crane::interpose

using namespace crane::interpose;

CRANE_EXPORT int __register_atfork(void (*prepare)(), void (*parent)(), void (*child)(), void* owner) {
    if (!active()) return add_fork_handlers({prepare, parent, child, owner}) ? 0 : ENOMEM;
    Operation turn(Op::kFork, process_key(runtime.process->pid));
    return add_fork_handlers({prepare, parent, child, owner}) ? 0 : ENOMEM;
}

/// Each object calls it as it is unloaded: its functions are gone then.
CRANE_EXPORT void __cxa_finalize(void* object) {
    resolve_real();
    if (object && has_fork_handlers(object)) {
        std::optional<Operation> turn;
        if (active()) turn.emplace(Op::kFork, process_key(runtime.process->pid));
        drop_fork_handlers(object);
    }
    real.__cxa_finalize(object);
}

CRANE_EXPORT pid_t fork() noexcept {
    if (active()) return static_cast<pid_t>(as_libc(do_fork(fork_handler_count)));
    resolve_real();
    for (size_t i = fork_handler_count; i > 0; --i) {
        if (fork_handlers[i - 1].prepare) fork_handlers[i - 1].prepare();
    }
    const pid_t pid = real.fork();
    for (size_t i = 0; i < fork_handler_count; ++i) {
        void (*after)() = pid == 0 ? fork_handlers[i].child : fork_handlers[i].parent;
        if (after) after();
    }
    return pid;
}

namespace crane::interpose {

pid_t fork_as(const Birth& birth) {
    return static_cast<pid_t>(as_libc(do_fork(fork_handler_count, birth)));
}

pid_t fork_without_handlers(const Birth& birth) {
    return static_cast<pid_t>(as_libc(do_fork(0, birth)));
}

}  // namespace crane::interpose

/// Runs no handlers: a signal's handler may call it.
CRANE_EXPORT pid_t _Fork() noexcept {
    return active() ? fork_without_handlers() : fork();
}

// A vfork child may only exec or exit; a forked one may do that too.
CRANE_EXPORT pid_t vfork() noexcept {
    return active() ? fork_without_handlers({.suspends = true}) : fork();
}
