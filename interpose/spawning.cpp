// posix_spawn, system, popen, daemon, forkpty: libc's own fork and wait inside the library, where no wrapper
// sees them. Written here on top of the wrapped calls.
#include <paths.h>
#include <pty.h>
#include <utmp.h>

#include <cstdlib>
#include <cstring>

#include "interpose/core/runtime.hpp"

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

[[noreturn]] void run_child(int error_pipe, const char* path, const posix_spawn_file_actions_t* actions,
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
    (void)!write(error_pipe, &error, sizeof(error));
    _exit(127);
}

/// What is made of calls that a thread can be cancelled in, and is none itself.
class Uncancelled {
  public:
    Uncancelled() { ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
    ~Uncancelled() { ::pthread_setcancelstate(before_, nullptr); }
    Uncancelled(const Uncancelled&) = delete;
    Uncancelled& operator=(const Uncancelled&) = delete;

  private:
    int before_ = PTHREAD_CANCEL_ENABLE;
};

int spawn(pid_t* pid, const char* path, const posix_spawn_file_actions_t* actions,
          const posix_spawnattr_t* attributes, char* const* argv, char* const* environment, bool search) {
    const Uncancelled whole;
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) != 0) return errno;
    // Out of the way of the numbers that file actions name.
    const int error_pipe = fcntl(fds[1], F_DUPFD_CLOEXEC, 256);
    close(fds[1]);
    const pid_t child = fork();
    if (child == 0) run_child(error_pipe, path, actions, attributes, argv, environment, search);
    const int fork_error = errno;
    close(error_pipe);
    int error = child < 0 ? fork_error : 0;
    // Ends when the exec closes the other end, or brings the reason why there was none.
    ssize_t got = 0;
    while (child > 0 && (got = read(fds[0], &error, sizeof(error))) < 0 && errno == EINTR) {
    }
    if (child > 0 && got != sizeof(error)) error = 0;
    close(fds[0]);
    while (child > 0 && error != 0 && waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
    }
    if (error == 0 && pid) *pid = child;
    return error;
}

// --- popen

struct Popened {
    FILE* stream;
    pid_t pid;
};
constexpr size_t kMaxPopened = 64;
Popened popened[kMaxPopened];

Popened* popened_slot(FILE* stream) {
    for (Popened& p : popened)
        if (__atomic_load_n(&p.stream, __ATOMIC_ACQUIRE) == stream) return &p;
    return nullptr;
}

/// False: too many.
bool keep_popened(FILE* stream, pid_t child) {
    for (Popened& p : popened) {
        FILE* none = nullptr;
        if (!__atomic_compare_exchange_n(&p.stream, &none, stream, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
            continue;
        p.pid = child;
        return true;
    }
    return false;
}

[[noreturn]] void run_popened(int theirs, bool reads, const char* command) {
    // Of what was opened before: who reads there shall see its end.
    for (const Popened& p : popened)
        if (p.stream) close(fileno(p.stream));
    const int end = reads ? 1 : 0;
    if (theirs == end ? fcntl(end, F_SETFD, 0) < 0 : dup2(theirs, end) < 0) _exit(127);
    execl(_PATH_BSHELL, "sh", "-c", command, static_cast<char*>(nullptr));
    _exit(127);
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

CRANE_EXPORT int system(const char* command) {
    if (!active()) return resolve_real(), real.system(command);
    if (!command) return 1;
    struct sigaction ignore {
    }, old_int{}, old_quit{};
    ignore.sa_handler = SIG_IGN;
    sigaction(SIGINT, &ignore, &old_int);
    sigaction(SIGQUIT, &ignore, &old_quit);
    sigset_t block, before;
    sigemptyset(&block);
    sigaddset(&block, SIGCHLD);
    sigprocmask(SIG_BLOCK, &block, &before);
    int status = -1;
    const pid_t child = fork();
    if (child == 0) {
        sigaction(SIGINT, &old_int, nullptr);
        sigaction(SIGQUIT, &old_quit, nullptr);
        sigprocmask(SIG_SETMASK, &before, nullptr);
        execl(_PATH_BSHELL, "sh", "-c", command, static_cast<char*>(nullptr));
        _exit(127);
    }
    while (child > 0 && waitpid(child, &status, 0) < 0) {
        if (errno != EINTR) {
            status = -1;
            break;
        }
    }
    sigaction(SIGINT, &old_int, nullptr);
    sigaction(SIGQUIT, &old_quit, nullptr);
    sigprocmask(SIG_SETMASK, &before, nullptr);
    return status;
}

CRANE_EXPORT FILE* popen(const char* command, const char* mode) {
    if (!active()) return resolve_real(), real.popen(command, mode);
    const bool reads = mode[0] == 'r';
    if (!reads && mode[0] != 'w') {
        errno = EINVAL;
        return nullptr;
    }
    if (!popened_slot(nullptr)) {
        errno = EMFILE;
        return nullptr;
    }
    const Uncancelled whole;
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) != 0) return nullptr;
    const int mine = reads ? fds[0] : fds[1], theirs = reads ? fds[1] : fds[0];
    const pid_t child = fork();
    if (child == 0) run_popened(theirs, reads, command);
    close(theirs);
    FILE* stream = child > 0 ? fdopen(mine, reads ? "r" : "w") : nullptr;
    if (!stream) {
        close(mine);
        return nullptr;
    }
    if (!strchr(mode, 'e')) fcntl(mine, F_SETFD, 0);
    if (!keep_popened(stream, child)) {  // others were quicker
        fclose(stream);
        while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
        }
        errno = EMFILE;
        return nullptr;
    }
    return stream;
}

CRANE_EXPORT int pclose(FILE* stream) {
    Popened* slot = popened_slot(stream);
    if (!active() || !stream || !slot) return resolve_real(), real.pclose(stream);
    const pid_t child = slot->pid;
    __atomic_store_n(&slot->stream, nullptr, __ATOMIC_RELEASE);
    const int fd = fileno(stream);
    const int keep = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    fclose(stream);
    close(fd);
    close(keep);
    int status = -1;
    while (waitpid(child, &status, 0) < 0) {
        if (errno != EINTR) return -1;
    }
    return status;
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
