// exec and exit; fork is in forking.cpp, wait in waiting.cpp. Of programs that cannot be scheduled see
// core/opaque.hpp.
#include <alloca.h>

#include <cstdarg>
#include <cstdlib>
#include <cstring>

#include "interpose/alarms.hpp"
#include "interpose/core/blocking.hpp"
#include "interpose/core/environment.hpp"
#include "interpose/core/opaque.hpp"
#include "interpose/core/processes.hpp"
#include "interpose/core/signals.hpp"
#include "interpose/core/tsc.hpp"
#include "interpose/core/user_memory.hpp"

namespace crane::interpose {
namespace {

// --- exec

size_t count_entries(char* const* list) {
    size_t count = 0;
    while (list && list[count]) ++count;
    return count;
}

/// The process leaves the schedule for a program that cannot be in it.
void leave_schedule_for(const char* path) {
    char text[512];
    if (runtime.process->is_main) {
        // The server itself: there is nobody in whose wait it could run, and it would not be scheduled at
        // all.
        snprintf(text, sizeof(text),
                 "the server's launcher ended in %s, which cannot be scheduled (static, Go, setuid or "
                 "foreign): use a dynamically linked build of it",
                 path);
        refuse_domain(text, timebubble::Attachment::kUnfit);
    }
    snprintf(
        text, sizeof(text),
        "%s was started, which cannot be scheduled (static, Go, setuid or foreign): the server stands while "
        "it runs, for %d s of its own at most",
        path, static_cast<int>(kPatienceMs / 1000));
    report(text);
    leave_alarm_to_program(false);
    become_opaque();
}

/// Returns only if it failed.
long enter_program(const char* path, char* const* argv, char* const* environment) {
    // The loader reads the time stamp counter before the new program has a handler.
    remove_tsc_trap();
    const long rc = raw(SYS_execve, path, argv, environment);
    install_tsc_trap();
    return rc;
}

long do_exec(const char* path, char* const* argv, char* const* environment) {
    if (!readable_text(path) || !readable_texts(environment)) return -EFAULT;
    const auto** complete =
        static_cast<const char**>(alloca((count_entries(environment) + kAddedVariables + 1) * sizeof(char*)));
    complete_environment(environment, complete);
    scheduler().get_turn(self.slot);
    if (!can_be_scheduled(path)) {
        const SignalsLeft left = signals_left();
        if (is_executable(path)) leave_schedule_for(path);
        if (!self.active) leave_signals_to_kernel(left);
        strip_environment(environment, complete);
        const long rc = enter_program(path, argv, const_cast<char* const*>(complete));
        if (self.active) return rc;
        raw(SYS_exit_group, 127);
    }
    // The turn is kept over the exec: the new program's shim finds itself holding it.
    const uint32_t before = runtime.process->main_slot;
    runtime.process->main_slot = self.slot;
    leave_alarm_to_program(true);
    const long rc = enter_program(path, argv, const_cast<char* const*>(complete));
    runtime.process->main_slot = before;
    return rc;
}

/// What the kernel does not know how to begin is a script for the shell.
long exec_or_shell(const char* path, char* const* argv, char* const* environment) {
    const long rc = do_exec(path, argv, environment);
    if (rc != -ENOEXEC) return rc;
    const size_t count = count_entries(argv);
    const auto** shell = static_cast<const char**>(alloca((count + 3) * sizeof(char*)));
    shell[0] = "/bin/sh";
    shell[1] = path;
    for (size_t i = 1; i <= count; ++i) shell[i + 1] = argv[i];
    if (count == 0) shell[2] = nullptr;
    return do_exec("/bin/sh", const_cast<char* const*>(shell), environment);
}

long exec_by_search(const char* file, char* const* argv, char* const* environment) {
    if (strchr(file, '/')) return exec_or_shell(file, argv, environment);
    const char* path = getenv("PATH");
    if (!path) path = "/bin:/usr/bin";
    long rc = -ENOENT;
    bool denied = false;
    char candidate[4096];
    for (;;) {
        const char* end = strchrnul(path, ':');
        const size_t n = static_cast<size_t>(end - path);
        if (n + strlen(file) + 2 <= sizeof(candidate)) {
            std::memcpy(candidate, path, n);
            candidate[n] = '/';
            strcpy(candidate + n + (n ? 1 : 0), file);
            rc = exec_or_shell(candidate, argv, environment);
            if (rc == -EACCES) denied = true;
            if (rc != -ENOENT && rc != -ENOTDIR && rc != -EACCES) return rc;
        }
        if (*end == 0) break;
        path = end + 1;
    }
    return denied ? -EACCES : rc;
}

/// Collects the variadic arguments of execl and its kin; returns how many, the first included.
size_t gather(const char* first, va_list list, const char** argv, size_t room) {
    size_t count = 0;
    argv[count++] = first;
    while (first && count < room) {
        const char* next = va_arg(list, const char*);
        argv[count++] = next;
        if (!next) break;
    }
    return count;
}

constexpr size_t kMaxListedArguments = 4096;

}  // namespace
}  // namespace crane::interpose

using namespace crane::interpose;

CRANE_EXPORT int execve(const char* path, char* const argv[], char* const environment[]) noexcept {
    if (!active()) return resolve_real(), real.execve(path, argv, environment);
    return static_cast<int>(as_libc(do_exec(path, argv, environment)));
}

CRANE_EXPORT int execv(const char* path, char* const argv[]) noexcept {
    return execve(path, argv, environ);
}

CRANE_EXPORT int execvpe(const char* file, char* const argv[], char* const environment[]) noexcept {
    if (!active()) return resolve_real(), real.execvpe(file, argv, environment);
    return static_cast<int>(as_libc(exec_by_search(file, argv, environment)));
}

CRANE_EXPORT int execvp(const char* file, char* const argv[]) noexcept {
    return execvpe(file, argv, environ);
}

CRANE_EXPORT int execl(const char* path, const char* first, ...) noexcept {
    const char* argv[kMaxListedArguments];
    va_list list;
    va_start(list, first);
    gather(first, list, argv, kMaxListedArguments);
    va_end(list);
    return execve(path, const_cast<char* const*>(argv), environ);
}

CRANE_EXPORT int execlp(const char* file, const char* first, ...) noexcept {
    const char* argv[kMaxListedArguments];
    va_list list;
    va_start(list, first);
    gather(first, list, argv, kMaxListedArguments);
    va_end(list);
    return execvpe(file, const_cast<char* const*>(argv), environ);
}

CRANE_EXPORT int execle(const char* path, const char* first, ...) noexcept {
    const char* argv[kMaxListedArguments];
    va_list list;
    va_start(list, first);
    gather(first, list, argv, kMaxListedArguments);
    char* const* environment = va_arg(list, char* const*);
    va_end(list);
    return execve(path, const_cast<char* const*>(argv), environment);
}

CRANE_EXPORT int fexecve(int fd, char* const argv[], char* const environment[]) noexcept {
    char path[32];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    return execve(path, argv, environment);
}

CRANE_EXPORT void _exit(int code) {
    if (!active()) {
        raw(SYS_exit_group, code);
        __builtin_unreachable();
    }
    leave(code);
}

CRANE_EXPORT void _Exit(int code) noexcept {
    _exit(code);
}
