#include "proxy/backtrace.hpp"

#include <dirent.h>
#include <errno.h>
#include <libunwind-ptrace.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include <memory>

#include "proxy/computing_thread.hpp"
#include "proxy/process_tree.hpp"

namespace crane::proxy {

namespace {

constexpr char kMoves[] = "it makes system calls, and is not stopped there: that could cut one short";

/// A sleeping thread for libunwind, which hands the callbacks below an argument that has to be its own.
struct Sleeper {
    pid_t thread;
    ThreadState state;
};
thread_local const Sleeper* sleeper = nullptr;

int read_word(unw_addr_space_t, unw_word_t address, unw_word_t* value, int write, void*) {
    if (write) return -UNW_EINVAL;
    const iovec here{value, sizeof(*value)};
    // NOLINTNEXTLINE(performance-no-int-to-ptr): an address in another process
    const iovec there{reinterpret_cast<void*>(address), sizeof(*value)};
    return process_vm_readv(sleeper->thread, &here, 1, &there, 1, 0) == sizeof(*value) ? 0 : -UNW_EINVAL;
}

/// The kernel tells two registers. Frames that need another one end the backtrace.
int read_register(unw_addr_space_t, unw_regnum_t number, unw_word_t* value, int write, void*) {
    if (write || (number != UNW_REG_IP && number != UNW_REG_SP)) return -UNW_EBADREG;
    *value = number == UNW_REG_IP ? sleeper->state.instruction : sleeper->state.stack;
    return 0;
}

std::string describe(unw_cursor_t& cursor) {
    char name[256] = "?";
    unw_word_t offset = 0;
    unw_word_t address = 0;
    char text[320];
    unw_get_reg(&cursor, UNW_REG_IP, &address);
    if (unw_get_proc_name(&cursor, name, sizeof(name), &offset) == 0) {
        snprintf(text, sizeof(text), "%s+0x%lx", name, static_cast<unsigned long>(offset));
    } else {
        snprintf(text, sizeof(text), "0x%lx", static_cast<unsigned long>(address));
    }
    return text;
}

}  // namespace

std::vector<BusyThread> busy_threads(pid_t root) {
    std::vector<BusyThread> running, blocked;
    for (const auto& [pid, times] : process_tree(root)) {
        if (pid == root) continue;
        const std::string process = "/proc/" + std::to_string(pid);
        DIR* tasks = opendir((process + "/task").c_str());
        while (const dirent* entry = tasks ? readdir(tasks) : nullptr) {
            const pid_t thread = atoi(entry->d_name);
            if (thread <= 0) continue;
            const std::string task = process + "/task/" + entry->d_name;
            const ThreadState state = read_thread_state(task);
            const BusyThread one{pid, thread, first_line(process + "/comm"), first_line(task + "/comm"),
                                 state.system_call};
            if (state.letter == 'R') {
                running.push_back(one);
                running.back().system_call = -1;
            } else if (one.system_call >= 0 && one.system_call != SYS_futex && one.system_call != SYS_pause) {
                blocked.push_back(one);
            }
        }
        if (tasks) closedir(tasks);
    }
    return running.empty() ? blocked : running;
}

namespace {

std::vector<std::string> unwind(pid_t thread, unw_accessors_t& accessors, size_t most) {
    const std::unique_ptr<void, void (*)(void*)> info(_UPT_create(thread), _UPT_destroy);
    const std::unique_ptr<std::remove_pointer_t<unw_addr_space_t>, void (*)(unw_addr_space_t)> space(
        unw_create_addr_space(&accessors, 0), unw_destroy_addr_space);
    unw_cursor_t cursor;
    std::vector<std::string> frames;
    if (!info || !space || unw_init_remote(&cursor, space.get(), info.get()) != 0) {
        return {"its stack cannot be read"};
    }
    do {
        frames.push_back(describe(cursor));
    } while (frames.size() < most && unw_step(&cursor) > 0);
    return frames;
}

std::vector<std::string> backtrace_asleep(pid_t thread, const ThreadState& state, size_t most) {
    const Sleeper one{thread, state};
    sleeper = &one;
    unw_accessors_t accessors = _UPT_accessors;
    accessors.access_mem = read_word;
    accessors.access_reg = read_register;
    auto frames = unwind(thread, accessors, most);
    sleeper = nullptr;
    return frames;
}

}  // namespace

std::vector<std::string> backtrace_of(pid_t thread, size_t most) {
    // One thread's entry is to be found under its own number, too, though no listing shows it.
    const std::string task = "/proc/" + std::to_string(thread) + "/task/" + std::to_string(thread);
    const ThreadState before = read_thread_state(task);
    if (before.letter == '?') return {"it has ended"};
    if (before.sleeps()) {
        const auto frames = backtrace_asleep(thread, before, most);
        return before.same_sleep(read_thread_state(task)) ? frames : std::vector<std::string>{kMoves};
    }
    switch (watch_computing(thread)) {
        case Computing::kMoves:
            return {kMoves};
        case Computing::kRests:
            return {"it is ready to run, and gets little CPU"};
        case Computing::kAlone:
            break;
    }
    const StoppedThread stopped(thread);
    if (!stopped.ok()) return {std::string("it cannot be traced: ") + strerror(errno)};
    return unwind(thread, _UPT_accessors, most);
}

StallReport describe_stall(pid_t root, uint64_t stood_s) {
    constexpr size_t kThreads = 4, kFrames = 24;
    StallReport report;
    const std::vector<BusyThread> busy = busy_threads(root);
    for (size_t i = 0; i < busy.size() && i < kThreads; ++i) {
        const BusyThread& one = busy[i];
        const std::vector<std::string> frames = backtrace_of(one.thread, kFrames);
        const std::string who = "thread " + std::to_string(one.thread) + " (" + one.name + ") of " +
                                one.program + ", pid " + std::to_string(one.process);
        if (i == 0) {
            report.summary =
                "the server stands still for " + std::to_string(stood_s) + " s: " + who +
                (one.system_call < 0 ? " computes, or spins on memory that only another thread "
                                       "changes (then start with --schedule parallel)"
                                     : " is blocked in system call " + std::to_string(one.system_call) +
                                           ", which Crane does not schedule") +
                (frames[0] == kMoves ? "; where in its code is not known, since " : ", in ") + frames[0];
        }
        report.details += "\n    " + who + ":";
        for (const std::string& frame : frames) report.details += "\n        " + frame;
    }
    return report;
}

}  // namespace crane::proxy
