// Files in memory that stand for those of /proc and /sys: filled once, and then to be read alone.
#pragma once

#include <fcntl.h>
#include <linux/memfd.h>

#include <cerrno>
#include <cstdio>

#include "interpose/core/text.hpp"

namespace crane::interpose {

/// The kernel opens a file in memory for writing, too. A program may ask how its descriptor was opened, and
/// must not come to write what it has opened for reading. Where there is no /proc, or no further descriptor,
/// it stays as it is.
inline void make_read_only(int fd, int close_on_exec) {
    char link[32];
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    const long again = raw(SYS_openat, AT_FDCWD, link, O_RDONLY | O_CLOEXEC, 0);
    if (again < 0) return;
    raw(SYS_dup3, again, fd, close_on_exec);
    raw(SYS_close, again);
}

/// A descriptor of a file of this name with what write(Text&) puts there; negative: -errno.
template <typename Write>
long open_memory_file(const char* name, bool close_on_exec, Write write) {
    const long fd = raw(SYS_memfd_create, name, close_on_exec ? MFD_CLOEXEC : 0);
    if (fd < 0) return fd == -1 ? -ENFILE : fd;
    {
        Text out(static_cast<int>(fd));
        write(out);
    }
    raw(SYS_lseek, fd, 0, SEEK_SET);
    make_read_only(static_cast<int>(fd), close_on_exec ? O_CLOEXEC : 0);
    return fd;
}

}  // namespace crane::interpose
