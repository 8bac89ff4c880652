#include "interpose/core/queue_notices.hpp"

#include <sys/stat.h>

#include "interpose/core/signals.hpp"

namespace crane::interpose {
namespace {

QueueNotice* notice_of(uint64_t queue) {
    for (QueueNotice& notice : domain().queue_notices)
        if (notice.queue == queue && !notice.given) return &notice;
    return nullptr;
}

bool somebody_waits(uint64_t queue) {
    const DomainState& d = domain();
    for (dmt::SlotId slot = 0; slot < d.scheduler.high_water; ++slot)
        if (d.scheduler.slots[slot].state != dmt::SlotState::kFree && d.threads[slot].awaits == queue)
            return true;
    return false;
}

void drop(QueueNotice& notice) {
    notice = {};
    --domain().queue_notices_used;
}

}  // namespace

uint64_t queue_number(mqd_t queue) {
    struct stat file {};
    return raw(SYS_fstat, queue, &file) == 0 ? file.st_ino : 0;
}

long add_queue_notice(uint64_t queue, const sigevent& event, uint64_t& made) {
    if (notice_of(queue)) return -EBUSY;
    QueueNotice* place = notice_of(0);
    if (!place) return -ENOMEM;
    made = ++domain().queue_notices_made;
    *place = {queue,
              made,
              reinterpret_cast<uint64_t>(event.sigev_value.sival_ptr),
              runtime.process_index,
              event.sigev_notify,
              event.sigev_signo,
              0};
    ++domain().queue_notices_used;
    return 0;
}

void drop_queue_notices(uint32_t process, uint64_t queue) {
    if (domain().queue_notices_used == 0) return;
    for (QueueNotice& notice : domain().queue_notices)
        if (notice.queue != 0 && notice.process == process &&
            (queue == 0 || (notice.queue == queue && !notice.given)))
            drop(notice);
}

NoticeState look_at_notice(uint64_t made) {
    for (QueueNotice& notice : domain().queue_notices) {
        if (notice.queue == 0 || notice.made != made) continue;
        if (!notice.given) return NoticeState::kWaits;
        drop(notice);
        return NoticeState::kGiven;
    }
    return NoticeState::kGone;
}

bool notice_is_due(mqd_t queue, uint64_t number) {
    mq_attr attributes{};
    return notice_of(number) && !somebody_waits(number) &&
           raw(SYS_mq_getsetattr, queue, nullptr, &attributes) == 0 && attributes.mq_curmsgs == 0;
}

void give_queue_notice(uint64_t queue) {
    QueueNotice* found = notice_of(queue);
    if (!found) return;
    if (found->how == SIGEV_THREAD) {
        found->given = 1;  // its thread waits for the queue's key
        return;
    }
    const QueueNotice notice = *found;
    drop(*found);
    if (notice.how == SIGEV_SIGNAL)
        post_signal(notice.process, signal_from_self(notice.signal, SI_MESGQ, notice.value), dmt::kNoSlot);
}

}  // namespace crane::interpose
