#include "interpose/core/fds.hpp"

#include "interpose/core/epolls.hpp"
#include "interpose/core/file_locks.hpp"
#include "interpose/core/opaque.hpp"
#include "interpose/core/signal_fds.hpp"
#include "interpose/core/sockets.hpp"
#include "interpose/core/standard_streams.hpp"
#include "interpose/core/terminals.hpp"
#include "interpose/core/timers.hpp"

namespace crane::interpose {

namespace {

bool in_range(int fd) {
    return fd >= 0 && static_cast<size_t>(fd) < kMaxFds;
}

FdEntry noted(FdKind kind, uint8_t flags, uint32_t object) {
    return {kind, flags, static_cast<uint16_t>(++runtime.process->fds_noted), object};
}

/// For something to be noted there.
FdEntry& place(int fd) {
    Process& p = *runtime.process;
    if (static_cast<uint32_t>(fd) >= p.fds_end) p.fds_end = static_cast<uint32_t>(fd) + 1;
    return p.fds[fd];
}

/// Not by isatty(): its call would come back here as a trapped one.
bool is_terminal(int fd) {
    constexpr size_t kMostBytes = 256;  // the kernel's termios has fewer
    char settings[kMostBytes];
    return raw(SYS_ioctl, fd, TCGETS, settings) == 0;
}

void classify(int fd) {
    struct stat info;
    if (raw(SYS_fstat, fd, &info) != 0) return;
    const mode_t type = info.st_mode & S_IFMT;
    const bool terminal = type == S_IFCHR && is_terminal(fd);
    const bool stream = type == S_IFIFO || type == S_IFSOCK || type == 0 || terminal;
    // Type 0: anonymous inodes (eventfd, inotify, pidfd).
    const uint8_t flags = terminal ? kFdTerminal : type == 0 ? kFdCounter : uint8_t{0};
    place(fd) = noted(stream ? FdKind::kStream : FdKind::kPlain, flags, 0);
    if (terminal) note_terminal();
    serve_standard_entry(fd);
}

}  // namespace

void serve_standard_entry(int fd) {
    if (fd < 0 || fd > 2) return;
    const FdKind kind = runtime.process->fds[fd].kind;
    if (kind == FdKind::kStream || kind == FdKind::kSocket) serve_standard_stream(fd);
}

FdEntry* fd_entry(int fd) {
    if (!in_range(fd)) return nullptr;
    FdEntry& entry = runtime.process->fds[fd];
    if (entry.kind == FdKind::kUnknown) classify(fd);
    return &entry;
}

void set_entry(int fd, FdKind kind, uint32_t object) {
    if (!in_range(fd)) {
        refuse_call("a descriptor number of 32768 or more");
        static_assert(kMaxFds == 32768);
        return;
    }
    place(fd) = noted(kind, 0, object);
    serve_standard_entry(fd);
}

void set_stream(int fd, int second) {
    const uint32_t number = static_cast<uint32_t>(++domain().streams_made);
    set_entry(fd, FdKind::kStream, number);
    if (second >= 0) set_entry(second, FdKind::kStream, number);
}

void add_reference(const FdEntry& entry) {
    if (entry.kind == FdKind::kSocket) ++domain().sockets[entry.object].references;
    if (entry.kind == FdKind::kEpoll) ++domain().epolls[entry.object].references;
    if (entry.kind == FdKind::kTimer) ++domain().timers[entry.object].references;
    if (entry.kind == FdKind::kSignals) ++domain().signal_fds[entry.object].references;
}

void copy_entry(int fd, int copy) {
    if (!in_range(copy)) return;
    const FdEntry* from = fd_entry(fd);
    if (!from) return;
    place(copy) = noted(from->kind, from->flags, from->object);
    serve_standard_entry(copy);
    add_reference(*from);
}

void adopt_entry(int fd, const FdEntry& meaning) {
    if (!in_range(fd)) return;
    place(fd) = noted(meaning.kind, meaning.flags, meaning.object);
    add_reference(meaning);
}

void drop_entry(FdEntry& entry) {
    const FdEntry old = entry;
    entry = {};
    if (old.kind == FdKind::kSocket) release_socket(old.object);
    if (old.kind == FdKind::kEpoll) release_epoll(old.object);
    if (old.kind == FdKind::kTimer) release_timer(old.object);
    if (old.kind == FdKind::kSignals) release_signal_fd(old.object);
    if (old.kind == FdKind::kStream) all_streams_event();
    if (old.kind == FdKind::kStream && (old.flags & kFdTerminal)) {
        domain().terminals_closed = 1;
        runtime.process->attention = 1;  // for who looks at the end of the operation
    }
    // However it is closed: by fclose, dup2, exec.
    if (old.kind == FdKind::kPlain) file_lock_event();
}

void drop_entry(int fd) {
    if (in_range(fd)) drop_entry(runtime.process->fds[fd]);
}

int new_placeholder(bool close_on_exec) {
    // One idle socket stands behind all of them: whatever reaches the kernel by mistake fails with ENOTCONN
    // or EPIPE.
    const long fd = raw(SYS_fcntl, runtime.placeholder_fd, close_on_exec ? F_DUPFD_CLOEXEC : F_DUPFD, 0);
    if (fd >= 0) return static_cast<int>(fd);
    errno = static_cast<int>(-fd);
    return -1;
}

void stream_event(const FdEntry& entry) {
    if (__builtin_expect(domain().opaque_processes != 0, 0)) {
        // It may be what an opaque process waits for, and then that one acts on others.
        settle_opaque();
        wake_parents_of_opaque();
        all_streams_event();
        return;
    }
    // Number 0: made elsewhere, its other end is not known.
    if (entry.object == 0) {
        all_streams_event();
    } else {
        scheduler().signal_set(stream_bit(entry) | set_bit(ObjectKind::kStream, 0));
        kernel_stream_event(stream_bit(entry));
    }
}

void all_streams_event() {
    scheduler().signal_set(~uint64_t{0});
    kernel_stream_event(~uint64_t{0});
}

}  // namespace crane::interpose
