#include "proxy/backtrace.hpp"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <libunwind-ptrace.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <fstream>
#include <memory>

#include "proxy/process_tree.hpp"

namespace crane::proxy {

namespace {

std::string first_line(const std::string& path) {
    std::ifstream in(path);
    std::string line;
    std::getline(in, line);
    return line;
}

/// The letter after the name in /proc/…/stat.
char state_of(const std::string& task) {
    const std::string line = first_line(task + "/stat");
    const size_t after = line.rfind(')');
    return after == std::string::npos || after + 2 >= line.size() ? '?' : line[after + 2];
}

/// The system call that a sleeping thread is in; -1 if it is in none, or it cannot be told.
long blocked_in(const std::string& task) {
    const std::string line = first_line(task + "/syscall");
    return line.empty() || !isdigit(static_cast<unsigned char>(line[0])) ? -1 : atol(line.c_str());
}

/// Holds a thread still while it lives.
class Stopped {
  public:
    explicit Stopped(pid_t thread) : thread_(thread) {
        if (ptrace(PTRACE_SEIZE, thread, nullptr, nullptr) != 0) return;
        seized_ = true;
        int status = 0;
        ok_ = ptrace(PTRACE_INTERRUPT, thread, nullptr, nullptr) == 0 &&
              waitpid(thread, &status, __WALL) == thread && WIFSTOPPED(status);
        // A signal that came first is given back when the thread goes on.
        if (ok_ && status >> 16 != PTRACE_EVENT_STOP) signal_ = WSTOPSIG(status);
    }
    ~Stopped() {
        // NOLINTNEXTLINE(performance-no-int-to-ptr): ptrace takes the number in the place of an address
        if (seized_ && ok_) ptrace(PTRACE_DETACH, thread_, nullptr, reinterpret_cast<void*>(signal_));
    }
    Stopped(const Stopped&) = delete;
    Stopped& operator=(const Stopped&) = delete;
    bool ok() const { return ok_; }

  private:
    pid_t thread_;
    bool seized_ = false;
    bool ok_ = false;
    long signal_ = 0;
};

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
            const BusyThread one{pid, thread, first_line(process + "/comm"), first_line(task + "/comm"),
                                 blocked_in(task)};
            if (state_of(task) == 'R') {
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

std::vector<std::string> backtrace_of(pid_t thread, size_t most) {
    const Stopped stopped(thread);
    if (!stopped.ok()) return {std::string("it cannot be traced: ") + strerror(errno)};
    const std::unique_ptr<void, void (*)(void*)> info(_UPT_create(thread), _UPT_destroy);
    const std::unique_ptr<std::remove_pointer_t<unw_addr_space_t>, void (*)(unw_addr_space_t)> space(
        unw_create_addr_space(&_UPT_accessors, 0), unw_destroy_addr_space);
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
                ", in " + frames[0];
        }
        report.details += "\n    " + who + ":";
        for (const std::string& frame : frames) report.details += "\n        " + frame;
    }
    return report;
}

}  // namespace crane::proxy
