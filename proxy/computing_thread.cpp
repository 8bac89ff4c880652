#include "proxy/computing_thread.hpp"

#include <errno.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>

#include "proxy/backtrace.hpp"
#include "proxy/thread_state.hpp"
#include "timebubble/look.hpp"

namespace crane::proxy {

namespace {

/// CPU time in user space, and none in the kernel, after which a thread is held to compute there alone.
/// (Ticks are 10 ms.) A thread that gets little of the CPU is watched for longer.
constexpr uint64_t kWatchTicks = 5;
constexpr int kWatchMs = 2000, kWatchStepMs = 20;
/// One that is told to stop does so when it next gets the CPU, and would stand for as long as its tracer
/// lives if nobody took notice.
constexpr int kStopPatienceMs = 30'000;

}  // namespace

Computing watch_computing(pid_t thread) {
    const std::string task = "/proc/" + std::to_string(thread) + "/task/" + std::to_string(thread);
    ThreadState before = read_thread_state(task);
    for (int waited_ms = 0;; waited_ms += kWatchStepMs) {
        const ThreadState now = read_thread_state(task);
        if (now.letter == '?' || now.sleeps()) return Computing::kMoves;
        const bool calls = now.system_ticks != before.system_ticks;
        if (!calls && now.user_ticks >= before.user_ticks + kWatchTicks) return Computing::kAlone;
        if (waited_ms >= kWatchMs) return calls ? Computing::kMoves : Computing::kRests;
        if (calls) before = now;  // once may be an interrupt of the host's, or a page that came late
        usleep(kWatchStepMs * 1000);
    }
}

StoppedThread::StoppedThread(pid_t thread) : thread_(thread) {
    if (ptrace(PTRACE_SEIZE, thread, nullptr, nullptr) != 0) return;
    seized_ = true;
    if (ptrace(PTRACE_INTERRUPT, thread, nullptr, nullptr) != 0) return;
    int status = 0;
    for (int waited_ms = 0; waited_ms < kStopPatienceMs; ++waited_ms) {
        const pid_t stopped = waitpid(thread, &status, __WALL | WNOHANG);
        if (stopped == thread) {
            ok_ = WIFSTOPPED(status);
            // A signal that came first is given back when the thread goes on.
            if (ok_ && status >> 16 != PTRACE_EVENT_STOP) signal_ = WSTOPSIG(status);
            return;
        }
        if (stopped < 0) return;
        usleep(1000);
    }
    errno = ETIMEDOUT;  // the kernel lets go of it at the end of the thread that looks
}

StoppedThread::~StoppedThread() {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): ptrace takes the number in the place of an address
    if (seized_ && ok_) ptrace(PTRACE_DETACH, thread_, nullptr, reinterpret_cast<void*>(signal_));
}

bool StoppedThread::computes() const {
    user_regs_struct registers{};
    return ok_ && signal_ == 0 && ptrace(PTRACE_GETREGS, thread_, nullptr, &registers) == 0 &&
           static_cast<long>(registers.orig_rax) < 0;
}

namespace {

/// Only the shim catches that signal; others would die of it.
bool can_be_asked(pid_t process) {
    constexpr std::string_view kCaught = "SigCgt:\t";
    std::ifstream status("/proc/" + std::to_string(process) + "/status");
    for (std::string line; std::getline(status, line);) {
        if (line.rfind(kCaught, 0) != 0) continue;
        const uint64_t caught = strtoull(line.c_str() + kCaught.size(), nullptr, 16);
        return caught >> (timebubble::kLookSignal - 1) & 1;
    }
    return false;
}

}  // namespace

void ask_for_round(pid_t root) {
    constexpr size_t kMostLooks = 4;
    size_t looks = 0;
    for (const BusyThread& one : busy_threads(root)) {
        if (one.system_call >= 0 || !one.stopped_by.empty() || ++looks > kMostLooks) return;
        if (!can_be_asked(one.process)) continue;
        if (watch_computing(one.thread) != Computing::kAlone) continue;
        const StoppedThread stopped(one.thread);
        if (!stopped.computes() || !can_be_asked(one.process)) continue;  // it may be another program now
        // It takes the signal as it goes on, before its next instruction: no call of its is interrupted.
        siginfo_t info{};
        info.si_signo = timebubble::kLookSignal;
        info.si_code = SI_QUEUE;
        info.si_ptr =
            reinterpret_cast<void*>(timebubble::kLookForRound);  // NOLINT(performance-no-int-to-ptr)
        syscall(SYS_rt_tgsigqueueinfo, one.process, one.thread, timebubble::kLookSignal, &info);
    }
}

}  // namespace crane::proxy
