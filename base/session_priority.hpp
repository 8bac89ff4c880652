// Where the kernel shares processors among sessions first (autogroup, the default of most), the nice value of
// a process counts only against its own session: what shall come before or after other sessions needs one of
// its own, and this.
#pragma once

#include <fcntl.h>
#include <sys/types.h>
#include <unistd.h>

#include <string>

namespace crane {

/// Sets the nice value of the session of `pid` as a whole. Where there are no such groups, or it is refused,
/// nothing changes: only how soon something is done depends on it.
inline void set_session_nice(pid_t pid, int nice) {
    const std::string path = "/proc/" + std::to_string(pid) + "/autogroup";
    const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
    if (fd < 0) return;
    const std::string value = std::to_string(nice);
    [[maybe_unused]] const ssize_t written = ::write(fd, value.data(), value.size());
    ::close(fd);
}

}  // namespace crane
