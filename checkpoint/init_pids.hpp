// What crane-init does for the numbers of the server's processes and threads: a program that the shim cannot
// schedule takes some by timing, and those of the schedule shall be the same on every replica for all that.
#pragma once

#include <sys/types.h>

#include <string>

#include "base/pid_numbers.hpp"
#include "checkpoint/container_entry.hpp"

namespace crane::checkpoint {

/// Linux's highest bound on pids: the one of a pid namespace where it has its own, and shown everywhere.
constexpr long kMostPids = 4'194'304;

/// "" if pids begin anew behind kMostPids (or it is not known), else what is wrong where they do so behind
/// `pid_max`.
std::string describe_pid_bound(long pid_max);
/// The bound that the reader's pid namespace has; 0: unknown.
long read_pid_bound();

class PidNumbers {
  public:
    /// Before what is the kernel's own in /proc/sys is covered.
    PidNumbers() : pid_max_(read_pid_bound()), far_(first_far()) {}
    ~PidNumbers();
    PidNumbers(const PidNumbers&) = delete;
    PidNumbers& operator=(const PidNumbers&) = delete;

    /// Listens, with the capabilities that are left. "" or what the server cannot have.
    std::string open();
    long pid_bound() const { return pid_max_; }
    int fd() const { return fd_; }
    /// To one word from the shim, or from whoever else is in the container.
    void answer();

  private:
    long first_far() const { return pid_max_ / 2; }
    long exchange(long last);

    PidCursor cursor_;
    long pid_max_;
    long far_;  ///< behind which those go on that are not in the schedule
    int fd_ = -1;
};

}  // namespace crane::checkpoint
