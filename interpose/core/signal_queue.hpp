// What is pending, for a process or for one thread: a set of signals, and in the order of their coming what
// is known of each (siginfo_t). As POSIX has it, one that is pending already is not noted again, but for the
// real-time signals, each of which is.
#pragma once

#include <sys/signalfd.h>

#include <csignal>

#include "interpose/core/runtime.hpp"

namespace crane::interpose {

constexpr int kFirstRealtime = 32;

constexpr uint64_t signal_bit(int signal) {
    return uint64_t{1} << (signal - 1);
}

/// Sent by the calling process: `code` is SI_USER, SI_TKILL or SI_QUEUE.
SignalInfo signal_from_self(int signal, int code, uint64_t value = 0);
/// As the program has filled it in (rt_sigqueueinfo).
SignalInfo signal_as_given(int signal, const siginfo_t& given);
/// Of nobody's sending.
SignalInfo signal_from_kernel(int signal);
/// Of an operator's (crane signal).
SignalInfo signal_from_outside(int signal);
/// Of a timer of the process.
SignalInfo signal_of_timer(int signal, int timer, uint64_t overruns, uint64_t value);
/// SIGCHLD about the process `index`: `code` is one of CLD_…, `status` an exit status or a signal.
SignalInfo signal_of_child(uint32_t index, int code, int status);
/// The same of an end, by its wait status.
SignalInfo signal_of_end(uint32_t index, int wait_status);

/// A timer's is noted once, and then how often it ran out. False: a real-time signal with a value, and no
/// room for it (EAGAIN).
bool queue_signal(PendingSignals& pending, const SignalInfo& info);
/// How often a timer has run out since its signal came to be pending; -1: it is not.
int32_t overruns_pending(const PendingSignals& pending, int signal, int timer);
/// The lowest signal of `set` that is pending, the oldest of its kind, removed. False: there is none.
bool unqueue_signal(PendingSignals& pending, uint64_t set, SignalInfo& info);
/// Those of `set` are pending no more.
void drop_signals(PendingSignals& pending, uint64_t set);

siginfo_t as_siginfo(const SignalInfo& info);
signalfd_siginfo as_signalfd(const SignalInfo& info);

}  // namespace crane::interpose
