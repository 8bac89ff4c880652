// What this process and this thread know of themselves: where the domain's memory is, which entry is theirs.
#pragma once

#include <cstdint>

#include "base/check.hpp"
#include "dmt_scheduler/scheduler.hpp"
#include "interpose/core/domain.hpp"
#include "timebubble/transport.hpp"

namespace crane::interpose {

constexpr uint32_t kMostFrames = 16;

/// How long a thread has gone on without an operation that did something.
struct Spins {
    uint32_t cheap_calls;   ///< calls that take no turn
    uint32_t pauses;        ///< since it last gave way at one (pauses.hpp); 0: none
    uint32_t in_vain;       ///< how often in a row it gave way
    bool untrapped;         ///< what it runs through is no trap meanwhile
    uint32_t other_rounds;  ///< jumps back in another state than at the one before
    uint64_t round;         ///< its registers at the last of them (pauses.cpp)
};

/// How often a thread has read a clock while it only computed.
struct Readings {
    uint32_t count;
    uint32_t most = 16;    ///< before time is let in
    uint32_t spacing = 8;  ///< that `most` is, once it was
    uint32_t let_in;       ///< how often
};

/// How often in a row a thread has tried one lock in vain (polls.hpp).
struct Polls {
    uint64_t key;
    uint32_t failures;
};

/// What this thread knows of itself. `active` is false in threads and processes that Crane does not schedule.
struct Self {
    bool active;
    dmt::SlotId slot;
    uint32_t generation;
    Spins spins;  ///< since its last operation
    Readings readings;
    Polls polls;
    uint32_t handlers_run;                 ///< counts those of the program that were begun
    uint32_t handler_depth;                ///< handlers of the program that it is in
    uint64_t handler_frames[kMostFrames];  ///< where on the stack the first of them are (handler_frames.hpp)
    uint64_t trapped_at;  ///< the address of the call that the program's filters judge (sandbox.hpp)
    uint32_t image;       ///< that this thread knows to have come out of (timebubble::Control::image)
    bool leaves;          ///< is at the end of its process, or was when it faulted there
};
extern thread_local Self self __attribute__((tls_model("initial-exec")));

/// What this process knows; remade by attach and after fork.
struct Runtime {
    DomainState* domain;
    Process* process;
    uint32_t process_index;
    timebubble::TransportView view;
    dmt::Scheduler scheduler;
    int reserved_fds;  ///< the first of the descriptors that belong to Crane
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

}  // namespace crane::interpose
