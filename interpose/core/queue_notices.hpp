// mq_notify: who is told that a message has come to an empty queue that nobody waits for. The kernel would
// send a real signal, which has no place in the schedule; so what it does is done here, by whoever sends the
// message.
#pragma once

#include <mqueue.h>

#include "interpose/core/runtime.hpp"

namespace crane::interpose {

/// The kernel's number of a queue: it tells two apart, and is never shown. 0: no queue.
uint64_t queue_number(mqd_t queue);
/// -EBUSY: another notice of the queue is there. Turn in hand, for all of these.
long add_queue_notice(uint64_t queue, const sigevent& event, uint64_t& made);
/// Those of this process for one queue, or of a process for any (0).
void drop_queue_notices(uint32_t process, uint64_t queue);
enum class NoticeState { kWaits, kGiven, kGone };
/// Of one for a thread; that it was given is said once.
NoticeState look_at_notice(uint64_t made);

/// Before a message is sent: its coming will be told, if the queue is empty and nobody waits.
bool notice_is_due(mqd_t queue, uint64_t number);
void give_queue_notice(uint64_t queue);

}  // namespace crane::interpose
