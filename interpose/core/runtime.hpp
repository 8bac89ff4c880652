// interpose: libcrane.so, preloaded into the server. One thin wrapper per libc function, a file per family;
// this folder (core/) holds what they stand on.
//
// Rules for every wrapper:
//  - Not active (no Crane around, or a thread that Crane did not make): call the real function, nothing else.
//  - A scheduled operation is one Operation in a scope, which names the objects it works on. Blocking means
//    Operation::wait in a loop around a real call that cannot block, never a real call that can.
//  - Results and errno are those of the real call, also on the error paths.
//  - No allocation, no stdio, no libc lock, no exception of our own. What cannot be done is refused by
//    refuse_call() or refuse_domain().
//  - Safe in fork children, in signal handlers (which run between operations) and before constructors.
#pragma once

#include <cerrno>
#include <cstdint>

#include "dmt_scheduler/check.hpp"
#include "dmt_scheduler/scheduler.hpp"
#include "interpose/core/domain.hpp"
#include "interpose/core/raw.hpp"
#include "interpose/core/real.hpp"
#include "timebubble/rings.hpp"

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
};

/// What this thread knows of itself. `active` is false in threads and processes that Crane does not schedule.
struct Self {
    bool active;
    dmt::SlotId slot;
    uint32_t generation;
    uint32_t handler_depth;
};
extern thread_local Self self __attribute__((tls_model("initial-exec")));

/// What this process knows; remade by attach and after fork.
struct Runtime {
    DomainState* domain;
    Process* process;
    uint32_t process_index;
    timebubble::TransportView view;
    dmt::Scheduler scheduler;
    int domain_fd, transport_fd, doorbell_fd, placeholder_fd;
    int trace_fd;    ///< 0: no trace of the schedule is kept
    bool scheduled;  ///< false: settings.schedule is 0, only listening ports are moved
};
extern Runtime runtime;

inline bool active() {
    return self.active;
}
inline DomainState& domain() {
    return *runtime.domain;
}
inline dmt::Scheduler& scheduler() {
    return runtime.scheduler;
}
inline bool serial() {
    return runtime.domain->scheduler.policy == dmt::Policy::kSerial;
}

void deliver_signals();   // signals.cpp
bool interruption_due();  // signals.cpp

// --- objects: what operations work on, and what threads wait for

/// The numbers enter the sets that threads wait for, and so the schedule: they are never changed.
enum class ObjectKind : uint64_t {
    kNone = 0,
    kAddress = 1,  ///< in one process's own memory
    kShared,       ///< place in the page, in memory that processes share
    kSocket,
    kEpoll,
    kStream,
    kThread,
    kChild,       ///< any child of a process
    kSleep,       ///< nothing but a thread itself, named by its slot
    kDescriptor,  ///< a number of one process
    kSignal,      ///< what is pending for a thread
    kTimer,
    kSignalFd,
    kProcess,  ///< by pid, or what kill() takes for one
    kFiles,    ///< the tree of files
    kEntropy,  ///< a process's random stream
};
constexpr uint64_t kNoObject = 0;

inline uint64_t make_key(ObjectKind kind, uint64_t id) {
    return static_cast<uint64_t>(kind) << 60 | id;
}
/// An object in this process's own memory.
inline uint64_t address_key(const void* address) {
    return make_key(ObjectKind::kAddress, static_cast<uint64_t>(runtime.process_index) << 48 |
                                              (reinterpret_cast<uint64_t>(address) & 0xffff'ffff'ffffULL));
}
/// An object in memory that processes share: mapped at any address, it keeps its place in the page. Waiters
/// on other objects with the same place are woken too and look again.
inline uint64_t shared_key(const void* address) {
    return make_key(ObjectKind::kShared, reinterpret_cast<uint64_t>(address) & 0xfff);
}
inline uint64_t object_key(const void* address, bool shared) {
    return shared ? shared_key(address) : address_key(address);
}
inline uint64_t thread_key(pthread_t thread) {
    return address_key(reinterpret_cast<const void*>(thread));
}
/// The operation concerns nobody but the thread that makes it.
inline uint64_t own_key() {
    return make_key(ObjectKind::kSleep, self.slot);
}
/// A descriptor's number, whatever it stands for.
inline uint64_t descriptor_key(int fd) {
    return make_key(ObjectKind::kDescriptor,
                    static_cast<uint64_t>(runtime.process_index) << 32 | static_cast<uint32_t>(fd));
}
inline uint64_t process_key(int pid) {
    return make_key(ObjectKind::kProcess, static_cast<uint32_t>(pid));
}
inline uint64_t files_key() {
    return make_key(ObjectKind::kFiles, 0);
}
inline uint64_t entropy_key() {
    return make_key(ObjectKind::kEntropy, runtime.process_index);
}
/// The bit of an object in the signature of a set of objects.
inline uint64_t set_bit(ObjectKind kind, uint32_t id) {
    const uint64_t h = make_key(kind, id) * 0x9e37'79b9'7f4a'7c15ULL;
    return uint64_t{1} << (h >> 58);
}

// --- operations

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
    /// The operation found nothing to do: whoever polls must not keep the turn.
    void yield() { scheduler().yield(self.slot); }

  private:
    Op op_;
};

// --- virtual time

constexpr uint64_t kNsPerSecond = 1'000'000'000;
/// What the monotonic clock shows when the domain starts.
constexpr uint64_t kUptimeAtStart_ns = 1000 * kNsPerSecond;

inline uint64_t now_realtime_ns() {
    return scheduler().read_clock(self.slot);
}
inline uint64_t now_monotonic_ns() {
    return now_realtime_ns() - domain().monotonic_offset_ns;
}
/// Virtual time at which the domain started.
inline uint64_t domain_start_ns() {
    return domain().monotonic_offset_ns + kUptimeAtStart_ns;
}
uint64_t to_ns(const timespec& time);
timespec to_timespec(uint64_t ns);
/// The realtime deadline of an absolute time on `clock`; at least 1, so that it is never "none".
uint64_t deadline_from_absolute(clockid_t clock, const timespec& when);
uint64_t deadline_from_relative_ns(uint64_t ns);
bool valid_timespec(const timespec* time);

// --- output and messages

/// Writes one record to craned. Caller has the turn. Without `ring` it is seen with the next record, or when
/// the domain waits for input.
void emit(timebubble::OutputKind kind, uint64_t connection, uint16_t flags, const void* payload, size_t bytes,
          bool ring = true);
/// Room for a record that is filled in place, then sent by emit_reserved.
uint8_t* reserve_output(size_t bytes);
void emit_reserved(timebubble::OutputKind kind, uint64_t connection, uint16_t flags, size_t bytes,
                   bool ring = true);
/// Text for the operator, through craned's log.
void report(const char* text);
/// Says what Crane cannot do for this program, then goes on with the error that the caller returns.
void refuse_call(const char* what);
/// The domain cannot go on: tells craned why and ends the process.
[[noreturn]] void refuse_domain(const char* why,
                                timebubble::Attachment how = timebubble::Attachment::kRefused);

// --- attach.cpp

/// Called by the constructor, with the process's environment.
void attach(char** environment);
/// Hooks of the scheduler (park, unpark, input).
dmt::Hooks scheduler_hooks();
/// Applies one decided client call. (sockets.cpp)
void apply_call(uint16_t kind, uint64_t connection, const char* payload, size_t bytes);
/// True for descriptors that belong to Crane.
bool is_reserved_fd(int fd);

}  // namespace crane::interpose
