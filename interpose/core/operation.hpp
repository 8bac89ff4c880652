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
    kResolve,
    kSync,
};

/// What a thread does in the midst of computing: it neither waits for anything outside nor tells it anything.
constexpr bool is_of_computing(Op op) {
    return op == Op::kMutexLock || op == Op::kMutexUnlock || op == Op::kRwLock || op == Op::kRwUnlock ||
           op == Op::kSpin || op == Op::kOnce || op == Op::kYield;
}

/// Runs the handlers that are due (signals.cpp).
void deliver_signals();
/// The thread has run through a loop whose trap was taken away for so long (pauses.cpp).
void trap_again();
/// A wait that signals may cut short would be cut short at once (signals.cpp).
bool interruption_due();
/// A wait that was interrupted was so for a handler or a cancellation that is still due: what woke it may
/// have been taken by another thread, or be ignored by now (signals.cpp).
bool is_cut_short();

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
        if (__builtin_expect(self.spins.untrapped, 0)) trap_again();
        self.spins = {};
        if (!is_of_computing(op)) self.readings = {};
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
        return looked_at(scheduler().wait(self.slot, static_cast<uint32_t>(op_), key, set_mask, deadline_ns,
                                          interruptible));
    }
    /// The same for a lock, which another thread may take first: who comes too late is preferred next time.
    dmt::WaitResult contend(uint64_t key, uint64_t deadline_ns = dmt::kNoDeadline, bool interruptible = false,
                            uint64_t set_mask = 0) {
        if (interruptible && interruption_due()) return dmt::WaitResult::kInterrupted;
        return looked_at(scheduler().wait(self.slot, static_cast<uint32_t>(op_), key, set_mask, deadline_ns,
                                          interruptible, true));
    }
    /// For what no signal cuts short (locks, joins): handlers run as soon as they are due, with the wait's
    /// object as it may be meanwhile, and the caller looks again. Never kInterrupted.
    dmt::WaitResult outlast(uint64_t key, uint64_t deadline_ns = dmt::kNoDeadline, bool contends = false,
                            uint64_t set_mask = 0);
    /// The operation found nothing to do: whoever polls must not keep the turn.
    void yield() { scheduler().yield(self.slot); }

  private:
    /// Cut short for nothing, the caller looks again at what it waits for.
    static dmt::WaitResult looked_at(dmt::WaitResult result) {
        if (result != dmt::WaitResult::kInterrupted || is_cut_short()) return result;
        return dmt::WaitResult::kSignaled;
    }

    Op op_;
};

/// What a thread seems to wait for that goes on without an operation.
enum class Awaited {
    kMemory,    ///< what another thread writes
    kSearched,  ///< that, as was found by a long look at it (endless_rounds.hpp)
    kCall,      ///< that, or a signal
    kNothing,   ///< it works on files, and others must go on meanwhile
    kTime,      ///< that, or a time
};
/// Lets the others go on. Where none could, the thread naps after a while (at once, if it waits for time), so
/// that time passes and input comes in.
void make_way(Awaited what);
/// Another thread may do something without this one's doing: it can run, or waits for a time, or for what
/// comes from outside. Those that only look at what others do are none. Turn in hand.
bool others_may_come();

/// Calls that take no turn, in a row, before the thread makes way.
constexpr uint32_t kMostCheapCalls = 1000;

/// Of a call that takes no turn: a loop that makes nothing but such calls waits for what others do.
inline void count_cheap_call() {
    if (__builtin_expect(++self.spins.cheap_calls >= kMostCheapCalls, 0)) make_way(Awaited::kCall);
}

/// The same of a call that works on files: a loop of them may wait for what others do to one, or be at work
/// for long.
inline void count_file_call() {
    if (__builtin_expect(++self.spins.cheap_calls >= kMostCheapCalls, 0)) make_way(Awaited::kNothing);
}

/// Of reading a clock: such a loop may wait for a time as well, or measure what it can compute in a while
/// (how many rounds of a password's hash, say), in ever larger pieces with few readings between them. As time
/// does not pass without operations it would never end: so time is let in after a few readings already, then
/// less and less often; and at two readings one after the other where much has passed, since either may be
/// the one that begins a measure.
void let_time_pass();
inline void count_clock_reading() {
    if (__builtin_expect(++self.readings.count >= self.readings.most, 0)) let_time_pass();
}

}  // namespace crane::interpose
