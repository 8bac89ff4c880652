// posix_spawn, daemon, forkpty: libc's own fork and wait inside the library, where no wrapper sees them.
// Written here on top of the wrapped calls.
#include <pty.h>
#include <utmp.h>

#include "interpose/core/runtime.hpp"
#include "interpose/core/uncancelled.hpp"
#include "interpose/forking.hpp"

namespace crane::interpose {
namespace {

/// glibc's record of one file action (sysdeps, spawn_int.h); the public type only points to it.
struct FileAction {
    enum Tag { kClose, kDup2, kOpen, kChdir, kFchdir, kCloseFrom, kSetTerminal } tag;
    union {
        struct {
            int fd;
        } close;
        struct {
            int fd, copy;
        } dup2;
        struct {
            int fd;
            char* path;
            int flags;
            mode_t mode;
        } open;
        struct {
            char* path;
        } chdir;
    };
};

int act(const FileAction& action) {
    switch (action.tag) {
        case FileAction::kClose:
            close(action.close.fd);
            return 0;
        case FileAction::kDup2:
            if (action.dup2.fd == action.dup2.copy) return fcntl(action.dup2.fd, F_SETFD, 0) == 0 ? 0 : errno;
            return dup2(action.dup2.fd, action.dup2.copy) >= 0 ? 0 : errno;
        case FileAction::kOpen: {
            const int fd = open(action.open.path, action.open.flags, action.open.mode);
            if (fd < 0) return errno;
            if (fd == action.open.fd) return 0;
            const bool moved = dup2(fd, action.open.fd) >= 0;
            const int error = errno;
            close(fd);
            return moved ? 0 : error;
        }
        case FileAction::kChdir:
            return chdir(action.chdir.path) == 0 ? 0 : errno;
        case FileAction::kFchdir:
            return fchdir(action.close.fd) == 0 ? 0 : errno;
        case FileAction::kCloseFrom:
            closefrom(action.close.fd);
            return 0;
        case FileAction::kSetTerminal:
            return tcsetpgrp(action.close.fd, getpgrp()) == 0 ? 0 : errno;
    }
    return EINVAL;
}

int apply_attributes(const posix_spawnattr_t* attributes) {
    if (!attributes) return 0;
    short flags = 0;
    posix_spawnattr_getflags(attributes, &flags);
    sigset_t set;
    if (flags & POSIX_SPAWN_SETSIGDEF) {
        posix_spawnattr_getsigdefault(attributes, &set);
        for (int number = 1; number < kSignals; ++number) {
            if (sigismember(&set, number) == 1) signal(number, SIG_DFL);
        }
    }
    if (flags & POSIX_SPAWN_SETSIGMASK) {
        posix_spawnattr_getsigmask(attributes, &set);
        sigprocmask(SIG_SETMASK, &set, nullptr);
    }
    if ((flags & POSIX_SPAWN_SETSID) && setsid() < 0) return errno;
    if (flags & POSIX_SPAWN_SETPGROUP) {
        pid_t group = 0;
        posix_spawnattr_getpgroup(attributes, &group);
        if (setpgid(0, group) != 0) return errno;
    }
    if ((flags & POSIX_SPAWN_RESETIDS) && (setgid(getgid()) != 0 || setuid(getuid()) != 0)) return errno;
    return 0;
}

/// The thread that began it sleeps until the child executes its program or ends.
class Maker {
  public:
    Maker() { domain().threads[self.slot].spawn_error = 0; }
    int told() const { return domain().threads[self.slot].spawn_error; }
    /// Why there is no program. By the child, whose maker's process may have been killed meanwhile.
    void tell(int error) const {
        const Operation turn(Op::kFork, process_key(runtime.process->pid));
        if (scheduler().slot(slot_).generation == generation_) domain().threads[slot_].spawn_error = error;
    }

