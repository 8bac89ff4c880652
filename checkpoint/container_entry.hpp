// How a process of the host gets into a container for a while and leaves no trace there: in its namespaces
// and cgroups, with a pid that the server's own numbering never meets.
#pragma once

#include <sys/types.h>

#include <string>

namespace crane::checkpoint {

/// Makes the calling process (which has one thread) one of the container's cgroups, those that it can find:
/// what it starts there is bounded as the server is. `init` is pid 1 of the container as the host numbers it.
void join_cgroups_of(pid_t init);

/// Makes this process enter the namespaces of `init`, but for that of System V IPC, and forks into them.
/// Returns in the child 0 and in the parent the child's pid; -1 with what went wrong. The child's own pid is
/// high.
pid_t fork_into_container(pid_t init, std::string* error);

/// The number after which the pid namespace looks for the next free pid. To be opened on the host, where
/// /proc can be written, and used inside.
class PidCursor {
  public:
    PidCursor();
    ~PidCursor();
    PidCursor(const PidCursor&) = delete;
    PidCursor& operator=(const PidCursor&) = delete;
    long get() const;  ///< -1 when it cannot be had
    bool set(long last_pid) const;

  private:
    int fd_;
};

}  // namespace crane::checkpoint
