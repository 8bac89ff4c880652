// inotify: made and changed in turn, read as the kernel's other streams (core/watched_files.hpp).
#include <sys/inotify.h>

#include "interpose/core/blocking.hpp"
#include "interpose/core/objects.hpp"
#include "interpose/core/shared_operation.hpp"
#include "interpose/core/watched_files.hpp"

using namespace crane::interpose;

CRANE_EXPORT int inotify_init1(int flags) noexcept {
    if (!active()) return static_cast<int>(as_libc(raw(SYS_inotify_init1, flags)));
    SharedOperation turn(Op::kFile, files_key());
    const long fd = raw(SYS_inotify_init1, flags);
    if (fd >= 0) note_watches(static_cast<int>(fd));
    return static_cast<int>(as_libc(fd));
}

CRANE_EXPORT int inotify_init() noexcept {
    return inotify_init1(0);
}

CRANE_EXPORT int inotify_add_watch(int fd, const char* path, uint32_t mask) noexcept {
    if (!active()) return static_cast<int>(as_libc(raw(SYS_inotify_add_watch, fd, path, mask)));
    SharedOperation turn(Op::kFile, files_key());
    const long watch = raw(SYS_inotify_add_watch, fd, path, mask);
    if (watch >= 0) note_watched(path, mask);
    return static_cast<int>(as_libc(watch));
}

CRANE_EXPORT int inotify_rm_watch(int fd, int watch) noexcept {
    if (!active()) return static_cast<int>(as_libc(raw(SYS_inotify_rm_watch, fd, watch)));
    SharedOperation turn(Op::kFile, files_key());
    return static_cast<int>(as_libc(raw(SYS_inotify_rm_watch, fd, watch)));
}
