#include "proxy/backtrace.hpp"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

#include <optional>

#include "proxy/computing_thread.hpp"
#include "proxy/process_tree.hpp"
#include "proxy/thread_stack.hpp"

namespace crane::proxy {

namespace {

constexpr char kMoves[] = "it makes system calls, and is not stopped there: that could cut one short";

}  // namespace

std::vector<BusyThread> busy_threads(pid_t root) {
    std::vector<BusyThread> running, blocked, stopped;
    for (const auto& [pid, times] : process_tree(root)) {
        if (pid == root) continue;
        const std::string process = "/proc/" + std::to_string(pid);
        DIR* tasks = opendir((process + "/task").c_str());
        while (const dirent* entry = tasks ? readdir(tasks) : nullptr) {
            const pid_t thread = atoi(entry->d_name);
            if (thread <= 0) continue;
            const std::string task = process + "/task/" + entry->d_name;
            const ThreadState state = read_thread_state(task);
            const BusyThread one{
                pid, thread, first_line(process + "/comm"), first_line(task + "/comm"), state.system_call,
                ""};
            if (state.letter == 'R') {
                running.push_back(one);
                running.back().system_call = -1;
            } else if (state.letter == 'T' || state.letter == 't') {
                stopped.push_back(one);
                stopped.back().stopped_by = state.letter == 't' ? "a tracer" : "a signal from outside";
            } else if (one.system_call >= 0 && one.system_call != SYS_futex && one.system_call != SYS_pause) {
                blocked.push_back(one);
            }
        }
        if (tasks) closedir(tasks);
    }
    if (!running.empty()) return running;
    return blocked.empty() ? stopped : blocked;
}

namespace {

std::vector<std::string> frames_of(const StackCopy& stack, size_t most) {
    auto frames = stack.frames(most);
    return frames.empty() ? std::vector<std::string>{"its stack cannot be read"} : frames;
}

}  // namespace

std::vector<std::string> backtrace_of(pid_t thread, size_t most) {
    // One thread's entry is to be found under its own number, too, though no listing shows it.
    const std::string task = "/proc/" + std::to_string(thread) + "/task/" + std::to_string(thread);
    const ThreadState before = read_thread_state(task);
    if (before.letter == '?') return {"it has ended"};
    if (before.sleeps()) {
        const StackCopy stack = StackCopy::of_sleeping(thread, before);
        auto frames = frames_of(stack, most);
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
    const auto copy_stopped = [thread] {
        const StoppedThread stopped(thread);
        return stopped.ok() ? std::optional(StackCopy::of_stopped(thread)) : std::nullopt;
    };
    const std::optional<StackCopy> stack = copy_stopped();
    if (!stack) return {std::string("it cannot be traced: ") + strerror(errno)};
    return frames_of(*stack, most);
}

namespace {

std::string what_keeps(const BusyThread& one, const std::string& innermost) {
    if (!one.stopped_by.empty()) return " is stopped by " + one.stopped_by;
    const std::string what =
        one.system_call < 0 ? " computes, or spins on memory that only another thread changes (then start "
                              "with --schedule parallel)"
                            : " is blocked in system call " + std::to_string(one.system_call) +
                                  ", which Crane does not schedule";
    const bool is_frame = !innermost.starts_with("it ") && !innermost.starts_with("its ");
    return what + (is_frame ? ", in " : "; where in its code is not known, since ") + innermost;
}

}  // namespace

StallReport describe_stall(pid_t root, uint64_t stood_s) {
    constexpr size_t kThreads = 4, kFrames = 24;
    StallReport report;
    const std::vector<BusyThread> busy = busy_threads(root);
    for (size_t i = 0; i < busy.size() && i < kThreads; ++i) {
        const BusyThread& one = busy[i];
        // Whoever has stopped it may hold it as a tracer does.
        const std::vector<std::string> frames =
            one.stopped_by.empty() ? backtrace_of(one.thread, kFrames) : std::vector<std::string>{"stopped"};
        const std::string who = "thread " + std::to_string(one.thread) + " (" + one.name + ") of " +
                                one.program + ", pid " + std::to_string(one.process);
        if (i == 0)
            report.summary = "the server stands still for " + std::to_string(stood_s) + " s: " + who +
                             what_keeps(one, frames[0]);
        report.details += "\n    " + who + ":";
        for (const std::string& frame : frames) report.details += "\n        " + frame;
    }
    return report;
}

}  // namespace crane::proxy
