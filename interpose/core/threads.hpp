// Threads of this process: what pthread_t means in the schedule, and how a thread comes and goes.
//
// Every thread is joinable for libc, whatever the program asked for: a detached one is joined by the shim at
// the next thread creation, so that when its stack is free for reuse depends on the schedule alone.
#pragma once

#include "interpose/core/runtime.hpp"

namespace crane::interpose {

/// The main thread's record, and the key whose destructor is a thread's scheduled end.
void register_main_thread();
/// In a fork child: only the calling thread is left.
void keep_only_this_thread();
/// Acts on a pthread_cancel that reached this thread. Call at cancellation points, outside of an
/// Operation.
void test_cancel();
/// A call at which cancelled threads end: before it takes anything, or when its wait was cut short. What it
/// has taken would be lost with the thread.
template <typename Call>
long at_cancellation_point(Call call) {
    test_cancel();
    const long rc = call();
    if (rc == -EINTR) test_cancel();
    return rc;
}
/// It has been cancelled, and neither puts it off nor ends already.
bool cancel_due();
/// The same, and wants to end wherever it is.
bool asynchronous_cancel_due();
/// A thread that has left the schedule may still be on its way out: waits until it is gone.
void await_ended_thread();
/// Slot of a live thread of this process, kNoSlot if it has ended or is unknown.
dmt::SlotId slot_of_thread(pthread_t thread);
/// It has ended and was not joined yet.
bool is_ended_thread(pthread_t thread);
/// Of a live thread of any process, by the kernel's number of it.
dmt::SlotId slot_of_tid(int tid);
/// What pthread_create, pthread_detach and pthread_cancel do, turn in hand.
int create_thread(pthread_t* thread, const pthread_attr_t* attributes, void* (*routine)(void*),
                  void* argument);
/// The program has set those of threads that it makes without any.
void note_default_attributes();
int detach_thread(pthread_t thread);
int cancel_thread(pthread_t thread);
/// pthread_join: an operation of its own, since libc's part of it comes after.
int join_thread(pthread_t thread, void** result, uint64_t deadline, bool try_only);
/// How many threads of this process are in the schedule.
uint32_t count_threads();

}  // namespace crane::interpose
