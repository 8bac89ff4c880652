#include "proxy/thread_state.hpp"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <fstream>

namespace crane::proxy {

namespace {

/// "NUMBER six arguments SP PC" in a call, "-1 SP PC" asleep in the kernel otherwise (a page fault),
/// "running".
void read_system_call(const std::string& line, ThreadState& out) {
    uint64_t stack = 0, instruction = 0;
    long number = -1;
    const bool in_call = sscanf(line.c_str(), "%ld %*x %*x %*x %*x %*x %*x %" SCNx64 " %" SCNx64, &number,
                                &stack, &instruction) == 3;
    if (!in_call && sscanf(line.c_str(), "%ld %" SCNx64 " %" SCNx64, &number, &stack, &instruction) != 3)
        return;
    out.system_call = number;
    out.stack = stack;
    out.instruction = instruction;
}

}  // namespace

std::string first_line(const std::string& path) {
    std::ifstream in(path);
    std::string line;
    std::getline(in, line);
    return line;
}

bool ThreadState::same_sleep(const ThreadState& other) const {
    return sleeps() && stack == other.stack && instruction == other.instruction &&
           system_call == other.system_call && user_ticks == other.user_ticks;
}

ThreadState read_thread_state(const std::string& task) {
    ThreadState state;
    const std::string line = first_line(task + "/stat");
    const size_t after = line.rfind(')');  // the name may hold anything
    if (after == std::string::npos || after + 2 >= line.size()) return state;
    state.letter = line[after + 2];
    sscanf(line.c_str() + after + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %" SCNu64 " %" SCNu64,
           &state.user_ticks, &state.system_ticks);
    read_system_call(first_line(task + "/syscall"), state);
    return state;
}

}  // namespace crane::proxy
