#include "interpose/core/trace.hpp"

#include <fcntl.h>

#include <cstring>

#include "interpose/core/environment.hpp"
#include "interpose/core/fds.hpp"
#include "interpose/core/runtime.hpp"

namespace crane::interpose {

namespace {

constexpr size_t kMostPathBytes = 4096;
constexpr int kAppend = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC;

/// False: too long.
bool find_path(char** environment, const char* wanted, const char* suffix, char (&path)[kMostPathBytes]) {
    const char* folder = wanted[0] == '/' ? "" : find_variable(environment, "CRANE_TRANSPORT");
    const size_t bytes = strlen(folder) + 1 + strlen(wanted) + strlen(suffix) + 1;
    if (bytes > kMostPathBytes) return false;
    char* end = stpcpy(path, folder);
    if (*folder) *end++ = '/';
    stpcpy(stpcpy(end, wanted), suffix);
    return true;
}

void append_maps(const char* path) {
    const auto from = static_cast<int>(raw(SYS_openat, AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC, 0));
    const auto to = static_cast<int>(raw(SYS_openat, AT_FDCWD, path, kAppend, 0666));
    char text[4096];
    while (from >= 0 && to >= 0) {
        const long got = raw(SYS_read, from, text, sizeof(text));
        if (got <= 0) break;
        raw(SYS_write, to, text, got);
    }
    if (from >= 0) raw(SYS_close, from);
    if (to >= 0) raw(SYS_close, to);
}

}  // namespace

void open_trace(char** environment) {
    const char* wanted = find_variable(environment, "CRANE_TRACE");
    if (!wanted) return;
    char path[kMostPathBytes];
    if (find_path(environment, wanted, ".maps", path)) append_maps(path);
    runtime.trace_fd = reserved_fd(kTracePlace);
    // Kept over an exec: this user might not be allowed to open it.
    if (raw(SYS_fcntl, runtime.trace_fd, F_GETFD) >= 0) return;
    const long fd = find_path(environment, wanted, "", path)
                        ? raw(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND, 0666)
                        : -ENAMETOOLONG;
    if (fd < 0 || raw(SYS_dup3, fd, runtime.trace_fd, 0) != runtime.trace_fd)
        refuse_domain("cannot open the file that CRANE_TRACE names");
    raw(SYS_close, fd);
}

}  // namespace crane::interpose
