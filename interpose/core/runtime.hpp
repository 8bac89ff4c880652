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

#include "interpose/core/context.hpp"
#include "interpose/core/objects.hpp"
#include "interpose/core/operation.hpp"
#include "interpose/core/raw.hpp"
#include "interpose/core/real.hpp"
#include "interpose/core/virtual_time.hpp"
#include "timebubble/rings.hpp"

namespace crane::interpose {

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
/// The program goes on with the interval timer of the one before it; set before anything is attached
/// (interpose/alarms.cpp).
extern void (*take_over_alarm)();
/// Hooks of the scheduler (park, unpark, input).
dmt::Hooks scheduler_hooks();
/// Applies one decided client call. (sockets.cpp)
void apply_call(uint16_t kind, uint64_t connection, const char* payload, size_t bytes);
/// True for descriptors that belong to Crane.
bool is_reserved_fd(int fd);

}  // namespace crane::interpose
