// system, popen, pclose: commands that a shell runs. libc's fork and wait are inside the library, where no
// wrapper sees them, so they are written here on top of the wrapped calls.
#include "interpose/commands.hpp"

#include <paths.h>
#include <sys/wait.h>

#include <cstdlib>
#include <cstring>

#include "interpose/core/runtime.hpp"
#include "interpose/core/uncancelled.hpp"
#include "interpose/forking.hpp"

namespace crane::interpose {
namespace {

[[noreturn]] void run_shell(const char* command) {
    execl(_PATH_BSHELL, "sh", "-c", command, static_cast<char*>(nullptr));
    _exit(127);
}

// --- system

/// What SIGINT and SIGQUIT did before the first of the commands that run now.
struct Ignored {
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    unsigned commands = 0;
    struct sigaction interrupt, quit;
};
Ignored ignored;

/// A command that system() waits for: the terminal's signals are the command's meanwhile, and SIGCHLD comes
/// when it is over. One whose thread is cancelled is killed.
class Command {
  public:
    Command() {
        struct sigaction ignore {};
        ignore.sa_handler = SIG_IGN;
        ::pthread_mutex_lock(&ignored.lock);
        if (ignored.commands++ == 0) {
            sigaction(SIGINT, &ignore, &ignored.interrupt);
            sigaction(SIGQUIT, &ignore, &ignored.quit);
        }
        ::pthread_mutex_unlock(&ignored.lock);
        sigset_t children;
        sigemptyset(&children);
        sigaddset(&children, SIGCHLD);
        sigprocmask(SIG_BLOCK, &children, &mask_);
    }
    ~Command() {
        if (child_ > 0) {
            const Uncancelled whole;
            kill(child_, SIGKILL);
            wait();
        }
        ::pthread_mutex_lock(&ignored.lock);
        if (--ignored.commands == 0) restore_signals();
        ::pthread_mutex_unlock(&ignored.lock);
        sigprocmask(SIG_SETMASK, &mask_, nullptr);
    }
    Command(const Command&) = delete;
    Command& operator=(const Command&) = delete;

    /// As waitpid() tells it; -1: with errno.
    int run(const char* command) {
        child_ = fork_without_handlers();
        if (child_ == 0) {
            restore_signals();
            sigprocmask(SIG_SETMASK, &mask_, nullptr);
            run_shell(command);
        }
        return wait();
    }

  private:
    static void restore_signals() {
        sigaction(SIGINT, &ignored.interrupt, nullptr);
        sigaction(SIGQUIT, &ignored.quit, nullptr);
    }
    int wait() {
        int status = -1;
        while (child_ > 0) {
            const pid_t ended = waitpid(child_, &status, 0);
            if (ended < 0 && errno == EINTR) continue;
            if (ended < 0) status = -1;
            child_ = -1;
        }
        return status;
    }

    pid_t child_ = -1;
    sigset_t mask_;
};

// --- popen

struct Popened {
    FILE* stream;
    pid_t pid;
};
constexpr size_t kMaxPopened = 1024;
Popened popened[kMaxPopened];
uint32_t popened_count = 0;

Popened* popened_slot(FILE* stream) {
    if (!stream || __atomic_load_n(&popened_count, __ATOMIC_ACQUIRE) == 0) return nullptr;
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
        __atomic_fetch_add(&popened_count, 1, __ATOMIC_ACQ_REL);
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
    run_shell(command);
}

}  // namespace

pid_t forget_popened(FILE* stream) {
    Popened* slot = popened_slot(stream);
    if (!slot) return 0;
    const pid_t child = slot->pid;
    __atomic_fetch_sub(&popened_count, 1, __ATOMIC_ACQ_REL);
    __atomic_store_n(&slot->stream, nullptr, __ATOMIC_RELEASE);
    return child;
}

int wait_for_popened(pid_t child) {
    const Uncancelled whole;
    int status = -1;
    while (waitpid(child, &status, 0) < 0) {
        if (errno != EINTR) return -1;
    }
    return status;
}

}  // namespace crane::interpose

using namespace crane::interpose;

CRANE_EXPORT int system(const char* command) {
    if (!active()) return resolve_real(), real.system(command);
    return command ? Command().run(command) : 1;
}

CRANE_EXPORT FILE* popen(const char* command, const char* mode) {
    if (!active()) return resolve_real(), real.popen(command, mode);
    const bool reads = strchr(mode, 'r');
    if (reads == (strchr(mode, 'w') != nullptr) || mode[strspn(mode, "rwe")]) {
        errno = EINVAL;
        return nullptr;
    }
    const Uncancelled whole;
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) != 0) return nullptr;
    const int mine = reads ? fds[0] : fds[1], theirs = reads ? fds[1] : fds[0];
    const pid_t child = fork_without_handlers();
    if (child == 0) run_popened(theirs, reads, command);
    close(theirs);
    FILE* stream = child > 0 ? fdopen(mine, reads ? "r" : "w") : nullptr;
    if (!stream) {
        close(mine);
        return nullptr;
    }
    if (!strchr(mode, 'e')) fcntl(mine, F_SETFD, 0);
    if (!keep_popened(stream, child)) {
        fclose(stream);
        wait_for_popened(child);
        errno = EMFILE;
        return nullptr;
    }
    return stream;
}

CRANE_EXPORT int pclose(FILE* stream) {
    if (!active()) return resolve_real(), real.pclose(stream);
    return fclose(stream);  // as libc's: what popen() has made waits for its command, whoever closes it
}
