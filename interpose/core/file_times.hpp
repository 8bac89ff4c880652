// Times of files that the domain changes, from the virtual clock.
//
// The kernel stamps a change with its own clock, the same on mtime and ctime. A file whose mtime and ctime
// are equal and later than the domain's start was therefore changed by the domain and not stamped since: it
// is given the virtual time when it is closed, or else when someone first looks at it. Setting an mtime moves
// ctime alone, which is how "stamped" is remembered: by the file system, for all processes, at no cost.
// What the program is shown as ctime is the mtime, or the time of a later change that was no write
// (core/file_identity.hpp); the atime that it has not set is the mtime.
#pragma once

#include <sys/stat.h>

#include "interpose/core/runtime.hpp"

namespace crane::interpose {

/// FdEntry::flags: the file behind the descriptor was written.
constexpr uint8_t kFdWritten = 1;
/// A stdio stream over it reads and writes through the wrappers (files.cpp).
constexpr uint8_t kFdCookie = 2;

/// The file behind `fd` is being written: its time will be set before anyone can see it. Cheap when noted
/// already.
inline void note_file_write(int fd) {
    if (fd < 0 || static_cast<size_t>(fd) >= kMaxFds) return;
    Process& p = *runtime.process;
    if (static_cast<uint32_t>(fd) >= p.fds_end) p.fds_end = static_cast<uint32_t>(fd) + 1;
    p.fds[fd].flags |= kFdWritten;
}
/// The descriptor is about to be closed: stamps the file if it was written.
void settle_file_times(int fd);

/// Before an operation that moves ctime alone (chmod, link, …): the change before it would be forgotten.
/// With an empty path: the file behind `fd`.
void settle_path(int fd, const char* path, bool follow);
/// The real mtime as it is to be shown; stamps the file if it must. (fd, path, at_flags) name it.
statx_timestamp settled_mtime(const struct statx& info, int fd, const char* path, int at_flags);

/// Keeps the kernel's time of now, or of the first of the servers that had these files, as the domain's
/// start. Called once, by the domain's first process.
void remember_real_start();

}  // namespace crane::interpose
