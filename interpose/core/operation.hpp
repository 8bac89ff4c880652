// A scheduled operation: the turn from its taking to its giving up, and the trace of it.
#pragma once

#include <cerrno>

#include "interpose/core/objects.hpp"

namespace crane::interpose {

/// Names of scheduled operations; they enter the schedule hash, so a number is never used twice.
enum class Op : uint32_t {
    kAttach = 1,
    kMutexLock,
    kMutexUnlock,
    kCondWait,
    kCondSignal,
    kRwLock,
    kRwUnlock,
    kSpin,
    kBarrier,
    kOnce,
    kThreadCreate,
    kThreadExit,
    kThreadJoin,
    kSemWait,
    kSemPost,
    kYield,
    kFutexWait,
    kFutexWake,
    kSleep,
    kSocket,
    kBind,
    kListen,
    kAccept,
    kConnect,
    kReceive,
    kSend,
    kShutdown,
    kClose,
    kDup,
    kSocketOption,
    kPoll,
    kEpollCreate,
    kEpollControl,
    kEpollWait,
    kRead,
    kWrite,
    kPipe,
    kFork,
    kExec,
    kWaitChild,
    kExit,
    kSignal,
    kSigwait,
    kTimer,
    kEntropy,
    kFile,
    kOther,
    kSystemV,
    kMessageQueue,
};

/// Runs the handlers that are due (signals.cpp).
void deliver_signals();
/// A wait that signals may cut short would be cut short at once (signals.cpp).
bool interruption_due();

/// What the trace of the schedule consists of (scripts/trace_diff.py reads it).
struct TraceRecord {
    uint64_t clock;
    uint32_t slot, operation;
    uint64_t caller;  ///< address in the program or library that made the call
    uint64_t now_ns;
    uint64_t object, second;
};

/// Appends one line of the schedule to the trace: for finding where two replicas part (docs/debugging.md).
void trace_operation(Op op, const void* caller, uint64_t object, uint64_t second);

/// One scheduled operation, from taking the turn to giving it up. The program's signal handlers run at its
/// end.
///
/// It names what it works on before it has the turn: one object, or two (a descriptor and what it stands for,
/// a condition and its mutex). What is made by the operation has no name yet: then it is the process.
class Operation {
  public:
    Operation(Op op, uint64_t object, uint64_t second = kNoObject) : op_(op) {
        scheduler().get_turn(self.slot);
        self.cheap_calls = 0;
        if (__builtin_expect(runtime.trace_fd != 0, 0))
            trace_operation(op, __builtin_return_address(0), object, second);
    }
    /// Handlers may throw (pthread_exit unwinds), hence noexcept(false).
    ~Operation() noexcept(false) {
        const int saved = errno;
        scheduler().put_turn(self.slot, static_cast<uint32_t>(op_));
        if (__builtin_expect(runtime.process->attention != 0, 0)) deliver_signals();
        errno = saved;
    }
    Operation(const Operation&) = delete;
    Operation& operator=(const Operation&) = delete;

    dmt::WaitResult wait(uint64_t key, uint64_t deadline_ns = dmt::kNoDeadline, bool interruptible = false,
                         uint64_t set_mask = 0) {
        // Sent while this thread was on its way here: nobody will wake it for that again.
        if (interruptible && interruption_due()) return dmt::WaitResult::kInterrupted;
        return scheduler().wait(self.slot, static_cast<uint32_t>(op_), key, set_mask, deadline_ns,
                                interruptible);
    }
    /// The same for a lock, which another thread may take first: who comes too late is preferred next time.
    dmt::WaitResult contend(uint64_t key, uint64_t deadline_ns = dmt::kNoDeadline, bool interruptible = false,
                            uint64_t set_mask = 0) {
        if (interruptible && interruption_due()) return dmt::WaitResult::kInterrupted;
        return scheduler().wait(self.slot, static_cast<uint32_t>(op_), key, set_mask, deadline_ns,
                                interruptible, true);
    }
    /// For what no signal cuts short (locks, joins): handlers run as soon as they are due, with the wait's
    /// object as it may be meanwhile, and the caller looks again. Never kInterrupted.
    dmt::WaitResult outlast(uint64_t key, uint64_t deadline_ns = dmt::kNoDeadline, bool contends = false,
                            uint64_t set_mask = 0);
    /// The operation found nothing to do: whoever polls must not keep the turn.
    void yield() { scheduler().yield(self.slot); }

  private:
    Op op_;
};

/// Calls that take no turn, in a row, before the thread makes way.
constexpr uint32_t kMostCheapCalls = 1000;

/// Of a call that takes no turn: a loop that makes nothing but such calls, and waits for another thread by
/// looking at memory, lets the others go on now and then.
inline void let_others_in() {
    if (__builtin_expect(++self.cheap_calls < kMostCheapCalls, 1)) return;
    Operation turn(Op::kYield, own_key());
    turn.yield();
}

/// Of reading a clock: only where another thread could go on. Where none could, a request that never ends and
/// looks at a clock meanwhile, as interpreters do, has to stand still for its end to be agreed on
/// (proxy/standstill.hpp).
inline void let_runnable_in() {
    if (__builtin_expect(++self.cheap_calls < kMostCheapCalls, 1)) return;
    if (!serial() || scheduler().state().runnable == 0) return;
    Operation turn(Op::kYield, own_key());
    turn.yield();
}

}  // namespace crane::interpose