  private:
    dmt::SlotId slot_ = self.slot;
    uint32_t generation_ = self.generation;
};

[[noreturn]] void run_child(const Maker& maker, const char* path, const posix_spawn_file_actions_t* actions,
                            const posix_spawnattr_t* attributes, char* const* argv, char* const* environment,
                            bool search) {
    int error = apply_attributes(attributes);
    const auto* list = actions ? reinterpret_cast<const FileAction*>(actions->__actions) : nullptr;
    for (int i = 0; error == 0 && list && i < actions->__used; ++i) error = act(list[i]);
    if (error == 0) {
        if (search) {
            execvpe(path, argv, environment);
        } else {
            execve(path, argv, environment);
        }
        error = errno;
    }
    maker.tell(error);
    _exit(127);
}

int spawn(pid_t* pid, const char* path, const posix_spawn_file_actions_t* actions,
          const posix_spawnattr_t* attributes, char* const* argv, char* const* environment, bool search) {
    const Uncancelled whole;
    const Maker maker;
    const pid_t child = fork_without_handlers({.suspends = true});
    if (child == 0) run_child(maker, path, actions, attributes, argv, environment, search);
    if (child < 0) return errno;
    const int error = maker.told();
    while (error != 0 && waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
    }
    if (error == 0 && pid) *pid = child;
    return error;
}

}  // namespace
}  // namespace crane::interpose

using namespace crane::interpose;

CRANE_EXPORT int posix_spawn(pid_t* pid, const char* path, const posix_spawn_file_actions_t* actions,
                             const posix_spawnattr_t* attributes, char* const argv[],
                             char* const environment[]) {
    if (!active()) return resolve_real(), real.posix_spawn(pid, path, actions, attributes, argv, environment);
    return spawn(pid, path, actions, attributes, argv, environment, false);
}

CRANE_EXPORT int posix_spawnp(pid_t* pid, const char* file, const posix_spawn_file_actions_t* actions,
                              const posix_spawnattr_t* attributes, char* const argv[],
                              char* const environment[]) {
    if (!active())
        return resolve_real(), real.posix_spawnp(pid, file, actions, attributes, argv, environment);
    return spawn(pid, file, actions, attributes, argv, environment, true);
}

/// libc's own calls inside itself, where no wrapper sees them, are not all trapped (--backstop off).
CRANE_EXPORT int tcsetpgrp(int fd, pid_t group) noexcept {
    return ioctl(fd, TIOCSPGRP, &group);
}

CRANE_EXPORT int login_tty(int fd) noexcept {
    setsid();
    if (ioctl(fd, TIOCSCTTY, nullptr) < 0) return -1;
    for (int standard = 0; standard < 3; ++standard) dup2(fd, standard);
    if (fd > 2) close(fd);
    return 0;
}

// libc's own forks inside itself, where its locks are held already.
CRANE_EXPORT int forkpty(int* primary, char* name, const termios* settings, const winsize* size) noexcept {
    if (!active()) return resolve_real(), real.forkpty(primary, name, settings, size);
    int own = -1, terminal = -1;
    if (openpty(&own, &terminal, name, settings, size) != 0) return -1;
    const pid_t child = fork();
    if (child == 0) {
        close(own);
        if (login_tty(terminal) != 0) _exit(1);
        return 0;
    }
    const int error = errno;
    close(terminal);
    if (child > 0) {
        *primary = own;
        return child;
    }
    close(own);
    errno = error;
    return -1;
}

CRANE_EXPORT int daemon(int no_chdir, int no_close) noexcept {
    if (!active()) return resolve_real(), real.daemon(no_chdir, no_close);
    const pid_t child = fork();
    if (child < 0) return -1;
    if (child > 0) _exit(0);
    if (setsid() < 0) return -1;
    if (!no_chdir && chdir("/") != 0) return -1;
    if (!no_close) {
        const int null = open("/dev/null", O_RDWR);
        if (null < 0) return -1;
        for (int fd = 0; fd < 3; ++fd) dup2(null, fd);
        if (null > 2) close(null);
    }
    return 0;
}
