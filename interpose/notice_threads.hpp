// Threads of the shim's own for what libc has threads for that the schedule would not know. Functions that a
// program is told by (SIGEV_THREAD): each call has a thread of its own, as with libc, so that one may take
// its time, wait, or want a large stack.
#pragma once

#include <pthread.h>
#include <csignal>

namespace crane::interpose {

/// What is blocked in the thread: as the C library has it for timers, and for all that is not one.
enum class NoticeMask { kInherited, kNone };

void unblock_all_signals();
/// Outside of an operation: a thread is made in one of its own, which nobody joins. `attributes` may be null.
/// False: there can be none, and nothing is called.
bool call_in_own_thread(void (*function)(sigval), sigval value, const pthread_attr_t* attributes,
                        NoticeMask mask);
/// Of what a program has asked for without waiting: that it is done. `code` is the signal's (SI_ASYNCIO,
/// ...). Outside of an operation, too.
void give_notice(const sigevent& event, int code);

/// A thread that does what a program has asked for without waiting: nobody joins it, and the program's
/// handlers run in its own threads. Outside of an operation. False: there can be none.
bool begin_helper(void* (*routine)(void*));

}  // namespace crane::interpose
