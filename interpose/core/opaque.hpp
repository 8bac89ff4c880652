// Opaque processes: children that run a program which cannot be scheduled (static, Go, setuid, foreign).
//
// Rules:
//  - The domain stands while one runs: who has the turn after one began, and whoever did something to a
//    stream or is about to look at one, or for its end, first lets all of them run until each has ended or
//    waits for a pipe or unix socket. What is seen then depends on the log alone, for nothing but the domain
//    can move them on.
//  - The domain does not stand for ever: a process that has run for kPatienceMs in all of these waits is left
//    to itself, which is said. What a busy machine or its disk keeps it from does not count, up to
//    kMostPatienceMs: else it would be left on the one replica and not on the other. From then on nobody
//    waits for it with the turn in hand, and what it does has no place in the schedule: who waits for it
//    looks again from time to time (virtual time).
//  - The end of one is an event of the schedule at the place where it was seen: SIGCHLD, streams, wait. One
//    that was left to itself and is sent a signal that it must die of is stood for once more: its end belongs
//    to that.
//  - No entry is held for ever: one that nobody can wait for any more gives its entry back at its end.
#pragma once

#include "interpose/core/fds.hpp"

namespace crane::interpose {

/// For how long the domain stands for one process, in all.
constexpr uint64_t kPatienceMs = 5000;
/// The same, whatever keeps it.
constexpr uint64_t kMostPatienceMs = 60'000;

/// This process is about to run a program that cannot be scheduled: gives up what is virtual. Turn in hand.
void become_opaque();
/// The parent of an opaque process has ended, and its heir is `heir` (kNone: nobody).
void part_from_opaque(uint32_t index, uint32_t heir);

/// It has ended, and this is the place in the schedule.
void note_end_of_opaque(Process& process);
/// kill() of one. 0, or a negative error.
long signal_opaque(Process& process, int signal);
void run_opaque_processes();
/// Lets opaque processes run as far as they get by themselves. Turn in hand.
inline void settle_opaque() {
    if (__builtin_expect(domain().opaque_processes != 0, 0)) run_opaque_processes();
}
/// The domain did something to a stream: those who wait for an opaque child look again.
void wake_parents_of_opaque();

/// A process that was left to itself may act on streams of this signature at any time.
inline bool is_left_to_chance(uint64_t streams) {
    return (domain().left_streams & streams) != 0;
}
/// When to look again at what has no place in the schedule: soon at first, each second in the end. `looks`
/// counts them.
uint64_t next_look_ns(uint32_t& looks);
/// The same at what any process may hold; no deadline where none was left to itself.
inline uint64_t next_look_for_left_ns(uint32_t& looks) {
    return is_left_to_chance(~uint64_t{0}) ? next_look_ns(looks) : dmt::kNoDeadline;
}
/// The earlier of two deadlines, either of which may be dmt::kNoDeadline.
inline uint64_t earlier_ns(uint64_t a, uint64_t b) {
    if (a == dmt::kNoDeadline || b == dmt::kNoDeadline) return a == dmt::kNoDeadline ? b : a;
    return a < b ? a : b;
}

/// Whether every thread of the process and of all below it sleeps, and one of them on a pipe or unix socket:
/// so, while the domain stands, nothing moves it on. False when that cannot be seen.
bool waits_for_streams(int pid);
/// What the threads of a process and of all below it have done so far; zeros where that cannot be seen.
OpaqueEffort effort_of(int pid);
/// How much of `passed_ns` they took for themselves: computing, or asleep by their own will.
uint64_t own_time_ns(const OpaqueEffort& before, const OpaqueEffort& now, uint64_t passed_ns);
/// Whether that signal ends it, whatever it does: it is neither caught nor ignored nor blocked.
bool dies_of(int pid, int signal);
/// Dead, reaped or not.
bool has_ended(int pid);
/// The same, as /proc shows it: also when but its main thread has ended.
bool is_zombie(int pid);

}  // namespace crane::interpose
