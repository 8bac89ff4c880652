// The stack of a thread of another process, read from outside.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "proxy/thread_state.hpp"

namespace crane::proxy {

/// A thread's registers and the inner part of its stack, as they were at one moment: what takes long, to find
/// frames and names in files, is done when the thread is on its way again.
class StackCopy {
  public:
    /// The kernel tells two registers. A frame that needs another one ends the backtrace.
    static StackCopy of_sleeping(pid_t thread, const ThreadState& state);
    /// The calling thread has stopped it with ptrace.
    static StackCopy of_stopped(pid_t thread);

    /// "function+0x1c", "file(+0x1c)" where no name is known, or the address, innermost first, at most `most`
    /// of them. None: the stack cannot be read.
    std::vector<std::string> frames(size_t most) const;

    // --- what libdwfl's callbacks ask for
    const std::array<uint64_t, 17>& registers() const { return registers_; }
    bool knows_all_registers() const { return knows_all_; }
    bool read(uint64_t address, uint64_t& value) const;

  private:
    explicit StackCopy(pid_t thread) : thread_(thread) {}
    void copy();

    pid_t thread_;
    std::array<uint64_t, 17> registers_{};  ///< by the numbers that DWARF gives them
    bool knows_all_ = false;
    std::vector<char> bytes_;  ///< from the stack pointer on
};

}  // namespace crane::proxy
